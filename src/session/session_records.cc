// The part of a session that takes data out of the traced processes and fires the tracer's own
// probes: drains, records in order of time, faults, losses.

#include <map>
#include <thread>
#include <utility>

#include "consume/merge.h"
#include "session/run_on_processor.h"
#include "session/session.h"
#include "wire/speculation.h"

namespace trapline::session {

namespace {

using SteadyClock = std::chrono::steady_clock;

// Of one drain: from here on buffers fill.
constexpr std::size_t kManyRecords = 1000;
constexpr int kDrainTries = 20;
constexpr std::chrono::microseconds kFiringTime{50};
// Looking whether a level was left costs a stop.
constexpr std::uint32_t kRoundsOfALeftLevel = 3;
constexpr std::chrono::milliseconds kLevelsPause{100};

}  // namespace

Result<> Session::drain(consume::DrainKind kind) {
  std::vector<std::vector<consume::Record>> records;  // by target
  left_some_ = false;
  const std::uint64_t counter = Clock::read_tsc();
  const std::uint64_t ns = Clock::monotonic_ns();
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    Target& target = targets_[i];
    if (!target.drainer && !target.outside) continue;
    const bool over = kind == consume::DrainKind::kFinal || target.tracee.ended();
    const std::uint64_t horizon = counter_trusted_ && target.tracee.reads_counter() ? counter : ns;
    if (target.outside) {
      OutsideEngine::Taken taken = target.outside->take(store_, over ? ~std::uint64_t{0} : horizon);
      for (consume::Record& record : taken.records) record.source = static_cast<std::uint32_t>(i);
      records.push_back(std::move(taken.records));
      untold_ += taken.drops;
      continue;
    }
    consume::DrainResult taken =
        target.drainer->drain(store_, over ? consume::DrainKind::kFinal : kind, horizon);
    for (consume::Record& record : taken.records) record.source = static_cast<std::uint32_t>(i);
    records.push_back(std::move(taken.records));
    left_some_ = left_some_ || !taken.busy.empty();
    if (!over) TL_TRY(free_left_levels(target, taken.busy));
    untold_ += taken.new_drops;
    if (taken.barrier_error && !barrier_failed_) {
      notes_.push_back("aggregations are read only when a process has ended: " +
                       taken.barrier_error->text());
      barrier_failed_ = true;
    }
  }
  std::vector<consume::Record> merged = consume::merge_by_time(std::move(records));
  busy_ = merged.size() >= kManyRecords;
  TL_TRY(take_profile_firings());
  TL_TRY(process_in_order(std::move(merged)));
  // As DTrace does, at most once in statusrate.
  if (SteadyClock::now() >= drops_due_) TL_TRY(tell_drops());
  return {};
}

// A level that stays busy round after round is one that its thread has left by siglongjmp from a
// signal handler, or with its life; or the thread is kept from running in the midst of it. It has
// left if it is outside of our code. A thread that calls probed functions all the time is hardly
// ever met there; but if all of its levels have been busy since the last look, and bodies have come
// and found none free, it is passing through such a body now, which holds none.
Result<> Session::free_left_levels(Target& target, std::span<const consume::BusyLevel> busy) {
  struct Left {
    const consume::BusyLevel* lowest = nullptr;
    std::uint32_t levels = 0;
    bool passed = false;  // bodies found no level since the last look
  };
  std::map<std::uint32_t, Left> slots;
  for (const consume::BusyLevel& level : busy) {
    if (level.rounds < kRoundsOfALeftLevel) continue;
    Left& left = slots[level.slot];
    if (left.lowest == nullptr || level.level < left.lowest->level) left.lowest = &level;
    ++left.levels;
  }
  // Rounds may follow one another at once; a thread that the scheduler keeps waiting is no reason
  // for a stop.
  const SteadyClock::time_point now = SteadyClock::now();
  const bool seen_before = std::exchange(target.levels_busy, !slots.empty());
  if (slots.empty() || (seen_before && now < target.levels_due)) return {};
  target.levels_due = now + kLevelsPause;
  if (!seen_before) return {};
  std::vector<std::uint64_t> owners;
  std::vector<const Left*> all;
  for (auto& [slot, left] : slots) {
    const auto [before, fresh] = target.level_drops.try_emplace(slot, left.lowest->drops);
    left.passed = !fresh && left.lowest->drops != before->second;
    before->second = left.lowest->drops;
    owners.push_back(left.lowest->owner);
    all.push_back(&left);
  }
  const Result<> looked =
      target.tracee.look_at_owners(owners, [&](std::size_t i, probes::Presence presence) {
        const Left& left = *all[i];
        const bool passing =
            presence == probes::Presence::kPassing && left.levels == wire::kLevels && left.passed;
        if (presence == probes::Presence::kOutside || passing)
          target.drainer->abandon_level(left.lowest->slot, left.lowest->level);
      });
  // One that cannot be stopped just now is looked at again.
  if (!looked && looked.error().code() == ErrorCode::kTimeout) return {};
  return looked;
}

Result<> Session::tell_drops() {
  if (environment_) untold_ += environment_->take_drops();
  untold_ += interpreter_.take_drops();
  if (profiler_) untold_.samples += profiler_->take_lost();
  if (!untold_.any()) return {};
  drops_due_ = SteadyClock::now() + std::chrono::nanoseconds(options_.period_ns("statusrate"));
  return output_.drops(std::exchange(untold_, {}));
}

