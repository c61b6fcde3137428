#include "isa/x86_64/short_site.h"

#include <algorithm>
#include <iterator>

namespace trapline::isa {
namespace {

// Of a `jmp rel8`, from its end.
constexpr std::uint64_t kBackward = 128;
constexpr std::uint64_t kForward = 127;
// A host that holds one island.
constexpr std::size_t kHostSize = 2 * kJumpSize;
// Functions beyond this are not looked at for what surrounds a site.
constexpr std::uint64_t kMaxNeighbour = 1 << 20;

}  // namespace

bool Claims::is_free(LinkAddr begin, LinkAddr end) const {
  auto it = ranges_.lower_bound(begin);
  if (it != ranges_.end() && it->first < end) return false;
  return it == ranges_.begin() || std::prev(it)->second <= begin;
}

ShortSites::ShortSites(const ModuleCode& module, std::span<const SitePlan> sites)
    : module_(module) {
  for (const SitePlan& site : sites) claims_.add(site.site, site.site + site.window_size);
}

// First every point takes its window, so that no host is laid where one is needed.
std::vector<std::size_t> ShortSites::place(std::span<const PointRequest* const> points) {
  std::vector<std::size_t> left;
  std::vector<Pending> pending;
  for (std::size_t n = 0; n < points.size(); ++n) {
    const WindowFinder finder(module_, *points[n]->function);
    pending.push_back({points[n], finder.for_short_jump(*points[n]), 0, n});
    claim_window(pending.back(), 0);
  }
  for (Pending& p : pending) {
    if (!place(p)) left.push_back(p.index);
  }
  return left;
}

bool ShortSites::claim_window(Pending& pending, std::size_t from) {
  for (pending.chosen = from; pending.chosen < pending.windows.size(); ++pending.chosen) {
    const Window& w = pending.windows[pending.chosen];
    if (!claims_.is_free(w.begin, w.end)) continue;
    claims_.add(w.begin, w.end);
    return true;
  }
  return false;
}

bool ShortSites::place(Pending& pending) {
  while (pending.chosen < pending.windows.size()) {
    const Window& w = pending.windows[pending.chosen];
    if (const auto spot = find_spot(pending, reach_from(w.begin + kShortJumpSize))) {
      add_site(pending, *spot);
      return true;
    }
    claims_.remove(w.begin);
    claim_window(pending, pending.chosen + 1);
  }
  return add_to_existing(*pending.point);
}

// Within the section.
ShortSites::Reach ShortSites::reach_from(LinkAddr end) const {
  const CodeRange section = module_.section_around(end - 1);
  const bool first = end - section.begin < kBackward;
  const bool last = section.end - end < kForward;
  return {first ? section.begin : end - kBackward, last ? section.end - 1 : end + kForward};
}

// Another point's window may hold this one's instruction.
bool ShortSites::add_to_existing(const PointRequest& point) {
  if (point.kind != PointKind::kEntry && exits_refused(*point.function)) return false;
  const auto site =
      std::ranges::find_if(sites_, [&](const SitePlan& plan) { return displaces(plan, point.at); });
  if (site == sites_.end()) return false;
  add_point(*site, point);
  return true;
}

std::optional<ShortSites::Spot> ShortSites::find_spot(const Pending& pending, Reach reach) {
  if (const auto at = in_padding(reach)) return Spot{*at, kNoHost};
  if (const auto spot = in_host(reach)) return spot;
  if (const auto spot = in_new_host(*pending.point->function, reach)) return spot;
  for (const LinkAddr at : {reach.first, reach.last}) {
    const FunctionCode* const neighbour = function_at(at);
    if (neighbour == nullptr || !module_.is_function(neighbour->parts.front().begin)) continue;
    if (const auto spot = in_new_host(*neighbour, reach)) return spot;
  }
  return std::nullopt;
}

std::optional<LinkAddr> ShortSites::in_padding(Reach reach) {
  LinkAddr start = module_.next_start(reach.first);
  for (;;) {
    if (const auto gap = usable_gap(start)) {
      if (gap->begin > reach.last) return std::nullopt;
      for (LinkAddr at = std::max(gap->begin, reach.first);
           at <= reach.last && at + kJumpSize <= gap->end; at = at + 1) {
        if (claims_.is_free(at, at + kJumpSize)) return at;
      }
    }
    if (start > reach.last) return std::nullopt;
    const LinkAddr next = module_.next_start(start);
    if (next <= start) return std::nullopt;  // the end of the section
    start = next;
  }
}

// The padding before `next_start`, if it is certain that control never comes there: what precedes
// it ends the flow, and nothing refers into it.
std::optional<CodeRange> ShortSites::usable_gap(LinkAddr next_start) {
  const auto [known, fresh] = gaps_.try_emplace(next_start);
  if (!fresh) return known->second;
  const auto gap = module_.gap_before(next_start);
  if (!gap || gap->size() < kJumpSize) return std::nullopt;
  const bool referred =
      module_.any_target(gap->begin, gap->end) || module_.excluded(gap->begin, gap->end);
  if (referred || !is_padding(module_, gap->begin, gap->end)) return std::nullopt;
  const FunctionCode* const before = function_at(gap->begin - 1);
  if (before == nullptr || !before->decodable) return std::nullopt;
  const auto last = std::ranges::find(before->instructions, gap->begin.value(), &Instruction::end);
  if (last == before->instructions.end() || !last->ends_flow()) return std::nullopt;
  return known->second = gap;
}

std::optional<ShortSites::Spot> ShortSites::in_host(Reach reach) {
  for (std::size_t n = 0; n < hosts_.size(); ++n) {
    const Host& host = hosts_[n];
    const bool room = host.free + kJumpSize <= host.plan.site + host.plan.window_size;
    if (room && host.free >= reach.first && host.free <= reach.last) return Spot{host.free, n};
  }
  return std::nullopt;
}

std::optional<ShortSites::Spot> ShortSites::in_new_host(const FunctionCode& function, Reach reach) {
  const WindowFinder finder(module_, function);
  const LinkAddr lowest = reach.first.value() > kMaxWindow ? reach.first - kMaxWindow : LinkAddr();
  auto it =
      std::ranges::lower_bound(function.instructions, lowest.value(), {}, &Instruction::address);
  for (; it != function.instructions.end() && it->address + kJumpSize <= reach.last.value(); ++it) {
    const LinkAddr island = LinkAddr(it->address) + kJumpSize;
    if (island < reach.first || it->kind == Kind::kEndbr) continue;
    const auto first = static_cast<std::size_t>(it - function.instructions.begin());
    const Attempt attempt = finder.from(first, first, kHostSize);
    if (!attempt.window || attempt.window->end > attempt.window->code_end) continue;
    if (!claims_.is_free(attempt.window->begin, attempt.window->end)) continue;
    Host host{make_plan(module_, function, *attempt.window), island};
    host.plan.group = ++groups_;
    claims_.add(attempt.window->begin, attempt.window->end);
    hosts_.push_back(std::move(host));
    return Spot{island, hosts_.size() - 1};
  }
  return std::nullopt;
}

const FunctionCode* ShortSites::function_at(LinkAddr at) {
  const auto range = module_.code_around(at);
  if (!range || range->size() > kMaxNeighbour) return nullptr;
  const auto [known, fresh] = functions_.try_emplace(range->begin);
  if (fresh) {
    store_.push_back(analyze_function(module_, *range));
    known->second = &store_.back();
  }
  return known->second;
}

void ShortSites::add_site(const Pending& pending, const Spot& spot) {
  const Window& w = pending.windows[pending.chosen];
  SitePlan plan = make_plan(module_, *pending.point->function, w);
  plan.form = SiteForm::kIsland;
  plan.patch_size = kShortJumpSize;
  plan.island.at = spot.at;
  const auto bytes = module_.bytes_at(spot.at).first(kJumpSize);
  plan.island.original.assign(bytes.begin(), bytes.end());
  if (spot.host == kNoHost) {
    claims_.add(spot.at, spot.at + kJumpSize);
    plan.group = ++groups_;
  } else {
    Host& host = hosts_[spot.host];
    plan.island.hosted = true;
    plan.group = host.plan.group;
    host.free = host.free + kJumpSize;
  }
  add_point(plan, *pending.point);
  sites_.push_back(std::move(plan));
}

std::vector<SitePlan> ShortSites::take() {
  for (Host& host : hosts_) sites_.push_back(std::move(host.plan));
  return std::move(sites_);
}

}  // namespace trapline::isa
