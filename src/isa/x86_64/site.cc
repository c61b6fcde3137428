#include "isa/x86_64/site.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <tuple>
#include <utility>

#include "isa/x86_64/relocate.h"

namespace trapline::isa {
namespace {

// How far a window may start before its point. A ret needs one to three instructions; more would
// only move more code into the trampoline.
constexpr std::size_t kMaxBefore = 8;

struct Obstacle {
  Refusal reason = Refusal::kTooShort;
  LinkAddr where;
};

// A window of consecutive instructions, not yet a plan.
struct Window {
  std::size_t first = 0;  // indices in the function's instructions
  std::size_t count = 0;
  LinkAddr begin;
  LinkAddr code_end;
  LinkAddr end;  // code_end, or begin + 5 with padding
  bool covers_endbr = false;
};

struct Attempt {
  std::optional<Window> window;
  Obstacle obstacle;
};

bool is_padding(const ModuleCode& module, LinkAddr begin, LinkAddr end) {
  LinkAddr at = begin;
  while (at < end) {
    const auto i = decode(module.bytes_at(at), at.value());
    if (!i || (i->kind != Kind::kNop && i->kind != Kind::kInt3)) return false;
    at += i->length;
  }
  return true;
}

class Planner {
 public:
  Planner(const ModuleCode& module, const PointRequest& point)
      : module_(module), function_(*point.function), code_(function_.instructions), point_(point) {}

  Attempt run() {
    const auto index = function_.find(point_.at);
    if (!index)
      return refuse(module_.in_code(point_.at) ? Refusal::kUndecodable : Refusal::kNotCode,
                    point_.at);
    if (point_.kind == PointKind::kReturn || point_.kind == PointKind::kTail) {
      if (const auto reason = exits_refused(function_)) {
        return refuse(*reason,
                      *reason == Refusal::kUndecodable ? function_.undecodable_at : point_.at);
      }
    }
    if (point_.kind == PointKind::kEntry && code_[*index].kind == Kind::kEndbr) {
      return entry_with_endbr(*index);
    }
    return search(*index);
  }

 private:
  static Attempt refuse(Refusal reason, LinkAddr where) { return {{}, {reason, where}}; }

  // Behind the endbr64, unless a branch leads there (a loop would fire the probe at every turn) or
  // nothing fits.
  Attempt entry_with_endbr(std::size_t index) {
    const LinkAddr behind(code_[index].end());
    const bool next = index + 1 < code_.size() && code_[index + 1].address == behind.value();
    if (next && !module_.any_target(behind, behind + 1) && !in_table(behind, behind + 1)) {
      Attempt attempt = from(index + 1, index + 1);
      if (attempt.window) return attempt;
    }
    Attempt attempt = from(index, index);
    if (attempt.window) attempt.window->covers_endbr = true;
    return attempt;
  }

  // From the point on, else from one, two, ... instructions before it. What is reported is the
  // obstacle of the last attempt that still stood in line.
  Attempt search(std::size_t index) {
    Attempt attempt = from(index, index);
    if (attempt.window || point_.kind == PointKind::kEntry) return attempt;
    for (std::size_t back = 1; back <= std::min(kMaxBefore, index); ++back) {
      const Instruction& before = code_[index - back];
      if (before.end() != code_[index - back + 1].address || before.ends_flow()) break;
      if (const auto reason = unrelocatable(before)) {
        if (attempt.obstacle.reason == Refusal::kTooShort) {
          attempt.obstacle = {*reason, LinkAddr(before.address)};
        }
        break;
      }
      Attempt earlier = from(index - back, index);
      if (earlier.window) return earlier;
      const bool short_before = attempt.obstacle.reason == Refusal::kTooShort;
      if (short_before) attempt.obstacle = earlier.obstacle;
      // A longer window holds the same target.
      if (earlier.obstacle.reason == Refusal::kBranchIntoWindow && short_before) break;
    }
    return attempt;
  }

