// Samples of the traced processes' threads where the kernel's profiler may not be used: they are
// stopped for a moment, and looked at.
//
// A thread is due when it has run for a period since its last sample (read_run_time()), so that it
// is sampled as often as a clock of its own would. Stops are bounded: no more than kMostStops a
// second, and no more than a tenth of the time goes into them; what a thread has run beyond one
// period by then is samples that are lost, and counted. A thread that is met in a system call gives
// no sample: what it does in the kernel cannot be seen. One that begins and ends between two looks
// is not seen at all.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "session/tracee.h"
#include "target/cpu_sample.h"

namespace trapline::session {

class StopSampler {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit StopSampler(std::chrono::nanoseconds period) : period_(period) {}

  // When the processes are to be looked at next.
  TimePoint due() const { return due_; }
  // What threads of `tracee` are found to be doing. Errors: of the stop, but that it took too long.
  Result<> look_at(Tracee& tracee, std::vector<target::CpuSample>& samples);
  // All processes have been looked at.
  void finish_round();
  std::uint64_t take_lost() { return std::exchange(lost_, 0); }

 private:
  static constexpr int kMostStops = 100;
  struct Thread {
    std::chrono::nanoseconds sampled{0};  // its run time up to its last sample
    std::uint64_t round = 0;
  };

  std::map<pid_t, std::uint64_t> due_threads(Pid pid);

  std::chrono::nanoseconds period_;
  std::map<std::pair<pid_t, pid_t>, Thread> threads_;
  std::uint64_t round_ = 0;
  TimePoint due_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds spent_{0};  // on this round
  std::uint64_t lost_ = 0;
};

}  // namespace trapline::session
