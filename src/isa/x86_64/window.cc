#include "isa/x86_64/window.h"

#include <algorithm>
#include <cstdio>

#include "isa/x86_64/relocate.h"

namespace trapline::isa {
namespace {

// How far a window may start before its point. A ret needs one to three instructions; more would
// only move more code into the trampoline.
constexpr std::size_t kMaxBefore = 8;

Attempt refuse(Refusal reason, LinkAddr where) { return {{}, {reason, where}}; }

bool is_exit(PointKind kind) {
  return kind == PointKind::kReturn || kind == PointKind::kTail || kind == PointKind::kFallThrough;
}

}  // namespace

bool is_padding(const ModuleCode& module, LinkAddr begin, LinkAddr end) {
  LinkAddr at = begin;
  while (at < end) {
    const auto i = decode(module.bytes_at(at), at.value());
    if (!i || (i->kind != Kind::kNop && i->kind != Kind::kInt3)) return false;
    at += i->length;
  }
  return true;
}

std::optional<Obstacle> WindowFinder::point_refused(const PointRequest& point) const {
  if (!function_.find(point.at)) {
    return Obstacle{module_.in_code(point.at) ? Refusal::kUndecodable : Refusal::kNotCode,
                    point.at};
  }
  if (!is_exit(point.kind)) return std::nullopt;
  const auto reason = exits_refused(function_);
  if (!reason) return std::nullopt;
  return Obstacle{*reason, *reason == Refusal::kUndecodable ? function_.undecodable_at : point.at};
}

Attempt WindowFinder::for_jump(const PointRequest& point) const {
  if (const auto obstacle = point_refused(point)) return {{}, *obstacle};
  const std::size_t index = *function_.find(point.at);
  if (point.kind == PointKind::kEntry && code_[index].kind == Kind::kEndbr) {
    return entry_with_endbr(index);
  }
  return search(point, index);
}

// An instruction that no branch leads to (a loop would fire the probe at every turn), in line with
// the one before.
bool WindowFinder::is_plain_start(std::size_t index) const {
  if (index >= code_.size() || code_[index].address != code_[index - 1].end()) return false;
  const LinkAddr at(code_[index].address);
  return !module_.any_target(at, at + 1) && !table_target(at, at + 1);
}

// Behind the endbr64, unless a branch leads there or nothing fits.
Attempt WindowFinder::entry_with_endbr(std::size_t index) const {
  if (is_plain_start(index + 1)) {
    Attempt attempt = from(index + 1, index + 1, kJumpSize);
    if (attempt.window) return attempt;
  }
  Attempt attempt = from(index, index, kJumpSize);
  if (attempt.window) attempt.window->covers_endbr = true;
  return attempt;
}

// A window may start at this instruction and go on with the next one.
bool WindowFinder::may_precede(std::size_t index) const {
  return code_[index].end() == code_[index + 1].address && !code_[index].ends_flow();
}

// From the point on, else from one, two, ... instructions before it. What is reported is the
// obstacle of the last attempt that still stood in line.
Attempt WindowFinder::search(const PointRequest& point, std::size_t index) const {
  const bool in_line = point.kind == PointKind::kFallThrough;
  const auto attempt_from = [&](std::size_t first) {
    return in_line ? fall_through(first, index, kJumpSize) : from(first, index, kJumpSize);
  };
  Attempt attempt = attempt_from(index);
  if (attempt.window || point.kind == PointKind::kEntry) return attempt;
  for (std::size_t back = 1; back <= std::min(kMaxBefore, index); ++back) {
    const Instruction& before = code_[index - back];
    if (!may_precede(index - back)) break;
    if (const auto reason = unrelocatable(before)) {
      if (attempt.obstacle.reason == Refusal::kTooShort) {
        attempt.obstacle = {*reason, LinkAddr(before.address)};
      }
      break;
    }
    Attempt earlier = attempt_from(index - back);
    if (earlier.window) return earlier;
    const bool short_before = attempt.obstacle.reason == Refusal::kTooShort;
    if (short_before) attempt.obstacle = earlier.obstacle;
    // A longer window holds the same target.
    if (earlier.obstacle.reason == Refusal::kBranchIntoWindow && short_before) break;
  }
  return attempt;
}

std::vector<Window> WindowFinder::all(const PointRequest& point, std::size_t size) const {
  std::vector<Window> found;
  if (point_refused(point)) return found;
  const std::size_t index = *function_.find(point.at);
  const auto take = [&](std::size_t first) {
    const Attempt attempt = point.kind == PointKind::kFallThrough ? fall_through(first, index, size)
                                                                  : from(first, index, size);
    if (attempt.window) found.push_back(*attempt.window);
  };
  if (point.kind == PointKind::kEntry) {
    const bool endbr = code_[index].kind == Kind::kEndbr;
    if (endbr && is_plain_start(index + 1)) {
      const Attempt behind = from(index + 1, index + 1, size);
      if (behind.window) found.push_back(*behind.window);
    }
    take(index);
    if (endbr && !found.empty() && found.back().first == index) found.back().covers_endbr = true;
    return found;
  }
  take(index);
  for (std::size_t back = 1; back <= std::min(kMaxBefore, index); ++back) {
    if (!may_precede(index - back) || unrelocatable(code_[index - back])) break;
    take(index - back);
  }
  return found;
}

Attempt WindowFinder::from(std::size_t first, std::size_t last, std::size_t size) const {
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
    const bool ends_in_call = size == kJumpSize && is_relocatable_call(i) && n >= last &&
                              i.end() - w.begin.value() >= size;
    if (const auto reason = unrelocatable(i); reason && !ends_in_call) {
      return refuse(*reason, LinkAddr(i.address));
    }
    w.code_end = LinkAddr(i.end());
    ++w.count;
    if (n >= last && (w.code_end - w.begin >= size || i.ends_flow())) break;
    if (i.ends_flow()) return refuse(Refusal::kTooShort, w.code_end);
  }
  w.end = std::max(w.code_end, w.begin + size);
  return check(w, size);
}