  // The window that starts at `first` and holds `last`.
  Attempt from(std::size_t first, std::size_t last) {
    Window w;
    w.first = first;
    w.begin = LinkAddr(code_[first].address);
    w.code_end = w.begin;
    std::size_t n = first;
    for (;; ++n) {
      if (n >= code_.size() || code_[n].address != w.code_end.value()) {
        return refuse(Refusal::kTooShort, w.code_end);
      }
      const Instruction& i = code_[n];
      // A call may end a window: it returns to what follows the window.
      const bool ends_in_call =
          is_relocatable_call(i) && n >= last && i.end() - w.begin.value() >= kJumpSize;
      if (const auto reason = unrelocatable(i); reason && !ends_in_call) {
        return refuse(*reason, LinkAddr(i.address));
      }
      w.code_end = LinkAddr(i.end());
      ++w.count;
      if (n >= last && (w.code_end - w.begin >= kJumpSize || i.ends_flow())) break;
      if (i.ends_flow()) return refuse(Refusal::kTooShort, w.code_end);
    }
    w.end = std::max(w.code_end, w.begin + kJumpSize);
    return check(w);
  }

  Attempt check(const Window& w) {
    if (module_.excluded(w.begin, w.end)) return refuse(Refusal::kRestartableSequence, w.begin);
    if (w.end > w.code_end && !is_padding(module_, w.code_end, w.end)) {
      return refuse(Refusal::kTooShort, w.code_end);
    }
    LinkAddr at = w.begin + 1;
    while (const auto target = module_.first_target(at, w.end)) {
      if (!is_private(*target, w)) return refuse(Refusal::kBranchIntoWindow, *target);
      at = *target + 1;
    }
    if (const auto target = table_target(w.begin + 1, w.end)) {
      return refuse(Refusal::kBranchIntoWindow, *target);
    }
    // An indirect jump with unknown targets. It cannot lead into the first window of the function:
    // a label there would lie between the function's entry and the code that sets up its frame,
    // which compilers never make a label of a switch or computed goto of (those are reached from
    // the body only). Elsewhere it might lead to any instruction, so only a window of a single one
    // is safe.
    const bool safe_start = function_.sure && starts_function(w);
    if (function_.unknown_targets && w.count > 1 && !safe_start) {
      return refuse(Refusal::kUnknownJumps, w.begin);
    }
    return {w, {}};
  }

  bool starts_function(const Window& w) const {
    const LinkAddr begin = function_.parts.front().begin;
    return w.begin == begin || (code_[w.first].address == begin.value() + 4 && w.first > 0 &&
                                code_[w.first - 1].kind == Kind::kEndbr);
  }

  // The one branch to `target` lies in the window itself, and `target` is an instruction of it:
  // both move together.
  bool is_private(LinkAddr target, const Window& w) const {
    if (!module_.single_branch_to(target)) return false;
    bool source = false;
    bool instruction = false;
    for (std::size_t n = w.first; n < w.first + w.count; ++n) {
      source = source || (code_[n].is_direct_branch() && code_[n].target == target.value());
      instruction = instruction || code_[n].address == target.value();
    }
    return source && instruction;
  }

  std::optional<LinkAddr> table_target(LinkAddr begin, LinkAddr end) const {
    const auto it = std::ranges::lower_bound(function_.table_targets, begin);
    if (it == function_.table_targets.end() || *it >= end) return std::nullopt;
    return *it;
  }
  bool in_table(LinkAddr begin, LinkAddr end) const { return table_target(begin, end).has_value(); }

