#include "probes/installation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "base/check.h"
#include "probes/book.h"
#include "probes/in_use.h"
#include "probes/semaphores.h"
#include "probes/text_patch.h"

namespace trapline::probes {

namespace {

// One region serves all text within this span, which leaves room to find a gap within a jump's
// reach (2 GiB).
constexpr std::uint64_t kRegionSpan = std::uint64_t{1} << 30;
// Neighbours this far apart are of different groups: no short jump reaches from one to the other.
// (One region's book holds a group as a whole.)
constexpr std::uint64_t kGroupSpan = 1024;
constexpr std::byte kInt3{0xcc};

enum class Way : std::uint8_t { kArm, kRestore };

// What turns the planned bytes of a site into jumps, or these back into what was there.
void add_pieces(const PlacedSite& site, Way way, std::uint32_t group, std::vector<Piece>& pieces) {
  for (const Overwritten& place : overwritten_by(site)) {
    if (way == Way::kArm) {
      pieces.push_back({place.at, place.original, place.patched, group, place.turn});
    } else {
      pieces.push_back({place.at, place.patched, place.original.first(place.patched.size()), group,
                        opposite(place.turn)});
    }
  }
}

// The sites' groups, numbered from 0 on.
class GroupNumbers {
 public:
  std::uint32_t of(const PlacedSite& site) {
    return known_.try_emplace(site.group, static_cast<std::uint32_t>(known_.size())).first->second;
  }
  std::size_t size() const { return known_.size(); }

