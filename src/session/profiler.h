// What makes profile:::profile-N fire.
//
// DTrace fires it on every processor, N times a second, for whatever runs there. Which of these
// ways there is depends on what the system allows; the first is best:
//   kMachine    the kernel samples every processor (root, or kernel.perf_event_paranoid <= 0)
//   kProcesses  it samples the traced processes' threads while they run
//   kStops      they are stopped and looked at (stop_sampler.h)
//   kTimers     nothing is traced: the probe fires in the tracer, on each processor that it may use
// Samples come as often as the tracer asks; they are told in the order of their times.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "session/stop_sampler.h"
#include "target/cpu_sample.h"

namespace trapline::session {

enum class Sampling : std::uint8_t { kMachine, kProcesses, kStops, kTimers };

struct ProfileFiring {
  std::uint32_t probe = 0;  // the session's index
  std::uint64_t time = 0;   // CLOCK_MONOTONIC, ns
  std::uint32_t cpu = 0;
  std::optional<target::CpuSample> sample;  // none with kTimers
};

class Profiler {
 public:
  struct Probe {
    std::uint32_t number = 0;
    std::chrono::nanoseconds period{0};
  };
  struct Wishes {
    std::string_view sampling = "auto";  // the option
    std::optional<std::uint32_t> cpu;
    target::CpuSampler::Children children = target::CpuSampler::Children::kLeftOut;
  };

  // Nothing fires before begin(). Errors: kPermission, kUnsupported: the way that was asked for is
  // not open.
  static Result<Profiler> create(std::span<const Probe> probes, std::span<const Pid> pids,
                                 const Wishes& wishes);

  Result<> begin();
  Sampling sampling() const { return sampling_; }
  // Which way was taken and why, in a line.
  const std::string& note() const { return note_; }
  // When take() has something to do.
  std::chrono::steady_clock::time_point due() const;
  // What has fired since the last call, in order. Errors: of stops.
  Result<std::vector<ProfileFiring>> take(std::span<Tracee* const> tracees);
  // Firings that did not take place.
  std::uint64_t take_lost();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Timer {
    std::uint32_t cpu = 0;
    TimePoint due;
  };
  struct Source {
    Probe probe;
    std::optional<target::CpuSampler> sampler;
    std::optional<StopSampler> stops;
    std::vector<Timer> timers;
  };

  static Result<Source> open(Sampling sampling, const Probe& probe, std::span<const Pid> pids,
                             const Wishes& wishes);
  void fire_timers(Source& source, std::vector<ProfileFiring>& firings);

  Sampling sampling_ = Sampling::kMachine;
  std::string note_;
  std::vector<Source> sources_;
  std::uint64_t lost_ = 0;
};

}  // namespace trapline::session
