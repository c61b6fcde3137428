// Bounded waiting for the states of traced threads.
//
// The kernel offers no wait with a timeout. So: look (waitpid with WNOHANG), sleep until SIGCHLD or
// a short while, look again. SIGCHLD is blocked meanwhile, so that one sent between look and sleep
// wakes the sleep at once; where another thread of this process takes it first, the short while
// bounds the delay. A SIGCHLD that was taken here and that the caller had blocked (it polls a
// signalfd, say) is sent again at the end.

#pragma once

#include <signal.h>

#include <chrono>

namespace trapline::target {

using Clock = std::chrono::steady_clock;

class ChildSignals {
 public:
  ChildSignals();
  ~ChildSignals();
  ChildSignals(const ChildSignals&) = delete;
  ChildSignals& operator=(const ChildSignals&) = delete;

  // Returns at a SIGCHLD, at `deadline`, or after at most about a millisecond (ten, in a long
  // wait).
  void pause(Clock::time_point deadline);

 private:
  sigset_t old_mask_;
  std::chrono::microseconds nap_{100};
  Clock::time_point start_ = Clock::now();
  bool taken_ = false;
};

// SCHED_FIFO, or else the best nice value, for the calling thread while this lives; nothing where
// it is not allowed.
class RaisedPriority {
 public:
  enum class Want : unsigned char { kNo, kYes };
  explicit RaisedPriority(Want want);
  ~RaisedPriority();
  RaisedPriority(const RaisedPriority&) = delete;
  RaisedPriority& operator=(const RaisedPriority&) = delete;

 private:
  enum class Done : unsigned char { kNothing, kFifo, kNice };
  Done done_ = Done::kNothing;
  int old_policy_ = 0;
  int old_nice_ = 0;
};

}  // namespace trapline::target
