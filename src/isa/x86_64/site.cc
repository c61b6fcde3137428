#include "isa/x86_64/site.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "isa/x86_64/relocate.h"
#include "isa/x86_64/return_ways.h"
#include "isa/x86_64/short_site.h"
#include "isa/x86_64/window.h"

namespace trapline::isa {
namespace {

bool can_merge(const SitePlan& a, const SitePlan& b) {
  if (b.site - a.site + b.window_size > kMaxWindow) return false;
  // Both see the same bytes, but functions that overlap may see other instructions in them.
  if (b.site - a.site > a.code_size) return false;
  return b.site - a.site == a.code_size || displaces(a, b.site);
}

// b starts in a. No target is strictly inside the union: every byte of it but the first is strictly
// inside a or b, or it is the start of b, which is strictly inside a.
void merge(SitePlan& a, const SitePlan& b) {
  const std::uint64_t distance = b.site - a.site;
  for (const Instruction& i : b.displaced) {
    if (i.address >= a.site.value() + a.code_size) a.displaced.push_back(i);
  }
  const std::uint64_t window = std::max<std::uint64_t>(a.window_size, distance + b.window_size);
  for (std::uint64_t n = a.window_size; n < window; ++n)
    a.original.push_back(b.original[n - distance]);
  a.window_size = static_cast<std::uint8_t>(window);
  a.code_size =
      static_cast<std::uint8_t>(std::max<std::uint64_t>(a.code_size, distance + b.code_size));
  a.form = a.window_size > a.code_size ? SiteForm::kJump5Padding : SiteForm::kJump5;
  // A ret that stays is the last of any window that holds it, as branches lead to it.
  a.keeps_last = a.keeps_last || b.keeps_last;
  for (PlannedPoint point : b.points) {
    point.offset = static_cast<std::uint8_t>(point.offset + distance);
    a.points.push_back(point);
  }
}

// At one instruction first the entry (a function may consist of a ret alone), then the instruction,
// then that it leaves the function.
int rank(PointKind kind) {
  if (kind == PointKind::kEntry) return 0;
  return is_anywhere(kind) ? 1 : 2;
}

void sort_points(SitePlan& plan) {
  std::ranges::sort(plan.points, {}, [](const PlannedPoint& p) {
    return std::tuple(p.offset, rank(p.kind), p.tag);
  });
}

struct Candidate {
  SitePlan plan;
  const PointRequest* request = nullptr;
};

using Unplaced = std::vector<std::pair<const PointRequest*, Obstacle>>;

// What came of all points together: `sites` by address.
struct Outcome {
  std::vector<SitePlan> sites;
  Unplaced refused;
};

// Merges windows that meet, in order of address. One that cannot be merged gives its window up: its
// point lies in the other window, or is looked at again later.
void merge_windows(std::vector<Candidate> candidates, Outcome& out) {
  std::ranges::sort(candidates, {},
                    [](const Candidate& c) { return std::pair(c.plan.site, c.request); });
  for (Candidate& c : candidates) {
    SitePlan* last = out.sites.empty() ? nullptr : &out.sites.back();
    if (last == nullptr || c.plan.site >= last->site + last->window_size) {
      out.sites.push_back(std::move(c.plan));
    } else if (can_merge(*last, c.plan)) {
      merge(*last, c.plan);
    } else if (holds(*last, *c.request)) {
      add_point(*last, *c.request);
    } else {
      out.refused.emplace_back(c.request, Obstacle{Refusal::kTooLong, last->site});
    }
  }
}

// Whether no site's window reaches into [begin, end).
bool is_free(const std::vector<SitePlan>& sites, LinkAddr begin, LinkAddr end) {
  const auto after = std::ranges::lower_bound(sites, begin, {}, &SitePlan::site);
  if (after != sites.end() && after->site < end) return false;
  return after == sites.begin() || std::prev(after)->site + std::prev(after)->window_size <= begin;
}

// A point whose best window meets another one that it cannot be merged with may have a second best.
bool place_apart(const ModuleCode& module, const PointRequest& request,
                 std::vector<SitePlan>& sites) {
  const WindowFinder finder(module, *request.function);
  for (const Window& window : finder.all_for_jump(request)) {
    if (!is_free(sites, window.begin, window.end)) continue;
    SitePlan plan = make_plan(module, *request.function, window);
    add_point(plan, request);
    sites.insert(std::ranges::upper_bound(sites, plan.site, {}, &SitePlan::site), std::move(plan));
    return true;
  }
  return false;
}

// A point that got no window of its own may lie in another's.
bool place_in_existing(const PointRequest& request, std::vector<SitePlan>& sites) {
  auto it = std::ranges::upper_bound(sites, request.at, {}, &SitePlan::site);
  if (it == sites.begin() || !holds(*--it, request)) return false;
  add_point(*it, request);
  return true;
}

// What no five-byte jump fits at.
void place_short(const ModuleCode& module, const Unplaced& unplaced, Outcome& out) {
  if (unplaced.empty()) return;
  std::vector<const PointRequest*> points;
  for (const auto& [point, obstacle] : unplaced) points.push_back(point);
  ShortSites short_sites(module, out.sites);
  for (const std::size_t n : short_sites.place(points)) out.refused.push_back(unplaced[n]);
  std::ranges::move(short_sites.take(), std::back_inserter(out.sites));
  std::ranges::sort(out.sites, {}, &SitePlan::site);
}

// All points of a module. A return that finds no place is replaced by the ways to it, if these are
// known and all find theirs.
class Planner {
 public:
  Planner(const ModuleCode& module, std::span<const PointRequest> points)
      : module_(module), points_(points), ways_(points.size()), given_up_(points.size(), false) {
    for (const PointRequest& point : points) attempts_.push_back(attempt(point));
  }

