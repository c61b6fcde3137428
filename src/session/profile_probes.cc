// The part of a session that makes profile-N fire: its samples (profiler.h) are evaluated by the
// tracer, each about the thread that it found, in order with what that process recorded.
//
// A sampled thread that has fired a pid probe has a slot, whose self variables are the sample's as
// well. One that has none has variables here, which its pid probes do not see.

#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "session/sample_subject.h"
#include "session/session.h"

namespace trapline::session {

namespace {

constexpr std::size_t kMostSelfAreas = 4096;

}  // namespace

Result<> Session::create_profiler() {
  profile_firings_.clear();
  profiler_.reset();
  std::vector<Profiler::Probe> probes;
  for (std::uint32_t i = 0; i < probes_.size(); ++i) {
    const auto* builtin = std::get_if<BuiltinProbe>(&probes_[i].what);
    if (builtin != nullptr && builtin->kind == BuiltinKind::kProfile)
      probes.push_back({i, builtin->period});
  }
  if (probes.empty()) return {};
  std::vector<Pid> pids;
  for (const Target& target : targets_) {
    if (!target.tracee.ended()) pids.push_back(target.tracee.pid());
  }
  const std::string sampling = options_.text("sampling");
  Profiler::Wishes wishes;
  wishes.sampling = sampling;
  wishes.cpu = cpu_;
  if (options_.flag("follow")) wishes.children = target::CpuSampler::Children::kIncluded;
  TL_TRY_ASSIGN(profiler_, Profiler::create(probes, pids, wishes));
  // What may mislead is told to everybody.
  const bool alone = profiler_->sampling() == Sampling::kTimers && sampling == "auto";
  (alone ? notes_ : verbose_notes_).push_back(profiler_->note());
  return {};
}

Result<> Session::begin_profiler() {
  return profiler_ && running_ ? profiler_->begin() : Result<>();
}

Result<> Session::take_profile_firings() {
  if (!profiler_ || !environment_) return {};
  std::vector<Tracee*> tracees;
  for (Target& target : targets_) {
    if (running_ && !target.over && !target.tracee.ended()) tracees.push_back(&target.tracee);
  }
  TL_TRY_ASSIGN(std::vector<ProfileFiring> firings, profiler_->take(tracees));
  std::ranges::move(firings, std::back_inserter(profile_firings_));
  return {};
}

Result<> Session::fire_profile(std::uint64_t until) {
  while (!profile_firings_.empty() && profile_firings_.front().time <= until) {
    const ProfileFiring firing = std::move(profile_firings_.front());
    profile_firings_.pop_front();
    if (exited()) continue;
    if (firing.sample) {
      TL_TRY(fire_sample(firing));
    } else {
      TL_TRY(fire(firing.probe, {0, tracer_pc()}, {nullptr, kNone, firing.cpu}));
    }
  }
  return {};
}

// With -x cpu the tracer has samples of that processor alone, or fire_sample() leaves others out.
Result<> Session::fire_sample(const ProfileFiring& firing) {
  const target::CpuSample& sample = *firing.sample;
  if (cpu_ && sample.cpu != *cpu_) return {};
  const auto found = std::ranges::find_if(targets_, [&](const Target& target) {
    return !target.over && target.tracee.pid() == sample.pid;
  });
  About about;
  SampleSubject::Place place;
  if (found != targets_.end()) {
    const auto index = static_cast<std::size_t>(found - targets_.begin());
    place.traced = !found->tracee.ended();
    if (found->program) {
      about.source = index;
      place.globals =
          found->tracee.arena().subspan(found->program->layout.globals, program_.globals_size);
    }
    place.self = self_of(index, sample);
  } else if (profiler_->sampling() != Sampling::kMachine) {
    return {};  // a child's, that the kernel could not leave out
  } else {
    place.self = self_of(kNone, sample);
  }
  SampleSubject subject(sample, place);
  about.subject = &subject;
  return fire(firing.probe, {sample.kernel_pc, sample.user_pc}, about);
}

std::span<std::byte> Session::self_of(std::size_t index, const target::CpuSample& sample) {
  if (program_.self_size == 0) return {};
  if (index != kNone && targets_[index].program) {
    const wire::Layout& layout = targets_[index].program->layout;
    const std::span<std::byte> arena = targets_[index].tracee.arena();
    for (std::uint32_t i = 0; i < layout.slot_count; ++i) {
      const std::uint64_t at = layout.slots + i * layout.slot_stride;
      const auto* slot = reinterpret_cast<const wire::Slot*>(arena.data() + at);
      if (__atomic_load_n(&slot->owner, __ATOMIC_RELAXED) != 0 &&
          __atomic_load_n(&slot->tid, __ATOMIC_RELAXED) ==
              static_cast<std::uint32_t>(sample.tid.value))
        return arena.subspan(at + layout.slot_self, program_.self_size);
    }
  }
  if (sampled_self_.size() >= kMostSelfAreas) {
    std::erase_if(sampled_self_, [](const auto& entry) {
      return ::kill(entry.first.second, 0) != 0 && errno == ESRCH;
    });
  }
  std::vector<std::uint64_t>& words = sampled_self_[{sample.pid.value, sample.tid.value}];
  words.resize((program_.self_size + 7) / 8);
  return std::as_writable_bytes(std::span(words));
}

}  // namespace trapline::session
