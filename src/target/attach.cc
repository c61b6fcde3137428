#include "target/attach.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "target/gadgets.h"
#include "target/stopped.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {

Attachment::Attachment(std::unique_ptr<Tracees> tracees) : tracees_(std::move(tracees)) {}
Attachment::Attachment(Attachment&&) noexcept = default;
Attachment& Attachment::operator=(Attachment&& other) noexcept {
  if (this != &other) {
    if (tracees_) (void)detach();
    tracees_ = std::move(other.tracees_);
  }
  return *this;
}
Attachment::~Attachment() {
  if (tracees_) (void)detach();
}

Result<Attachment> Attachment::seize(Pid pid, const AttachOptions& options) {
  const auto deadline = Clock::now() + options.timeout;
  for (;;) {
    await_same_program(pid, deadline);
    Result<Attachment> attached = seize_now(pid, options);
    // Another one of us may have come first after all.
    if (attached || attached.error().code() != ErrorCode::kPermission ||
        !held_by_same_program(pid) || Clock::now() >= deadline)
      return attached;
  }
}

Result<Attachment> Attachment::seize_now(Pid pid, const AttachOptions& options) {
  TL_TRY(check_traceable(pid));
  auto tracees = std::make_unique<Tracees>();
  tracees->pid = pid;
  tracees->owner = ::gettid();
  tracees->follow = options.follow;
  tracees->kill_on_exit = options.kill_on_exit;
  TL_TRY_ASSIGN(tracees->pidfd, open_pidfd(pid));
  Attachment attachment(std::move(tracees));
  Tracees& t = *attachment.tracees_;
  TL_TRY(t.seize_all(Clock::now() + options.timeout));
  // Ahead of the first stop, to keep that short.
  if (const auto memory = t.open_memory(); memory) {
    if (const auto maps = read_maps(pid); maps) t.gadgets = find_gadgets(**memory, *maps);
  }
  return attachment;
}

Result<Attachment> Attachment::adopt_child(const Event& fork) {
  tracees_->check_owner();
  if (fork.kind != Event::Kind::kFork || tracees_->forked.erase(fork.child.value) == 0) {
    return Error(ErrorCode::kInternal, "no such forked child to adopt");
  }
  auto child = std::make_unique<Tracees>();
  child->pid = fork.child;
  child->owner = tracees_->owner;
  child->follow = tracees_->follow;
  child->kill_on_exit = tracees_->kill_on_exit;
  child->threads.emplace(fork.child.value, Tracee{.tid = Tid{fork.child.value}});
  auto pidfd = open_pidfd(fork.child);
  Attachment attachment(std::move(child));
  if (!pidfd) return pidfd.error();
  attachment.tracees_->pidfd = std::move(*pidfd);
  return attachment;
}

Pid Attachment::pid() const { return tracees_->pid; }
const Fd& Attachment::pidfd() const { return tracees_->pidfd; }
bool Attachment::gone() const { return tracees_->gone; }
std::uint32_t Attachment::image() const { return tracees_->image; }

std::vector<Tid> Attachment::threads() const {
  std::vector<Tid> out;
  for (const auto& [tid, t] : tracees_->threads) out.push_back(Tid{tid});
  return out;
}

Result<StoppedProcess> Attachment::stop(const StopOptions& options) {
  tracees_->check_owner();
  StoppedProcess process(*tracees_, options.priority);
  TL_TRY(tracees_->stop_all(process.since_ +
                            options.timeout));  // `process` resumes those that did stop
  TL_TRY(process.begin());
  return process;
}

Result<std::optional<Event>> Attachment::wait_event(std::chrono::milliseconds timeout) {
  Tracees& t = *tracees_;
  t.check_owner();
  const auto deadline = Clock::now() + timeout;
  ChildSignals signals;
  for (;;) {
    if (!t.gone && !t.threads.empty()) t.collect(Purpose::kPump);
    if (!t.events.empty()) {
      Event event = t.events.front();
      t.events.pop_front();
      return event;
    }
    if (t.gone || t.threads.empty() || Clock::now() >= deadline) return std::nullopt;
    signals.pause(deadline);
  }
}

Result<> Attachment::resume(Tid tid, int signal) {
  tracees_->check_owner();
  const auto it = tracees_->threads.find(tid.value);
  if (it == tracees_->threads.end()) return gone_thread(tid);
  Tracee& t = it->second;
  if (t.state != TraceeState::kHeld) return {};  // a stop in between let it go
  t.trap_pc = {};
  t.state = TraceeState::kRunning;
  if (::ptrace(PTRACE_CONT, tid.value, nullptr, signal) != 0)
    return call_error(tid, "resuming", errno);
  return {};
}

Result<> Attachment::step(Tid tid) {
  tracees_->check_owner();
  const auto it = tracees_->threads.find(tid.value);
  if (it == tracees_->threads.end()) return gone_thread(tid);
  Tracee& t = it->second;
  if (t.state != TraceeState::kHeld)
    return Error(ErrorCode::kInternal, "a step of a thread that is not held");
  t.trap_pc = {};
  t.state = TraceeState::kRunning;
  t.stepping = true;
  if (::ptrace(PTRACE_SINGLESTEP, tid.value, nullptr, nullptr) != 0)
    return call_error(tid, "stepping", errno);
  return {};
}

Result<> Attachment::detach(std::chrono::milliseconds timeout) {
  Tracees& t = *tracees_;
  t.check_owner();
  if (t.gone || (t.threads.empty() && t.strays.empty() && t.forked.empty())) return {};
  const RaisedPriority priority(RaisedPriority::Want::kYes);
  const auto deadline = Clock::now() + timeout;
  auto stopped = t.stop_all(deadline);
  if (!stopped && stopped.error().code() == ErrorCode::kTargetGone) return {};
  TL_TRY(t.detach_stopped(std::max(deadline, Clock::now() + std::chrono::milliseconds(100))));
  return stopped;
}

}  // namespace trapline::target