  // Each round but the last replaces a return by its ways or gives these up for good.
  SiteSet run() {
    Outcome outcome = round();
    while (change_course(outcome)) outcome = round();
    SiteSet out;
    for (const auto& [point, obstacle] : outcome.refused)
      out.refused.push_back({*point, obstacle.reason, obstacle.where, describe(*point, obstacle)});
    out.sites = std::move(outcome.sites);
    for (SitePlan& plan : out.sites) sort_points(plan);
    return out;
  }

 private:
  // A way's point leads back to the return that it stands for.
  struct Way {
    PointRequest point;
    Attempt attempt;
  };

  Attempt attempt(const PointRequest& point) const {
    return WindowFinder(module_, *point.function).for_jump(point);
  }

  Outcome round() {
    Outcome out;
    std::vector<Candidate> candidates;
    Unplaced unplaced;
    owner_.clear();
    const auto add = [&](std::size_t owner, const PointRequest& point, const Attempt& attempt) {
      owner_[&point] = owner;
      if (!attempt.window) {
        unplaced.emplace_back(&point, attempt.obstacle);
        return;
      }
      candidates.push_back({make_plan(module_, *point.function, *attempt.window), &point});
      add_point(candidates.back().plan, point);
    };
    for (std::size_t n = 0; n < points_.size(); ++n) {
      if (ways_[n].empty()) add(n, points_[n], attempts_[n]);
      for (const Way& way : ways_[n]) add(n, way.point, way.attempt);
    }
    merge_windows(std::move(candidates), out);
    unplaced.insert(unplaced.end(), out.refused.begin(), out.refused.end());
    out.refused.clear();
    std::erase_if(unplaced, [&](const auto& u) {
      return place_in_existing(*u.first, out.sites) || place_apart(module_, *u.first, out.sites);
    });
    place_short(module_, unplaced, out);
    return out;
  }

  bool change_course(const Outcome& outcome) {
    bool changed = false;
    for (const auto& [point, obstacle] : outcome.refused) {
      const std::size_t n = owner_.at(point);
      if (given_up_[n]) continue;
      if (point != &points_[n]) {  // one of its ways
        given_up_[n] = true;
        changed = true;
        continue;
      }
      const auto ways = ways_to_return(module_, *point);
      if (!ways || ways->empty()) {
        given_up_[n] = true;
        continue;
      }
      for (const PointRequest& way : *ways) ways_[n].push_back({way, attempt(way)});
      changed = true;
    }
    for (std::size_t n = 0; changed && n < points_.size(); ++n) {
      if (given_up_[n]) ways_[n].clear();
    }
    return changed;
  }

