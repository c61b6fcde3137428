// What ran on a processor at the moments of a steady clock, as the kernel's profiler sees it.
//
// CpuSampler opens a software clock (perf_event_open, PERF_COUNT_SW_CPU_CLOCK), which needs no
// hardware counter and so exists in virtual machines: on every processor, for whatever runs there
// (Scope::kMachine), or on the threads of some processes, where it runs only while they do
// (Scope::kProcesses; threads that they make are included). The kernel writes samples to a ring a
// processor; take() empties them, merged by time, and says how many the kernel had no room for.
//
// Limits: kMachine needs CAP_PERFMON, or kernel.perf_event_paranoid 0 or less. kProcesses needs the
// right to trace them and a value of at most 2 (some systems have 3: nobody but root), and above 1
// sees them in user mode alone: reaches_kernel() tells. Names and parents of processes that end
// between a sample and take() are known where the kernel told of their beginning.
// Sources: perf_event_open(2), kernel/events/core.c (perf_swevent_init_hrtimer, perf_mmap).

#pragma once

#include <sys/user.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/result.h"

namespace trapline::target {

struct CpuSample {
  std::uint64_t time = 0;  // CLOCK_MONOTONIC, ns
  Pid pid;                 // 0: the processor idled (tid 0, too), or a process of another namespace
  Tid tid;
  std::uint32_t cpu = 0;
  std::uint64_t kernel_pc = 0;  // 0: in user mode
  std::uint64_t user_pc = 0;    // 0: in the kernel
  // Of user mode; what the kernel does not tell (ds, es, fs, gs and the segment bases) is 0.
  // nullopt: it has none (the idle task, kernel threads).
  std::optional<::user_regs_struct> registers;
  bool has_segments = false;  // they are all told
  std::string name;           // the thread's; empty: not known
  Pid parent;                 // 0: not known
};

class CpuSampler {
 public:
  enum class Children : std::uint8_t { kLeftOut, kIncluded };
  struct Wishes {
    std::chrono::nanoseconds period;
    std::optional<std::uint32_t> cpu;  // only there
  };

  // Every processor. Errors: kPermission; kUnsupported (no such processor, no perf events).
  static Result<CpuSampler> machine(const Wishes& wishes);
  // The threads of these processes. Errors: kPermission, kUnsupported, kTargetGone (none of them
  // lives).
  static Result<CpuSampler> processes(std::span<const Pid> pids, Children children,
                                      const Wishes& wishes);

  CpuSampler(CpuSampler&&) noexcept;
  CpuSampler& operator=(CpuSampler&&) noexcept;
  ~CpuSampler();

  // The clocks begin to run.
  Result<> start();
  // Samples since the last call, by time.
  std::vector<CpuSample> take();
  // Samples that were lost since the last call.
  std::uint64_t take_lost();
  bool reaches_kernel() const;

 private:
  struct Clocks;
  explicit CpuSampler(std::unique_ptr<Clocks> clocks);
  std::unique_ptr<Clocks> clocks_;
};

// The processors that are online, in order.
std::vector<std::uint32_t> online_processors();

}  // namespace trapline::target
