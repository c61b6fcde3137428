// What a Tracee's process tells: by its rendezvous, by ptrace where it is attached to, by its end.

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "session/tracee.h"
#include "session/tracee_stop.h"
#include "target/process.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;

// A process that said that it is about to execute, and does not (no such file), is let go of again
// after this.
constexpr milliseconds kExecPatience{1000};

}  // namespace

wire::Header* Tracee::header() const {
  return arena_ && active_ ? reinterpret_cast<wire::Header*>(arena_->local().data()) : nullptr;
}

// Only that thread's request: another one may have come meanwhile.
void Tracee::answer(wire::Request request, std::uint32_t thread) {
  if (header() == nullptr) return;
  std::uint32_t* word = &header()->requests[request].thread;
  for (std::uint32_t there : {thread, thread | wire::kRequestSeen}) {
    __atomic_compare_exchange_n(word, &there, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint32_t Tracee::waiting_for(wire::Request request) const {
  if (header() == nullptr) return 0;
  return __atomic_load_n(&header()->requests[request].thread, __ATOMIC_ACQUIRE) &
         ~wire::kRequestSeen;
}

void Tracee::answer_load() { answer(wire::kLoadRequest, std::exchange(loading_, 0)); }

std::uint32_t Tracee::take_missed_loads() {
  if (header() == nullptr) return 0;
  return __atomic_exchange_n(&header()->requests[wire::kLoadRequest].missed, 0, __ATOMIC_ACQ_REL);
}

int Tracee::event_fd() const { return pidfd_.get(); }

Result<Happening> Tracee::look() {
  if (ended_) return Happening::kNothing;
  if (attachment() != nullptr) {
    TL_TRY_ASSIGN(const Happening happening, take_events());
    if (happening != Happening::kNothing) return happening;
  } else if (has_ended()) {
    return Happening::kExited;
  }
  TL_TRY(answer_exec_request());
  TL_TRY(answer_fork_request());
  if (attachment() != nullptr) {
    TL_TRY_ASSIGN(const Happening happening, take_events());
    if (happening != Happening::kNothing) return happening;
  } else if (const auto stat = target::read_stat(pid_); stat && !stat->is_dead() &&
                                                        stat->start_code.value() != 0 &&
                                                        stat->start_code != start_code_) {
    start_code_ = stat->start_code;
    image_replaced_ = true;
    return Happening::kExecuted;
  }
  loading_ = waiting_for(wire::kLoadRequest);
  return loading_ != 0 ? Happening::kLoading : Happening::kNothing;
}

bool Tracee::has_ended() {
  pollfd exit{pidfd_.get(), POLLIN, 0};
  if (::poll(&exit, 1, 0) <= 0) return false;
  ended_ = true;
  if (launched_) {
    if (const auto status = launched_->wait_exit(milliseconds(0)); status && *status)
      exit_status_ = **status;
  }
  return true;
}

// Of an attached process: its signals and threads are seen to, and an exec or its end is told.
Result<Happening> Tracee::take_events() {
  for (;;) {
    TL_TRY_ASSIGN(const std::optional<target::Event> event, next_event());
    if (!event) break;
    switch (event->kind) {
      case target::Event::Kind::kExit:
        if (apart_) *apart_ = true;
        ended_ = true;
        exit_status_ = event->status;
        return Happening::kExited;
      case target::Event::Kind::kExec:
        if (apart_) *apart_ = true;
        at_exec_ = true;
        image_replaced_ = true;
        exec_deadline_.reset();
        fork_deadline_.reset();
        forks_expected_ = 0;
        return Happening::kExecuted;
      case target::Event::Kind::kTrap:
        TL_TRY(attachment()->resume(event->tid, SIGTRAP));
        break;
      case target::Event::Kind::kFork:
        TL_TRY(adopt(*event));
        break;
      default:
        break;
    }
  }
  if (fork_deadline_ && !waits_for_children()) {
    fork_deadline_.reset();
    forks_expected_ = 0;
    if (!exec_deadline_) TL_TRY(let_go());
  }
  if (exec_deadline_ && std::chrono::steady_clock::now() > *exec_deadline_) {
    exec_deadline_.reset();
    if (!fork_deadline_ && !server_) TL_TRY(let_go());
  }
  return Happening::kNothing;
}

Result<std::optional<target::Event>> Tracee::next_event() {
  if (!server_) return attachment()->wait_event(milliseconds(0));
  return server_->run([&] { return Result<std::optional<target::Event>>(server_->take_event()); });
}

// The other half of the rendezvous: 1. seize, so that the exec stops the process; 2. let the
// waiting thread go on.
Result<> Tracee::answer_exec_request() {
  const std::uint32_t thread = waiting_for(wire::kExecRequest);
  if (thread == 0) return {};
  const Result<> seized = seize();
  answer(wire::kExecRequest, thread);
  if (!seized) {
    if (is_gone(seized.error())) return {};
    return seized;
  }
  exec_deadline_ = std::chrono::steady_clock::now() + kExecPatience;
  return {};
}

}  // namespace trapline::session