  const ModuleCode& module_;
  std::span<const PointRequest> points_;
  std::vector<Attempt> attempts_;
  std::vector<std::vector<Way>> ways_;  // by point; empty: the point itself
  std::vector<bool> given_up_;
  std::unordered_map<const PointRequest*, std::size_t> owner_;  // index in points_
};

}  // namespace

std::string_view to_text(SiteForm form) {
  switch (form) {
    case SiteForm::kJump5:
      return "jump";
    case SiteForm::kJump5Padding:
      return "padding";
    case SiteForm::kIsland:
      return "island";
    case SiteForm::kTrap:
      return "trap";
  }
  return "unknown";
}

std::string_view to_text(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNotCode:
      return "not code";
    case Refusal::kUndecodable:
      return "code that cannot be followed";
    case Refusal::kBranchIntoWindow:
      return "branch into the patched bytes";
    case Refusal::kCall:
      return "call instruction";
    case Refusal::kSyscall:
      return "syscall instruction";
    case Refusal::kTrapInstruction:
      return "trap instruction";
    case Refusal::kPrivileged:
      return "privileged instruction";
    case Refusal::kTransaction:
      return "transaction start";
    case Refusal::kTooShort:
      return "no room for a jump";
    case Refusal::kUnrelocatable:
      return "instruction that cannot be relocated";
    case Refusal::kUnknownJumps:
      return "indirect jump in the function that may lead here";
    case Refusal::kUnprovenJump:
      return "indirect jump that may leave the function";
    case Refusal::kRestartableSequence:
      return "restartable sequence";
    case Refusal::kOutOfReach:
      return "operand out of reach of the trampoline";
    case Refusal::kTooLong:
      return "too many probes in one place";
  }
  return "unknown";
}

std::optional<Refusal> exits_refused(const FunctionCode& function) {
  if (!function.decodable) return Refusal::kUndecodable;
  if (function.has_unproven_jump()) return Refusal::kUnprovenJump;
  return std::nullopt;
}

SiteSet plan_sites(const ModuleCode& module, std::span<const PointRequest> points) {
  return Planner(module, points).run();
}

PointRequest entry_point(const FunctionCode& function, std::uint32_t tag) {
  return {.at = function.parts.empty() ? LinkAddr() : function.parts.front().begin,
          .kind = PointKind::kEntry,
          .function = &function,
          .tag = tag};
}

std::vector<PointRequest> exit_points(const FunctionCode& function, std::uint32_t tag) {
  std::vector<PointRequest> out;
  for (const FunctionExit& exit : function.exits) {
    out.push_back({.at = exit.at,
                   .kind = exit.kind == ExitKind::kRet ? PointKind::kReturn : PointKind::kTail,
                   .function = &function,
                   .tag = tag});
  }
  return out;
}

TrapPlan plan_trap_site(const ModuleCode& module, std::span<const PointRequest> points) {
  TrapPlan out;
  if (points.empty()) return out;
  const PointRequest& first = points.front();
  const auto index = first.function->find(first.at);
  if (!index) {
    out.reason = Refusal::kNotCode;
    return out;
  }
  const Instruction& i = first.function->instructions[*index];
  if (const auto reason = unrelocatable(i); reason && !is_relocatable_call(i)) {
    out.reason = *reason;
    return out;
  }
  if (module.excluded(LinkAddr(i.address), LinkAddr(i.end()))) {
    out.reason = Refusal::kRestartableSequence;
    return out;
  }
  for (const PointRequest& point : points) {
    const bool exit = point.kind == PointKind::kReturn || point.kind == PointKind::kTail;
    const auto reason = exit ? exits_refused(*point.function) : std::nullopt;
    if (reason) {
      out.reason = *reason;
      return out;
    }
  }
  Window w{.first = *index,
           .count = 1,
           .begin = LinkAddr(i.address),
           .code_end = LinkAddr(i.end()),
           .end = LinkAddr(i.end())};
  out.plan = make_plan(module, *first.function, w);
  out.plan.form = SiteForm::kTrap;
  out.plan.patch_size = 1;
  for (const PointRequest& point : points) add_point(out.plan, point);
  sort_points(out.plan);
  out.possible = true;
  return out;
}

}  // namespace trapline::isa
