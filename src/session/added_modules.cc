// The part of a session that deals with modules that come and go while it runs (see
// docs/decisions/0011-modules-that-come-and-go.md).
//
// A thread that loads or unloads waits in the loader until the new modules' probes are in place and
// the old ones' are forgotten. Of what a process does not tell (a loader without the function that
// carries the rendezvous, a static program's, a filtered one's; a wait that was too short) a
// comparison of its executable mappings, now and then, finds out late.

#include <fmt/format.h>

#include <algorithm>

#include "session/session.h"

namespace trapline::session {

namespace {

constexpr std::chrono::seconds kComparisonPause{1};

std::string names_of(const probes::ModuleCache& cache, const std::vector<std::size_t>& modules) {
  std::string names;
  for (const std::size_t i : modules) {
    if (!names.empty()) names += ", ";
    names += cache.module(i).name;
  }
  return names;
}

}  // namespace

Result<> Session::update_modules(std::size_t index, Told told) {
  Target& target = targets_[index];
  target.modules_changing = false;
  if (!target.program) return {};
  const auto changes = target.tracee.module_changes();
  if (!changes) {
    return changes.error().code() == ErrorCode::kTargetGone ? Result<>{} : changes.error();
  }
  std::vector<std::size_t> known;
  std::vector<std::size_t> fresh;
  for (const std::size_t module : changes->came)
    (target.matched_modules.contains(module) ? known : fresh).push_back(module);
  Result<> done;
  if (!known.empty()) done = target.tracee.arm_again(known);
  if (done && !fresh.empty()) done = add_modules(index, fresh, told);
  // A process that ends in the midst is an ordinary thing; one that cannot be armed goes on
  // without.
  if (done || done.error().code() == ErrorCode::kTargetGone) return {};
  notes_.push_back(
      fmt::format("pid {}: the probes of {} could not be armed: {}", target.tracee.pid().value,
                  names_of(target.tracee.modules(), changes->came), done.error().text()));
  return {};
}

Result<> Session::add_modules(std::size_t index, const std::vector<std::size_t>& modules,
                              Told told) {
  Target& target = targets_[index];
  target.matched_modules.insert(modules.begin(), modules.end());
  const std::vector<MatchTarget> match{match_target(index, modules)};
  const Enabling found = enable(program_, match, next_id_);
  const std::vector<PlacedProbe> placed = number(index, found);
  std::ranges::copy(found.notes, std::back_inserter(verbose_notes_));
  if (placed.empty()) return {};
  const auto status = target::read_status(target.tracee.pid());
  const auto engine = engine_for(target, status);
  PlannedSites sites = plan_sites(
      placed, target.tracee.modules(), {},
      status && status->shadow_stack ? probes::ShadowStack::kYes : probes::ShadowStack::kNo,
      engine ? *engine : Engine::kNoTraps);
  TL_TRY_ASSIGN(const auto batch, add_batch(context(), *target.program, std::move(sites)));
  fill_names(*target.program, target.tracee.arena(), target.tracee.pid());
  if (target.outside) target.outside->add(*batch, target.tracee.modules(), probes_);
  TL_TRY_ASSIGN(const std::vector<const ProbeBatch*> released, target.tracee.add(batch));
  std::erase_if(target.program->batches, [&](const std::shared_ptr<const ProbeBatch>& known) {
    return std::ranges::find(released, known.get()) != released.end();
  });
  tell_refusals(index, *batch);
  if (told == Told::kNo) {
    notes_.push_back(
        fmt::format("pid {} loaded {} before its probes could be armed: earlier calls were missed",
                    target.tracee.pid().value, names_of(target.tracee.modules(), modules)));
  }
  return {};
}

void Session::tell_refusals(std::size_t index, const ProbeBatch& batch) {
  for (const probes::RefusedPlace& place : batch.sites.plans.refused)
    new_refusals_.push_back(refusal(batch.sites.probes[place.probe], place));
  for (const probes::RefusedPlace& place : targets_[index].tracee.refused(&batch))
    new_refusals_.push_back(refusal(place.probe, place));
}

// Where loads are told, a change may be one that is just being told: it counts when it is still
// there the next time, or when it is known that one was missed.
Result<> Session::compare_modules() {
  const auto now = std::chrono::steady_clock::now();
  const bool due = now >= next_comparison_;
  if (due) next_comparison_ = now + kComparisonPause;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    Target& target = targets_[i];
    if (!target.program || !target.later.any || !target.tracee.active()) continue;
    const bool missed = target.tracee.take_missed_loads() != 0;
    if (!due && !missed) continue;
    const auto changed = target.tracee.modules_changed();
    if (!changed) continue;  // it has ended, or is just executing another program
    const bool told = target.program->batches.front()->sites.told.loads;
    const bool settled = !told || missed || target.modules_changing;
    target.modules_changing = *changed;
    if (*changed && settled) TL_TRY(update_modules(i, Told::kNo));
  }
  return {};
}

void Session::watch_requests(std::size_t without) {
  std::vector<wire::Header*> headers;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    wire::Header* const header = targets_[i].tracee.header();
    if (header != nullptr && i != without) headers.push_back(header);
  }
  requests_.watch(std::move(headers));
}

}  // namespace trapline::session