// The window of the instructions before a ret, which runs behind them in the trampoline. It stays
// where it is as well, so branches may lead to it.
Attempt WindowFinder::fall_through(std::size_t first, std::size_t ret, std::size_t size) const {
  Window w;
  w.first = first;
  w.count = ret - first;
  w.begin = LinkAddr(code_[first].address);
  w.code_end = w.end = LinkAddr(code_[ret].address);
  if (w.end - w.begin < size) return refuse(Refusal::kTooShort, w.end);
  Attempt attempt = check(w, size);
  if (!attempt.window) return attempt;
  ++attempt.window->count;
  attempt.window->keeps_last = true;
  attempt.window->code_end = attempt.window->end = LinkAddr(code_[ret].end());
  return attempt;
}

Attempt WindowFinder::check(const Window& w, std::size_t size) const {
  if (w.end - w.begin > kMaxWindow) return refuse(Refusal::kTooLong, w.begin);
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
  // An indirect jump with unknown targets. It cannot lead into the first window of the function: a
  // label there would lie between the function's entry and the code that sets up its frame, which
  // compilers never make a label of a switch or computed goto of (those are reached from the body
  // only). Elsewhere it might lead to any instruction, so only a window of a single one is safe.
  const bool safe_start = size == kJumpSize && function_.sure && starts_function(w);
  if (function_.unknown_targets && w.count > 1 && !safe_start) {
    return refuse(Refusal::kUnknownJumps, w.begin);
  }
  return {w, {}};
}

bool WindowFinder::starts_function(const Window& w) const {
  const LinkAddr begin = function_.parts.front().begin;
  return w.begin == begin || (code_[w.first].address == begin.value() + 4 && w.first > 0 &&
                              code_[w.first - 1].kind == Kind::kEndbr);
}

// The one branch to `target` lies in the window itself, and `target` is an instruction of it: both
// move together.
bool WindowFinder::is_private(LinkAddr target, const Window& w) const {
  if (!module_.single_branch_to(target)) return false;
  bool source = false;
  bool instruction = false;
  for (std::size_t n = w.first; n < w.first + w.count; ++n) {
    source = source || (code_[n].is_direct_branch() && code_[n].target == target.value());
    instruction = instruction || code_[n].address == target.value();
  }
  return source && instruction;
}

std::optional<LinkAddr> WindowFinder::table_target(LinkAddr begin, LinkAddr end) const {
  const auto it = std::ranges::lower_bound(function_.table_targets, begin);
  if (it == function_.table_targets.end() || *it >= end) return std::nullopt;
  return *it;
}

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
  plan.keeps_last = w.keeps_last;
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

bool holds(const SitePlan& plan, const PointRequest& point) {
  if (is_exit(point.kind) && exits_refused(*point.function)) return false;
  const bool kept = plan.keeps_last && plan.displaced.back().address == point.at.value();
  return kept == (point.kind == PointKind::kFallThrough) && displaces(plan, point.at);
}

// Where the probe fires in the window: an entry point whose window starts behind the endbr64 fires
// at its start.
void add_point(SitePlan& plan, const PointRequest& request) {
  const LinkAddr at = request.at < plan.site ? plan.site : request.at;
  plan.points.push_back({.offset = static_cast<std::uint8_t>(at - plan.site),
                         .kind = request.kind,
                         .tag = request.tag});
}

}  // namespace trapline::isa
