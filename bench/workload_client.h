// Speaks with bench_workload, and starts tracers on it.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "child_process.h"

namespace trapline::bench {

// Where the programs are: the folder of this one, unless --trapline said otherwise.
struct Programs {
  std::string trapline;
  std::string workload;
  std::string interposer;
};
Programs find_programs(const std::string& trapline_or_empty);

class Workload {
 public:
  Workload(const Programs& programs, int threads, const std::string& preload = {});

  bool ready();  // after the constructor: it started
  pid_t pid() const { return process_.pid(); }
  // Nanoseconds a malloc + free, by the clock and of the thread's own CPU time, which other
  // processes on the machine disturb less; nullopt: the workload is gone.
  struct Cost {
    double wall = 0;
    double cpu = 0;
  };
  std::optional<Cost> run(std::chrono::milliseconds time);
  std::optional<Cost> burst(long pairs, long times);
  void start_gap(std::chrono::milliseconds time);
  std::optional<double> longest_gap_us();  // the answer to start_gap()

 private:
  std::optional<Cost> cost_answer();
  ChildProcess process_;
};

// trapline with a D program, attached. The program gets a BEGIN clause in front by which it is
// known to be armed.
class Tracer {
 public:
  Tracer(const Programs& programs, const std::string& d_program, pid_t pid);
  // Milliseconds from its start until it was armed; nullopt: it never was, see errors().
  std::optional<double> wait_until_armed();
  // Ends it with SIGINT. False: it did not end well.
  bool stop();
  std::string errors() { return process_.errors(); }

 private:
  std::chrono::steady_clock::time_point start_;
  ChildProcess process_;
};

}  // namespace trapline::bench
