// The part of a session that deals with the children of traced processes, under -x follow (see
// docs/decisions/0014-followed-children.md).
//
// A forked child comes stopped: its parent's probes are taken out of it, as those of a tracer that
// was killed would be, and it is armed with the same batches in an arena of its own, before it has
// executed an instruction. A vfork child, which lives in its parent's memory, is armed when it
// executes a program. One that has ended gives its place to the next.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "session/session.h"

namespace trapline::session {

std::size_t Session::place_for(Tracee tracee) {
  const auto free =
      std::ranges::find_if(targets_, [](const Target& target) { return target.over; });
  if (free == targets_.end()) {
    targets_.emplace_back(std::move(tracee));
    return targets_.size() - 1;
  }
  std::destroy_at(&*free);
  std::construct_at(&*free, std::move(tracee));
  return static_cast<std::size_t>(free - targets_.begin());
}

Result<> Session::follow_child(std::size_t parent, Tracee::Child child) {
  const Pid pid = child.attachment.pid();
  auto tracee = Tracee::of_child(std::move(child), targets_[parent].tracee);
  Result<> done = tracee ? Result<>() : tracee.error();
  if (tracee) {
    const std::size_t index = place_for(std::move(*tracee));
    targets_[index].followed = true;
    targets_[index].family = targets_[parent].family;
    done = arm_child(index, parent);
  }
  if (!done && done.error().code() != ErrorCode::kTargetGone) {
    notes_.push_back(fmt::format("pid {}, a child of {}, is not traced: {}", pid.value,
                                 targets_[parent].tracee.pid().value, done.error().text()));
  }
  return {};
}

Result<> Session::arm_child(std::size_t index, std::size_t parent) {
  Target& target = targets_[index];
  if (target.tracee.shares_memory()) return {};
  target.later = targets_[parent].later;
  target.matched_modules = targets_[parent].matched_modules;
  if (targets_[parent].program)
    target.program = std::make_unique<TargetProgram>(*targets_[parent].program);
  Result<> done = reserve(index);
  if (done) share_globals(index);
  if (done) done = arm(index);
  if (!done) {
    target.drainer.reset();
    target.program.reset();
    (void)target.tracee.disarm();
  }
  activate(target);
  watch_requests();
  return done;
}

// Its last data has been taken.
void Session::retire_children() {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    Target& target = targets_[i];
    if (!target.followed || target.over || !target.tracee.ended() || i == globals_owner()) continue;
    watch_requests(i);
    target.drainer.reset();
    target.program.reset();
    target.tracee.drop();
    target.over = true;
  }
}

}  // namespace trapline::session