// What a thread that is in the midst of a firing has counted before is taken when that is over: at
// once, unless the thread was interrupted there (or has left by siglongjmp, and never comes back).
Result<> Session::drain_now() {
  if (!running_) return {};
  for (int n = 0; n < kDrainTries; ++n) {
    TL_TRY(drain(consume::DrainKind::kRunning));
    if (!left_some_) break;
    std::this_thread::sleep_for(kFiringTime);
  }
  return tell_drops();
}

Result<> Session::print_now() {
  TL_TRY(drain_now());
  TL_TRY(output_.finish(store_));
  return output_.flush();
}

// ------------------------------------------------------------------------------------------------
// records

Result<> Session::fire_all(BuiltinKind kind, const TracerEnvironment::Arguments& arguments,
                           const About& about) {
  for (std::uint32_t i = 0; i < probes_.size(); ++i) {
    const auto* builtin = std::get_if<BuiltinProbe>(&probes_[i].what);
    if (builtin != nullptr && builtin->kind == kind) TL_TRY(fire(i, arguments, about));
  }
  return {};
}

Result<> Session::fire(std::uint32_t probe, const TracerEnvironment::Arguments& arguments,
                       const About& about) {
  const std::vector<std::uint32_t> clauses = probes_[probe].clauses;
  // What a clause recorded is dealt with before the next one runs: a fault fires ERROR at once, and
  // an exit() there ends this firing, too. END goes through all of its clauses.
  Subject& subject = about.subject != nullptr ? *about.subject : environment_->tracer();
  TracerEnvironment::Firing outer = environment_->begin(probe, names_[probe], arguments, subject);
  const std::size_t source = about.source != kNone ? about.source : globals_owner();
  Result<> done;
  for (const std::uint32_t clause : clauses) {
    std::optional<RunOnProcessor> there;
    if (about.cpu) there.emplace(*about.cpu);
    const interp::Outcome outcome = environment_->run(clause);
    there.reset();
    std::vector<consume::Record> records = environment_->take_records();
    for (consume::Record& record : records) record.source = static_cast<std::uint32_t>(source);
    done = process(std::move(records));
    if (!done) break;
    if (!ending_ && (outcome == interp::Outcome::kExit || exited())) break;
  }
  environment_->restore(std::move(outer));
  return done;
}

Result<> Session::process(std::vector<consume::Record> records) {
  for (const consume::Record& record : records) TL_TRY(process_one(record));
  return {};
}

// What the tracer has fired meanwhile, by samples, comes in between.
Result<> Session::process_in_order(std::vector<consume::Record> records) {
  for (const consume::Record& record : records) {
    if (!profile_firings_.empty()) TL_TRY(fire_profile(nanoseconds(record.tsc)));
    TL_TRY(process_one(record));
  }
  return fire_profile(~std::uint64_t{0});
}

Result<> Session::process_one(const consume::Record& record) {
  TL_TRY_ASSIGN(const report::RecordInterpreter::Outcome outcome, interpreter_.run(record));
  // The first one holds, but for what END says.
  if (outcome.exit_status && (running_ || ending_ || !exit_status_)) {
    exit_status_ = *outcome.exit_status;
    running_ = false;
  }
  if (record.kind == consume::kFaultRecord) TL_TRY(report_fault(record));
  return {};
}

Result<> Session::set_option(std::string_view name, std::string_view value) {
  const plan::OptionInfo* info = plan::find_option(name);
  if (info == nullptr) return Error(ErrorCode::kBadInput, "Invalid option name");
  if (!info->while_running)
    return Error(ErrorCode::kBadInput, "Operation illegal when tracing is active");
  if (!options_.set(name, value))
    return Error(ErrorCode::kBadInput, "Invalid value for specified option");
  output_.set_options(report::print_options(options_, output_.options()));
  return {};
}

void Session::free_speculation(std::uint32_t source, std::uint32_t token) {
  std::span<std::byte> where = globals();
  if (source < targets_.size() && targets_[source].program) {
    Target& target = targets_[source];
    where = target.tracee.arena().subspan(target.program->layout.globals, program_.globals_size);
  }
  auto* words = reinterpret_cast<std::uint32_t*>(where.data() + program_.speculations_offset);
  wire::speculation_free(words, program_.speculations, token);
}

// The ERROR probe's arguments: arg1 the probe's ID, arg2 the clause, arg3 the instruction, arg4 the
// fault, arg5 the address.
Result<> Session::report_fault(const consume::Record& record) {
  const std::optional<consume::FaultFields> fault = consume::fault_of(record);
  const plan::ProbeName* probe = interpreter_.probe_of(record);
  if (in_error_ || !fault || probe == nullptr) return {};
  in_error_ = true;
  // Of a sample's clause, it is about that thread as well.
  const About about{&environment_->subject(), record.source, cpu_};
  const Result<> done = fire_all(
      BuiltinKind::kError,
      {0, probe->id, record.clause, fault->instruction, fault->fault, fault->address, 0, 0, 0, 0},
      about);
  in_error_ = false;
  return done;
}

}  // namespace trapline::session