 private:
  std::map<std::uint32_t, std::uint32_t> known_;
};

std::vector<PlacedSemaphore> semaphores_of(const isa::SitePlan& plan,
                                           std::span<const PointUse> uses, LoadBias bias) {
  std::vector<PlacedSemaphore> semaphores;
  for (const isa::PlannedPoint& point : plan.points) {
    const auto& usdt = uses[point.tag].usdt;
    if (!usdt || usdt->semaphore == LinkAddr()) continue;
    const RemoteAddr counter = bias.to_remote(usdt->semaphore);
    if (std::ranges::find(semaphores, counter, &PlacedSemaphore::counter) == semaphores.end())
      semaphores.push_back({counter});
  }
  return semaphores;
}

// A byte inside an instruction of the site; nullopt: all of them have one byte.
std::optional<QuietByte> quiet_byte(const PlacedSite& placed) {
  for (const isa::Instruction& instruction : placed.plan->displaced) {
    if (instruction.length < 2) continue;
    const std::uint64_t offset = instruction.address - placed.plan->site.value() + 1;
    return QuietByte{placed.site + offset, placed.plan->original[offset]};
  }
  return std::nullopt;
}

}  // namespace

Installation::Installation(ModuleCache& modules, const SitePlans& plans,
                           std::span<const std::byte> object)
    : modules_(modules), plans_(plans), object_(object) {
  group_sites();
}

Installation::Installation(ModuleCache& modules, const SitePlans& plans)
    : modules_(modules), plans_(plans) {
  for (PlacedSite& placed : sorted_sites()) {
    TL_CHECK(placed.plan->form == isa::SiteForm::kTrap);
    placed.patch = {kInt3};
    sites_.push_back({std::move(placed), State::kWaiting});
  }
}

// By address, with the numbers of their groups.
std::vector<PlacedSite> Installation::sorted_sites() const {
  std::vector<PlacedSite> all;
  std::uint32_t groups = 0;
  for (const ModuleSites& module : plans_.modules) {
    const LoadBias bias = modules_.module(module.module).bias;
    std::map<std::uint32_t, std::uint32_t> known;
    for (const isa::SitePlan& plan : module.sites) {
      const std::uint32_t group =
          plan.group == 0 ? groups : known.try_emplace(plan.group, groups).first->second;
      if (group == groups) ++groups;
      all.push_back({&plan, bias.to_remote(plan.site), module.module, {}, {}, group});
      all.back().semaphores = semaphores_of(plan, plans_.uses, bias);
    }
  }
  std::ranges::sort(all, {}, &PlacedSite::site);
  return all;
}

void Installation::group_sites() {
  for (PlacedSite& site : sorted_sites()) {
    const RemoteAddr end = site.site + site.plan->window_size;
    const bool apart = regions_.empty() || (end - regions_.back().text.start > kRegionSpan &&
                                            site.site - regions_.back().text.end > kGroupSpan);
    if (apart) {
      regions_.emplace_back();
      regions_.back().contents.object = object_;
      regions_.back().text = {site.site, end};
    }
    regions_.back().text.end = end;
    regions_.back().contents.sites.push_back(std::move(site));
  }
}

std::uint64_t Installation::memory_needed() const {
  std::uint64_t bytes = 0;
  for (const Region& region : regions_) {
    bytes += region_bound(region.contents);
    std::vector<Piece> pieces;
    for (const PlacedSite& site : region.contents.sites) add_pieces(site, Way::kArm, 0, pieces);
    for (const target::AddressRange& pages : pages_of(pieces)) bytes += pages.size();
  }
  return bytes;
}

Result<> Installation::reserve(target::RemoteCalls& calls, const RegionOwner& owner) {
  for (Region& region : regions_) {
    TL_TRY_ASSIGN(target::CodeRegion mapped,
                  target::CodeRegion::allocate(calls, region.text, region_bound(region.contents)));
    region.region = std::move(mapped);
    // From now on whoever finds it knows whose it is, and what else to unmap.
    const BookHeader empty = book_header(owner, {}, region.region->range().size());
    TL_TRY(region.region->write(calls.process(), 0, std::as_bytes(std::span(&empty, 1))));
  }
  return {};
}

Result<> Installation::prepare(target::Memory& memory, std::span<const ProbeBinding> bindings,
                               std::uint64_t arena_size) {
  std::vector<std::uint32_t> refused_groups;
  for (Region& region : regions_) {
    TL_CHECK(region.region.has_value());
    RegionImage image = build_region(region.region->range().start, std::move(region.contents),
                                     plans_.uses, bindings, modules_, arena_size);
    for (PlacedSite& site : image.sites) sites_.push_back({std::move(site), State::kWaiting});
    refused_.insert(refused_.end(), image.refused.begin(), image.refused.end());
    refused_groups.insert(refused_groups.end(), image.refused_groups.begin(),
                          image.refused_groups.end());
    // Some kernels let only the tracer of a stopped thread write: then arm() does it.
    const auto written = memory.write(region.region->range().start, image.bytes);
    region.written = written.has_value();
    if (!written) {
      if (written.error().code() == ErrorCode::kTargetGone) return written.error();
      region.image = std::move(image.bytes);
    }
  }
  refuse_groups(refused_groups);
  copy_pages(memory);
  return {};
}

// What leads to a site that is not there is not there either.
void Installation::refuse_groups(std::span<const std::uint32_t> groups) {
  for (Site& site : sites_) {
    if (std::ranges::find(groups, site.placed.group) == groups.end()) continue;
    site.state = State::kRefused;
    refuse(site.placed, std::string(isa::to_text(isa::Refusal::kOutOfReach)),
           "of the code that makes room for it");
  }
}

std::vector<Installation::Site*> Installation::sites_in(State state) {
  std::vector<Site*> found;
  for (Site& site : sites_) {
    if (site.state == state) found.push_back(&site);
  }
  return found;
}

void Installation::copy_pages(target::Memory& memory) const {
  std::vector<QuietByte> bytes;
  for (const Site& site : sites_) {
    const std::optional<QuietByte> byte = quiet_byte(site.placed);
    if (!byte) continue;
    const bool new_page = bytes.empty() || bytes.back().at.value() / wire::kPageSize !=
                                               byte->at.value() / wire::kPageSize;
    if (new_page) bytes.push_back(*byte);
  }
  copy_pages_early(memory, bytes);
}

Result<ArmReport> Installation::arm(target::StoppedProcess& process) {
  for (Region& region : regions_) {
    if (region.written) continue;
    TL_TRY(region.region->write(process, 0, region.image));
    region.written = true;
    region.image = {};
  }
  const std::vector<Site*> waiting = sites_in(State::kWaiting);
  TL_TRY_ASSIGN(const std::vector<bool> in_use, sites_in_use(process, waiting));
  GroupNumbers groups;
  std::vector<Piece> pieces;
  std::vector<std::pair<Site*, std::uint32_t>> patched;
  ArmReport report;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (in_use[i]) {
      ++report.deferred;
      continue;
    }
    patched.emplace_back(waiting[i], groups.of(waiting[i]->placed));
    add_pieces(waiting[i]->placed, Way::kArm, patched.back().second, pieces);
  }
  TL_TRY_ASSIGN(const std::vector<bool> replaced,
                replace_pieces(process.memory(), std::move(pieces)));
  for (const auto& [site, group] : patched) {
    if (replaced[group]) {
      site->state = State::kArmed;
      ++report.armed;
      TL_TRY(raise_semaphores(process.memory(), *site));
    } else {
      site->state = State::kRefused;
      refuse(site->placed, "other bytes in memory than in the file",
             "a debugger's breakpoint, a kernel uprobe, or code that changes itself");
      TL_TRY(strike_from_book(process, site->placed));
    }
  }
  return report;
}

