#include "target/wait.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trapline::target {

using namespace std::chrono_literals;

ChildSignals::ChildSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
}

ChildSignals::~ChildSignals() {
  if (taken_ && sigismember(&old_mask_, SIGCHLD) == 1) ::kill(::getpid(), SIGCHLD);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void ChildSignals::pause(Clock::time_point deadline) {
  const auto now = Clock::now();
  const auto left = std::max<Clock::duration>(deadline - now, 0us);
  const auto nap = std::min<Clock::duration>(left, nap_);
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(nap).count();
  const ::timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (::sigtimedwait(&set, nullptr, &time) == SIGCHLD) taken_ = true;
  nap_ = std::min<std::chrono::microseconds>(nap_ * 2, now - start_ > 200ms ? 10ms : 1ms);
}

RaisedPriority::RaisedPriority(Want want) {
  if (want == Want::kNo) return;
  old_policy_ = ::sched_getscheduler(0);
  if (old_policy_ != SCHED_OTHER && old_policy_ != SCHED_BATCH) return;
  const ::sched_param param{.sched_priority = 1};
  if (::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0) {
    done_ = Done::kFifo;
    return;
  }
  errno = 0;
  old_nice_ = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
  if (errno == 0 && ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), -20) == 0)
    done_ = Done::kNice;
}

RaisedPriority::~RaisedPriority() {
  if (done_ == Done::kFifo) {
    const ::sched_param param{};
    ::sched_setscheduler(0, old_policy_, &param);
  } else if (done_ == Done::kNice) {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), old_nice_);
  }
}

}  // namespace trapline::target
