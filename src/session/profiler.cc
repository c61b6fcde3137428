#include "session/profiler.h"

#include <fmt/format.h>

#include <algorithm>

#include "session/run_on_processor.h"

namespace trapline::session {

namespace {

// The kernel's rings hold more than that at any rate that a probe may have.
constexpr std::chrono::milliseconds kRingPause{50};

// The ways to try, in order, for what the option asks.
std::vector<Sampling> ways(std::string_view asked, bool any_process) {
  if (asked == "machine") return {Sampling::kMachine};
  if (!any_process) {
    if (asked == "auto") return {Sampling::kMachine, Sampling::kTimers};
    return {Sampling::kTimers};
  }
  if (asked == "process") return {Sampling::kProcesses};
  if (asked == "stop") return {Sampling::kStops};
  return {Sampling::kMachine, Sampling::kProcesses, Sampling::kStops};
}

std::string describe(Sampling sampling, const std::optional<target::CpuSampler>& sampler) {
  switch (sampling) {
    case Sampling::kMachine:
      return "profile samples every processor, whatever runs there";
    case Sampling::kProcesses:
      return fmt::format("profile samples the traced processes' threads alone{}",
                         sampler && sampler->reaches_kernel() ? "" : ", in user mode");
    case Sampling::kStops:
      return "profile samples the traced processes' threads, in user mode, by stopping them for a "
             "moment, at most 100 times a second";
    case Sampling::kTimers:
      return "profile fires in the tracer alone, on each processor in turn: nothing is traced, and "
             "what else runs may not be sampled";
  }
  return {};
}

}  // namespace

Result<Profiler::Source> Profiler::open(Sampling sampling, const Probe& probe,
                                        std::span<const Pid> pids, const Wishes& wishes) {
  Source source;
  source.probe = probe;
  const target::CpuSampler::Wishes clock{probe.period, wishes.cpu};
  switch (sampling) {
    case Sampling::kMachine: {
      TL_TRY_ASSIGN(source.sampler, target::CpuSampler::machine(clock));
      break;
    }
    case Sampling::kProcesses: {
      TL_TRY_ASSIGN(source.sampler, target::CpuSampler::processes(pids, wishes.children, clock));
      break;
    }
    case Sampling::kStops:
      source.stops.emplace(probe.period);
      break;
    case Sampling::kTimers: {
      std::vector<std::uint32_t> cpus = allowed_processors();
      if (wishes.cpu) cpus = {*wishes.cpu};
      for (const std::uint32_t cpu : cpus) source.timers.push_back({cpu, TimePoint::max()});
      break;
    }
  }
  return source;
}

Result<Profiler> Profiler::create(std::span<const Probe> probes, std::span<const Pid> pids,
                                  const Wishes& wishes) {
  std::optional<Error> failed;
  std::string why;  // a better way is not open
  for (const Sampling sampling : ways(wishes.sampling, !pids.empty())) {
    Profiler profiler;
    profiler.sampling_ = sampling;
    failed.reset();
    for (const Probe& probe : probes) {
      auto source = open(sampling, probe, pids, wishes);
      if (!source) {
        failed = source.error();
        break;
      }
      profiler.sources_.push_back(std::move(*source));
    }
    if (failed) {
      if (why.empty()) why = fmt::format(" ({})", failed->text());
      continue;
    }
    if (!profiler.sources_.empty())
      profiler.note_ = describe(sampling, profiler.sources_.front().sampler) + why;
    return profiler;
  }
  return failed->within("sampling for profile probes");
}

Result<> Profiler::begin() {
  for (Source& source : sources_) {
    if (source.sampler) TL_TRY(source.sampler->start());
    if (source.stops) source.stops.emplace(source.probe.period);
    const TimePoint due = std::chrono::steady_clock::now() + source.probe.period;
    for (Timer& timer : source.timers) timer.due = due;
  }
  return {};
}

Profiler::TimePoint Profiler::due() const {
  TimePoint due = std::chrono::steady_clock::now() + kRingPause;
  for (const Source& source : sources_) {
    if (source.stops) due = std::min(due, source.stops->due());
    for (const Timer& timer : source.timers) due = std::min(due, timer.due);
  }
  return due;
}

void Profiler::fire_timers(Source& source, std::vector<ProfileFiring>& firings) {
  const TimePoint now = std::chrono::steady_clock::now();
  for (Timer& timer : source.timers) {
    if (now < timer.due) continue;
    ProfileFiring firing;
    firing.probe = source.probe.number;
    firing.time = static_cast<std::uint64_t>(timer.due.time_since_epoch().count());
    firing.cpu = timer.cpu;
    firings.push_back(std::move(firing));
    const auto behind = (now - timer.due) / source.probe.period;
    timer.due += source.probe.period * (behind + 1);
    lost_ += static_cast<std::uint64_t>(behind);
  }
}

Result<std::vector<ProfileFiring>> Profiler::take(std::span<Tracee* const> tracees) {
  std::vector<ProfileFiring> firings;
  for (Source& source : sources_) {
    std::vector<target::CpuSample> samples;
    if (source.sampler) {
      samples = source.sampler->take();
      lost_ += source.sampler->take_lost();
    }
    if (source.stops && std::chrono::steady_clock::now() >= source.stops->due()) {
      for (Tracee* const tracee : tracees) TL_TRY(source.stops->look_at(*tracee, samples));
      source.stops->finish_round();
      lost_ += source.stops->take_lost();
    }
    for (target::CpuSample& sample : samples) {
      ProfileFiring& firing = firings.emplace_back();
      firing.probe = source.probe.number;
      firing.time = sample.time;
      firing.cpu = sample.cpu;
      firing.sample = std::move(sample);
    }
    fire_timers(source, firings);
  }
  std::ranges::stable_sort(firings, {}, &ProfileFiring::time);
  return firings;
}

std::uint64_t Profiler::take_lost() { return std::exchange(lost_, 0); }

}  // namespace trapline::session