// A program that does not see that somebody listens may not come to the site at all.
Result<> Installation::raise_semaphores(target::Memory& memory, const Site& site) {
  for (const PlacedSemaphore& semaphore : site.placed.semaphores) {
    if (raised_.contains(semaphore.counter)) continue;
    const Result<> raised = raise_semaphore(memory, semaphore);
    if (raised) {
      raised_.emplace(semaphore.counter, Raised{semaphore, site.placed.module});
    } else if (raised.error().code() == ErrorCode::kTargetGone) {
      return raised;
    } else {
      refuse(site.placed, "its semaphore cannot be raised", raised.error().text());
    }
  }
  return {};
}

// Only while our bytes show that the module is still the one that was armed.
Result<> Installation::lower_semaphores(target::Memory& memory) {
  for (const Site& site : sites_) {
    if (site.state != State::kArmed || site.placed.semaphores.empty()) continue;
    std::vector<std::byte> there(site.placed.patch.size());
    if (!memory.read(site.placed.site, there) || !std::ranges::equal(there, site.placed.patch))
      continue;
    for (const PlacedSemaphore& semaphore : site.placed.semaphores) {
      const auto raised = raised_.find(semaphore.counter);
      if (raised == raised_.end()) continue;
      TL_TRY(lower_semaphore(memory, raised->second.semaphore));
      raised_.erase(raised);
    }
  }
  return {};
}

// Whoever restores the process shall not take what stands there for something laid over our jump.
Result<> Installation::strike_from_book(target::StoppedProcess& process, const PlacedSite& placed) {
  RemoteAddr entry = placed.book_entry;
  if (entry.value() == 0) return {};  // there is no book
  for (std::size_t n = overwritten_by(placed).size(); n > 0; --n) {
    const std::byte none{0};
    TL_TRY(process.memory().write(entry + offsetof(BookEntry, size), std::span(&none, 1)));
    entry = entry + sizeof(BookEntry);
  }
  return {};
}

// Which windows a thread is in the midst of, or will come back to; with them, the others of their
// groups.
Result<std::vector<bool>> Installation::sites_in_use(target::StoppedProcess& process,
                                                     const std::vector<Site*>& waiting) {
  std::vector<target::AddressRange> windows;
  std::vector<std::pair<target::AddressRange, std::uint32_t>> insides;
  for (const Site* site : waiting) {
    const RemoteAddr start = site->placed.site;
    const isa::SitePlan& plan = *site->placed.plan;
    if (plan.form == isa::SiteForm::kTrap) continue;  // one byte, the first of an instruction
    windows.push_back({start, start + plan.window_size});
    insides.push_back({{start + 1, start + plan.window_size}, site->placed.group});
    if (!site->placed.has_island() || plan.island.hosted) continue;
    const RemoteAddr island = start + (plan.island.at - plan.site);
    insides.push_back({{island, island + isa::kJumpSize}, site->placed.group});
  }
  std::ranges::sort(insides);
  std::vector<target::AddressRange> ranges;
  for (const auto& [range, group] : insides) ranges.push_back(range);
  TL_TRY(target::move_out(process, windows));
  TL_TRY_ASSIGN(const target::ScanResult scan, target::scan_threads(process, ranges));
  std::set<std::uint32_t> busy;
  for (const target::ScanHit& hit : scan.hits) {
    if (is_alive(hit, process.memory())) busy.insert(insides[hit.range_index].second);
  }
  std::vector<bool> in_use;
  for (const Site* site : waiting) in_use.push_back(busy.contains(site->placed.group));
  return in_use;
}

void Installation::refuse_deferred() {
  for (Site& site : sites_) {
    if (site.state != State::kWaiting) continue;
    site.state = State::kRefused;
    refuse(site.placed, "a thread is in the midst of it",
           "its stack holds an address inside the window");
  }
}

void Installation::refuse(const PlacedSite& site, const std::string& reason,
                          const std::string& detail) {
  for (const isa::PlannedPoint& point : site.plan->points) {
    refused_.push_back(
        {plans_.uses[point.tag].probe, site.module, site.site + point.offset, reason, detail});
  }
}

