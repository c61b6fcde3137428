// The processes that a Tracee's makes, under -x follow.

#include <algorithm>

#include "session/tracee.h"
#include "session/tracee_stop.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;

// One that said that it is about to fork, and does not, after this.
constexpr milliseconds kForkPatience{1000};
constexpr milliseconds kForkLinger{20};

}  // namespace

// As for an exec; it stays seized until each fork that was told has been seen, or has failed, and
// for a moment more.
Result<> Tracee::answer_fork_request() {
  const std::uint32_t thread = waiting_for(wire::kForkRequest);
  if (thread == 0) return {};
  const Result<> seized = seize();
  answer(wire::kForkRequest, thread);
  if (!seized) {
    if (is_gone(seized.error())) return {};
    return seized;
  }
  ++forks_expected_;
  fork_deadline_ = std::chrono::steady_clock::now() + kForkPatience;
  return {};
}

// A thread whose vfork child runs cannot be stopped, and so not be let go of.
bool Tracee::waits_for_children() const {
  const bool vfork = std::ranges::any_of(vforks_, [](const auto& apart) { return !*apart; });
  return vfork || std::chrono::steady_clock::now() < *fork_deadline_;
}

Result<> Tracee::adopt(const target::Event& fork) {
  if (forks_expected_ > 0) --forks_expected_;
  // One that forks often is not let go of and seized again each time.
  if (forks_expected_ == 0) fork_deadline_ = std::chrono::steady_clock::now() + kForkLinger;
  auto attached = attachment()->adopt_child(fork);
  if (!attached) return is_gone(attached.error()) ? Result<>{} : attached.error();
  auto apart = std::make_shared<bool>(!fork.vfork);
  std::erase_if(vforks_, [](const auto& known) { return *known; });
  if (fork.vfork) {
    vforks_.push_back(apart);
  }
  children_.push_back({std::move(*attached), fork.vfork, std::move(apart)});
  return {};
}

Result<Tracee> Tracee::of_child(Child child, const Tracee& parent) {
  Tracee tracee(child.attachment.pid());
  tracee.follow_ = true;
  TL_TRY(tracee.read_identity());
  tracee.attachment_.emplace(std::move(child.attachment));
  tracee.apart_ = std::move(child.apart);
  tracee.memory_ = parent.memory_;
  if (!child.shares_memory) {
    TL_TRY_ASSIGN(target::Memory opened, target::Memory::open(tracee.pid_));
    tracee.memory_ = std::make_shared<target::Memory>(std::move(opened));
  }
  tracee.modules_.emplace(LoadedModules::of_child(*parent.modules_, tracee.pid_, tracee.memory_));
  if (child.shares_memory) return tracee;
  TL_TRY_ASSIGN(target::StoppedProcess stopped, tracee.attachment_->stop());
  tracee.held_.emplace(std::move(stopped));
  tracee.forked_ = true;
  return tracee;
}

}  // namespace trapline::session
