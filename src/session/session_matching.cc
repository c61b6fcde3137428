// The part of a session that finds probes: what descriptions match in each process, how probes are
// numbered, by which engine they are planned, and what is refused.

#include <fmt/format.h>
#include <signal.h>

#include "session/session.h"
#include "target/process.h"

namespace trapline::session {

MatchTarget Session::match_target(std::size_t index, std::vector<std::size_t> modules) {
  Target& target = targets_[index];
  return {target.family, &target.tracee.modules(), std::move(modules)};
}

Result<> Session::find() {
  std::vector<MatchTarget> match_targets;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    Tracee& tracee = targets_[i].tracee;
    const auto loaded = tracee.load();
    if (!loaded) return loaded.error().within(fmt::format("pid {}", tracee.pid().value));
    match_targets.push_back(match_target(i, tracee.modules().mapped()));
  }
  enabling_ = enable(program_, match_targets, next_id_);
  std::vector<std::vector<PlacedProbe>> placed(targets_.size());
  for (const EnabledProbe& probe : enabling_.probes) {
    const std::uint32_t number = add_probe(probe);
    if (const auto* point = std::get_if<PidPoint>(&probe.what))
      placed[point->target].push_back({number, point->function, point->point, point->by_name});
  }
  for (std::size_t i = 0; i < targets_.size(); ++i) TL_TRY(plan(i, placed[i]));
  return {};
}

// A rendezvous makes system calls, which a seccomp filter might answer by killing.
Result<> Session::plan(std::size_t index, std::span<const PlacedProbe> placed) {
  Target& target = targets_[index];
  const std::vector<std::size_t> modules = target.tracee.modules().mapped();
  target.matched_modules.clear();
  target.matched_modules.insert(modules.begin(), modules.end());
  target.later = later_probes(program_, match_target(index, modules));
  const auto status = target::read_status(target.tracee.pid());
  TL_TRY_ASSIGN(const Engine engine, engine_for(target, status));
  const bool free = status && status->seccomp == 0 && engine != Engine::kOutside;
  RendezvousWishes wishes;
  const bool follow = options_.flag("follow");
  wishes.execs = free && (!placed.empty() || target.later.any || follow);
  wishes.loads = free && target.later.any;
  wishes.forks = free && follow;
  target.sites = plan_sites(
      placed, target.tracee.modules(), wishes,
      status && status->shadow_stack ? probes::ShadowStack::kYes : probes::ShadowStack::kNo,
      engine);
  return {};
}

// By the option, as far as the process allows it: hitting an int3 while SIGTRAP is blocked or
// ignored makes the kernel reset the handler, so one that has something to lose gets none.
Result<Engine> Session::engine_for(const Target& target,
                                   const Result<target::TaskStatus>& status) const {
  constexpr std::uint64_t kSigtrap = 1u << (SIGTRAP - 1);
  const std::string asked = target.only_outside ? "outside" : options_.text("engine");
  const bool only_traps = asked == "trap" || asked == "outside";
  const bool follow = options_.flag("follow");
  const bool uses_traps =
      !status || ((status->caught_signals | status->ignored_signals) & kSigtrap) != 0;
  if (only_traps && follow) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("engine={} together with follow is not offered yet", asked));
  }
  if (only_traps && uses_traps) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("engine={} is not possible where the process handles or ignores "
                             "SIGTRAP itself",
                             asked));
  }
  if (asked == "outside") return Engine::kOutside;
  if (uses_traps || follow) return Engine::kNoTraps;
  if (asked == "inline") return Engine::kInline;
  return asked == "trap" ? Engine::kTrap : Engine::kAuto;
}

std::uint32_t Session::add_probe(EnabledProbe probe) {
  const auto number = static_cast<std::uint32_t>(probes_.size());
  names_.push_back(probe.name);
  next_id_ = std::max(next_id_, probe.name.id + 1);
  probes_.push_back(std::move(probe));
  return number;
}

// Probes of a module that comes again, and of one that another program has too, keep their number
// and id: what is known of probes does not grow with each dlopen.
std::vector<PlacedProbe> Session::number(std::size_t index, const Enabling& found) {
  if (probe_index_.empty()) {
    for (std::uint32_t i = 0; i < probes_.size(); ++i)
      probe_index_.emplace(full_name(probes_[i].name), i);
  }
  std::set<std::uint32_t> taken;
  if (targets_[index].program) {
    for (const auto& batch : targets_[index].program->batches)
      taken.insert(batch->sites.probes.begin(), batch->sites.probes.end());
  }
  std::vector<PlacedProbe> placed;
  for (const EnabledProbe& probe : found.probes) {
    const auto* point = std::get_if<PidPoint>(&probe.what);
    if (point == nullptr) continue;
    placed.push_back({number_of(probe, taken), point->function, point->point, point->by_name});
  }
  return placed;
}

std::uint32_t Session::number_of(const EnabledProbe& probe, std::set<std::uint32_t>& taken) {
  const std::string name = full_name(probe.name);
  const auto [first, last] = probe_index_.equal_range(name);
  for (auto known = first; known != last; ++known) {
    if (probes_[known->second].clauses == probe.clauses && taken.insert(known->second).second)
      return known->second;
  }
  EnabledProbe fresh = probe;
  fresh.name.id = next_id_;
  const std::uint32_t number = add_probe(std::move(fresh));
  probe_index_.emplace(name, number);
  taken.insert(number);
  return number;
}

std::vector<Refusal> Session::refusals() const {
  std::vector<Refusal> all;
  const auto add_planned = [&](const PlannedSites& sites) {
    for (const probes::RefusedPlace& place : sites.plans.refused)
      all.push_back(refusal(sites.probes[place.probe], place));
  };
  for (const Target& target : targets_) {
    add_planned(target.sites);
    if (!target.program) continue;
    for (const auto& batch : target.program->batches) add_planned(batch->sites);
    for (const probes::RefusedPlace& place : target.tracee.refused())
      all.push_back(refusal(place.probe, place));
  }
  return all;
}

Refusal Session::refusal(std::uint32_t probe, const probes::RefusedPlace& place) const {
  return {names_[probe], place.at.value(), place.reason, place.detail};
}

}  // namespace trapline::session