Result<std::size_t> Installation::disarm(target::StoppedProcess& process) {
  TL_TRY(lower_semaphores(process.memory()));
  const std::vector<Site*> armed = sites_in(State::kArmed);
  GroupNumbers groups;
  std::vector<Piece> pieces;
  for (const Site* site : armed)
    add_pieces(site->placed, Way::kRestore, groups.of(site->placed), pieces);
  TL_TRY_ASSIGN(const std::vector<bool> replaced,
                replace_pieces(process.memory(), std::move(pieces)));
  std::size_t left = 0;
  for (Site* site : armed) {
    if (replaced[groups.of(site->placed)]) {
      site->state = State::kRefused;
    } else {
      ++left;
    }
  }
  return left;
}

std::vector<target::AddressRange> Installation::code() const {
  std::vector<target::AddressRange> ranges;
  for (const Region& region : regions_) {
    if (region.region) ranges.push_back(region.region->range());
  }
  std::ranges::sort(ranges);
  return ranges;
}

Result<bool> Installation::release(target::StoppedProcess& process) {
  const std::vector<target::AddressRange> ranges = code();
  if (ranges.empty()) return true;
  if (armed_count() != 0)
    return false;  // somebody patched over us: what leads into a region must find it there
  TL_TRY_ASSIGN(const bool unused, nobody_inside(process, ranges));
  if (!unused) return false;
  TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
  for (Region& region : regions_) {
    if (!region.region) continue;
    TL_TRY(region.region->remove(calls));
    region.region.reset();
  }
  TL_TRY(calls.end());
  return true;
}

void Installation::forget_module(std::size_t module) {
  for (Site& site : sites_) {
    if (site.placed.module == module && site.state != State::kRefused) site.state = State::kGone;
  }
  std::erase_if(raised_, [&](const auto& known) { return known.second.module == module; });
}

void Installation::expect_module(std::size_t module) {
  for (Site& site : sites_) {
    if (site.placed.module == module && site.state == State::kGone) site.state = State::kWaiting;
  }
}

bool Installation::was_replaced(std::size_t module, const target::Memory& memory) const {
  for (const Site& site : sites_) {
    if (site.placed.module != module || site.state != State::kArmed) continue;
    std::vector<std::byte> there(site.placed.patch.size());
    return memory.read(site.placed.site, there) &&
           std::ranges::equal(there, std::span(site.placed.plan->original).first(there.size()));
  }
  return false;
}

bool Installation::is_idle() const {
  const auto in = [](State state) { return [state](const Site& s) { return s.state == state; }; };
  return std::ranges::any_of(sites_, in(State::kGone)) &&
         std::ranges::none_of(sites_, in(State::kArmed)) &&
         std::ranges::none_of(sites_, in(State::kWaiting));
}

std::vector<target::AddressRange> Installation::text_pages(std::uint64_t largest) const {
  std::vector<Piece> pieces;
  for (const Site& site : sites_) {
    if (site.state != State::kGone) add_pieces(site.placed, Way::kArm, 0, pieces);
  }
  std::vector<target::AddressRange> parts;
  for (const target::AddressRange& pages : pages_of(pieces)) {
    for (RemoteAddr start = pages.start; start < pages.end; start += largest) {
      parts.push_back({start, std::min(start + largest, pages.end)});
    }
  }
  return parts;
}

std::size_t Installation::armed_count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(sites_, [](const Site& site) { return site.state == State::kArmed; }));
}

target::Traps Installation::traps() const {
  target::Traps traps;
  for (const Site& site : sites_) {
    const PlacedSite& placed = site.placed;
    if (site.state != State::kArmed || placed.plan->form != isa::SiteForm::kTrap) continue;
    traps[placed.site] = {placed.trampoline, placed.plan->original};
  }
  return traps;
}

target::Traps Installation::waiting_traps() const {
  target::Traps traps;
  for (const Site& site : sites_) {
    if (site.state == State::kWaiting && site.placed.plan->form == isa::SiteForm::kTrap)
      traps[site.placed.site] = {{}, site.placed.plan->original};
  }
  return traps;
}

void Installation::forget() {
  for (Region& region : regions_) {
    if (region.region) region.region->forget();
    region.region.reset();
  }
  for (Site& site : sites_) site.state = State::kRefused;
  raised_.clear();
}

}  // namespace trapline::probes
