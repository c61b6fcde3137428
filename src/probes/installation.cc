#include "probes/installation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "probes/in_use.h"
#include "probes/text_patch.h"

namespace trapline::probes {

namespace {

// One region serves all text within this span, which leaves room to find a gap within a jump's
// reach (2 GiB).
constexpr std::uint64_t kRegionSpan = std::uint64_t{1} << 30;

// A piece that turns planned bytes into a jump (kArm), or the jump back into what was there.
Piece arming_piece(const PlacedSite& site) { return {site.site, site.plan->original, site.patch}; }

Piece restoring_piece(const PlacedSite& site) {
  return {site.site, site.patch, std::span(site.plan->original).first(site.plan->patch_size)};
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

void Installation::group_sites() {
  std::vector<PlacedSite> all;
  for (const ModuleSites& module : plans_.modules) {
    const LoadBias bias = modules_.module(module.module).bias;
    for (const isa::SitePlan& plan : module.sites)
      all.push_back({&plan, bias.to_remote(plan.site), module.module, {}});
  }
  std::ranges::sort(all, {}, &PlacedSite::site);
  for (PlacedSite& site : all) {
    const RemoteAddr end = site.site + site.plan->window_size;
    if (regions_.empty() || end - regions_.back().text.start > kRegionSpan) {
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
    for (const PlacedSite& site : region.contents.sites) pieces.push_back(arming_piece(site));
    for (const target::AddressRange& pages : pages_of(pieces)) bytes += pages.size();
  }
  return bytes;
}

Result<> Installation::reserve(target::RemoteCalls& calls) {
  for (Region& region : regions_) {
    TL_TRY_ASSIGN(target::CodeRegion mapped,
                  target::CodeRegion::allocate(calls, region.text, region_bound(region.contents)));
    region.region = std::move(mapped);
  }
  return {};
}

Result<> Installation::prepare(target::Memory& memory, std::span<const ProbeBinding> bindings,
                               std::uint64_t arena_size) {
  for (Region& region : regions_) {
    TL_CHECK(region.region.has_value());
    RegionImage image = build_region(region.region->range().start, std::move(region.contents),
                                     plans_.uses, bindings, modules_, arena_size);
    for (PlacedSite& site : image.sites) sites_.push_back({std::move(site), State::kWaiting});
    refused_.insert(refused_.end(), image.refused.begin(), image.refused.end());
    // Some kernels let only the tracer of a stopped thread write: then arm() does it.
    const auto written = memory.write(region.region->range().start, image.bytes);
    region.written = written.has_value();
    if (!written) {
      if (written.error().code() == ErrorCode::kTargetGone) return written.error();
      region.image = std::move(image.bytes);
    }
  }
  copy_pages(memory);
  return {};
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
  std::vector<Site*> waiting;
  for (Site& site : sites_) {
    if (site.state == State::kWaiting) waiting.push_back(&site);
  }
  TL_TRY_ASSIGN(const std::vector<bool> in_use, sites_in_use(process, waiting));
  std::vector<Piece> pieces;
  std::vector<Site*> patched;
  ArmReport report;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (in_use[i]) {
      ++report.deferred;
      continue;
    }
    pieces.push_back(arming_piece(waiting[i]->placed));
    patched.push_back(waiting[i]);
  }
  TL_TRY_ASSIGN(const std::vector<bool> replaced, replace_pieces(process.memory(), pieces));
  for (std::size_t i = 0; i < patched.size(); ++i) {
    if (replaced[i]) {
      patched[i]->state = State::kArmed;
      ++report.armed;
    } else {
      patched[i]->state = State::kRefused;
      refuse(patched[i]->placed, "other bytes in memory than in the file",
             "a debugger's breakpoint, a kernel uprobe, or code that changes itself");
    }
  }
  return report;
}

// Which windows a thread is in the midst of, or will come back to.
Result<std::vector<bool>> Installation::sites_in_use(target::StoppedProcess& process,
                                                     const std::vector<Site*>& waiting) {
  std::vector<target::AddressRange> windows;
  std::vector<target::AddressRange> insides;
  for (const Site* site : waiting) {
    const RemoteAddr start = site->placed.site;
    windows.push_back({start, start + site->placed.plan->window_size});
    insides.push_back({start + 1, start + site->placed.plan->window_size});
  }
  std::vector<bool> in_use(waiting.size(), false);
  TL_TRY(target::move_out(process, windows));
  TL_TRY_ASSIGN(const target::ScanResult scan, target::scan_threads(process, insides));
  for (const target::ScanHit& hit : scan.hits) {
    if (is_alive(hit, process.memory())) in_use[hit.range_index] = true;
  }
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
  std::vector<Piece> pieces;
  std::vector<Site*> armed;
  for (Site& site : sites_) {
    if (site.state != State::kArmed) continue;
    pieces.push_back(restoring_piece(site.placed));
    armed.push_back(&site);
  }
  TL_TRY_ASSIGN(const std::vector<bool> replaced, replace_pieces(process.memory(), pieces));
  std::size_t left = 0;
  for (std::size_t i = 0; i < armed.size(); ++i) {
    if (replaced[i]) {
      armed[i]->state = State::kRefused;
    } else {
      ++left;
    }
  }
  return left;
}

Result<bool> Installation::release(target::StoppedProcess& process) {
  std::vector<target::AddressRange> ranges;
  for (const Region& region : regions_) {
    if (region.region) ranges.push_back(region.region->range());
  }
  if (ranges.empty()) return true;
  std::ranges::sort(ranges);
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

std::vector<target::AddressRange> Installation::text_pages(std::uint64_t largest) const {
  std::vector<Piece> pieces;
  for (const Site& site : sites_) pieces.push_back(arming_piece(site.placed));
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

void Installation::forget() {
  for (Region& region : regions_) {
    if (region.region) region.region->forget();
    region.region.reset();
  }
  for (Site& site : sites_) site.state = State::kRefused;
}

}  // namespace trapline::probes
