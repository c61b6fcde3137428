#include "session/stop_sampler.h"

#include <algorithm>

#include "session/clock.h"
#include "target/process.h"
#include "target/stopped.h"

namespace trapline::session {

namespace {

constexpr int kShare = 10;  // one part of so many may go into stops

target::CpuSample sample_of(Pid pid, const target::StoppedThread& thread) {
  target::CpuSample sample;
  sample.time = Clock::monotonic_ns();
  sample.pid = pid;
  sample.tid = thread.tid;
  sample.user_pc = thread.registers.pc().value();
  sample.registers = thread.registers.raw;
  sample.has_segments = true;
  return sample;
}

}  // namespace

// Threads that have run for a period or more, and for how many.
std::map<pid_t, std::uint64_t> StopSampler::due_threads(Pid pid) {
  std::map<pid_t, std::uint64_t> due;
  const auto tasks = target::read_tasks(pid);
  if (!tasks) return due;
  for (const Tid tid : *tasks) {
    const auto ran = target::read_run_time(pid, tid);
    if (!ran) continue;
    const auto [place, fresh] = threads_.try_emplace({pid.value, tid.value});
    Thread& thread = place->second;
    thread.round = round_;
    // What it ran before sampling began does not count.
    if (fresh && round_ == 0) thread.sampled = *ran;
    const auto periods = (*ran - thread.sampled) / period_;
    if (periods <= 0) continue;
    thread.sampled += periods * period_;
    due[tid.value] = static_cast<std::uint64_t>(periods);
  }
  return due;
}

Result<> StopSampler::look_at(Tracee& tracee, std::vector<target::CpuSample>& samples) {
  const TimePoint start = std::chrono::steady_clock::now();
  std::map<pid_t, std::uint64_t> due = due_threads(tracee.pid());
  const std::size_t first = samples.size();
  Result<> looked;
  if (!due.empty()) {
    looked = tracee.look_at_threads([&](const target::StoppedThread& thread) {
      const auto found = due.find(thread.tid.value);
      if (found == due.end()) return;
      lost_ += found->second - 1;
      due.erase(found);
      const bool in_call = static_cast<std::int64_t>(thread.registers.raw.orig_rax) >= 0;
      if (!in_call) samples.push_back(sample_of(tracee.pid(), thread));
    });
  }
  for (std::size_t i = first; i < samples.size(); ++i) {
    const auto stat = target::read_stat(samples[i].pid, samples[i].tid);
    if (!stat) continue;
    samples[i].cpu = stat->processor;
    samples[i].name = stat->comm;
    samples[i].parent = stat->parent;
  }
  spent_ += std::chrono::steady_clock::now() - start;
  // Those that were not met: they have ended meanwhile, or nothing could be stopped.
  for (const auto& [tid, periods] : due) lost_ += periods;
  if (!looked && looked.error().code() == ErrorCode::kTimeout) return {};
  return looked;
}

void StopSampler::finish_round() {
  std::erase_if(threads_, [this](const auto& thread) { return thread.second.round != round_; });
  ++round_;
  const std::chrono::nanoseconds least = std::chrono::seconds(1);
  due_ = std::chrono::steady_clock::now() +
         std::max({period_, least / kMostStops, spent_ * (kShare - 1)});
  spent_ = {};
}

}  // namespace trapline::session