  const ModuleCode& module_;
  const FunctionCode& function_;
  const std::vector<Instruction>& code_;
  const PointRequest& point_;
};

std::string describe(const PointRequest& point, const Obstacle& obstacle) {
  char at[64];
  const bool after = obstacle.where >= point.at;
  const std::uint64_t distance = after ? obstacle.where - point.at : point.at - obstacle.where;
  std::snprintf(at, sizeof(at), " at %c0x%llx (0x%llx)", after ? '+' : '-',
                static_cast<unsigned long long>(distance),
                static_cast<unsigned long long>(obstacle.where.value()));
  return std::string(to_text(obstacle.reason)) + at;
}

SitePlan make_plan(const ModuleCode& module, const FunctionCode& function, const Window& w) {
  SitePlan plan;
  plan.site = w.begin;
  plan.form = w.end > w.code_end ? SiteForm::kJump5Padding : SiteForm::kJump5;
  plan.patch_size = kJumpSize;
  plan.code_size = static_cast<std::uint8_t>(w.code_end - w.begin);
  plan.window_size = static_cast<std::uint8_t>(w.end - w.begin);
  plan.covers_endbr = w.covers_endbr;
  const auto bytes = module.bytes_at(w.begin).first(plan.window_size);
  plan.original.assign(bytes.begin(), bytes.end());
  const auto first = function.instructions.begin() + static_cast<std::ptrdiff_t>(w.first);
  plan.displaced.assign(first, first + static_cast<std::ptrdiff_t>(w.count));
  return plan;
}

bool displaces(const SitePlan& plan, LinkAddr at) {
  return std::ranges::any_of(plan.displaced,
                             [at](const Instruction& i) { return i.address == at.value(); });
}

// Where the probe fires in the window: an entry point whose window starts behind the endbr64 fires
// at its start.
void add_point(SitePlan& plan, const PointRequest& request) {
  const LinkAddr at = request.at < plan.site ? plan.site : request.at;
  plan.points.push_back({.offset = static_cast<std::uint8_t>(at - plan.site),
                         .kind = request.kind,
                         .tag = request.tag});
}

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
  for (PlannedPoint point : b.points) {
    point.offset = static_cast<std::uint8_t>(point.offset + distance);
    a.points.push_back(point);
  }
}

// Entry points come before others at the same instruction: a function may consist of a ret alone.
void sort_points(SitePlan& plan) {
  std::ranges::sort(plan.points, {}, [](const PlannedPoint& p) {
    return std::tuple(p.offset, p.kind != PointKind::kEntry, p.tag);
  });
}

struct Candidate {
  SitePlan plan;
  std::vector<const PointRequest*> requests;
};

// Merges windows that meet, in order of address; one that cannot be merged gives its points up.
void merge_windows(std::vector<Candidate> candidates, SiteSet& out) {
  std::ranges::sort(candidates, {},
                    [](const Candidate& c) { return std::pair(c.plan.site, c.requests.front()); });
  for (Candidate& c : candidates) {
    SitePlan* last = out.sites.empty() ? nullptr : &out.sites.back();
    if (last == nullptr || c.plan.site >= last->site + last->window_size) {
      out.sites.push_back(std::move(c.plan));
    } else if (can_merge(*last, c.plan)) {
      merge(*last, c.plan);
    } else {
      for (const PointRequest* request : c.requests) {
        const Obstacle obstacle{Refusal::kTooLong, last->site};
        out.refused.push_back(
            {*request, obstacle.reason, obstacle.where, describe(*request, obstacle)});
      }
    }
  }
}

// A point that got no window of its own may lie in another's.
bool place_in_existing(const PointRequest& request, std::vector<SitePlan>& sites) {
  if (request.kind == PointKind::kReturn || request.kind == PointKind::kTail) {
    if (exits_refused(*request.function)) return false;
  }
  auto it = std::ranges::upper_bound(sites, request.at, {}, &SitePlan::site);
  if (it == sites.begin()) return false;
  --it;
  if (!displaces(*it, request.at)) return false;
  add_point(*it, request);
  return true;
}

}  // namespace

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
  SiteSet out;
  std::vector<Candidate> candidates;
  std::vector<std::pair<const PointRequest*, Obstacle>> unplaced;
  for (const PointRequest& point : points) {
    const Attempt attempt = Planner(module, point).run();
    if (!attempt.window) {
      unplaced.emplace_back(&point, attempt.obstacle);
      continue;
    }
    Candidate candidate{make_plan(module, *point.function, *attempt.window), {&point}};
    add_point(candidate.plan, point);
    candidates.push_back(std::move(candidate));
  }
  merge_windows(std::move(candidates), out);
  for (const auto& [point, obstacle] : unplaced) {
    if (place_in_existing(*point, out.sites)) continue;
    out.refused.push_back({*point, obstacle.reason, obstacle.where, describe(*point, obstacle)});
  }
  for (SitePlan& plan : out.sites) sort_points(plan);
  return out;
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
  if (const auto reason = unrelocatable(i)) {
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
