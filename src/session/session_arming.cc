// The part of a session that puts probes in place: what is compiled, mapped and armed for each
// process, and again when it has executed another program.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "session/processors.h"
#include "session/session.h"
#include "target/process.h"
#include "wire/layout.h"

namespace trapline::session {

namespace {

// For the names of probes in modules to come, in bytes.
constexpr std::size_t kSpareStrings = std::size_t{256} << 10;

}  // namespace

// Compiles for one process, unless what there is will do. A process without probes is left alone.
Result<> Session::build(std::size_t index) {
  Target& target = targets_[index];
  const std::size_t threads = target.tracee.thread_count();
  if (target.program) {
    // Half of the table of slots may be taken; a new one leaves more room.
    if (2 * threads <= target.program->layout.slot_count) return {};
    TL_TRY(match_again(index));
  }
  if (target.sites.plans.site_count() == 0 && !target.later.any) return {};
  const ArenaWishes wishes{threads, mute_offset_,
                           target.later.any || options_.flag("follow") ? kSpareStrings : 0};
  TL_TRY_ASSIGN(TargetProgram built,
                build_target_program(context(), target.sites, target.later.bodies, wishes));
  target.program = std::make_unique<TargetProgram>(std::move(built));
  target.sites = {};
  return {};
}

// engine=auto takes the engine that needs no memory where there is no other.
Result<> Session::reserve_or_outside(std::size_t index) {
  Target& target = targets_[index];
  Result<> reserved = reserve(index);
  if (reserved || !target.tracee.refuses_mappings() || target.only_outside) return reserved;
  target.only_outside = true;
  const auto engine = engine_for(target, target::read_status(target.tracee.pid()));
  if (!engine || options_.text("engine") != "auto") {
    target.only_outside = false;
    if (!engine) return reserved;
    return Error(reserved.error().code(),
                 reserved.error().text() +
                     "; -x engine=outside traces it by breakpoints, with nothing mapped into it");
  }
  notes_.push_back(fmt::format("pid {} is traced by breakpoints, with nothing mapped into it: {}",
                               target.tracee.pid().value, reserved.error().text()));
  TL_TRY(match_again(index));
  return reserve(index);
}

// Maps what one process needs.
Result<> Session::reserve(std::size_t index) {
  Target& target = targets_[index];
  target.drainer.reset();
  target.outside.reset();
  TL_TRY(build(index));
  if (!target.program) return {};
  const std::uint64_t most_memory =
      options_.flag("force") ? ~std::uint64_t{0} : probes::kQuietMemory;
  const auto reserved = target.tracee.reserve(*target.program, most_memory);
  if (!reserved) return reserved.error().within(fmt::format("pid {}", target.tracee.pid().value));
  std::ranges::move(target.tracee.take_notes(), std::back_inserter(notes_));
  const std::span<std::byte> arena = target.tracee.arena();
  fill_arena(*target.program, arena, target.tracee.pid(),
             target::command_name(target.tracee.pid()));
  fill_processors(program_, arena.subspan(target.program->layout.globals, program_.globals_size));
  auto* header = reinterpret_cast<wire::Header*>(arena.data());
  target.tracee.fill_header(*header);
  clock_.calibrate();
  clock_.fill_header(*header);
  if (!target.tracee.reads_counter()) header->tsc_mult = 0;
  if (target.program->batches.front()->sites.is_outside()) {
    serve_outside(target);
    return {};
  }
  TL_TRY_ASSIGN(consume::Drainer drainer,
                consume::Drainer::create(arena, target.program->layout, program_));
  target.drainer.emplace(std::move(drainer));
  return {};
}

// The serving thread may still be at the engine of the image before.
void Session::serve_outside(Target& target) {
  Tracee& tracee = target.tracee;
  const auto cpus = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  target.outside = std::make_shared<OutsideEngine>(
      program_, tracee.pid(), tracee.arena(), target.program->layout,
      static_cast<std::uint64_t>(options_.number("bufsize") * cpus));
  for (const auto& batch : target.program->batches)
    target.outside->add(*batch, tracee.modules(), probes_);
  const auto status = target::read_status(tracee.pid());
  const bool shadow_stack = status && status->shadow_stack;
  tracee.serve_outside(
      {[engine = target.outside](Tid tid, RemoteAddr at, const target::Registers& registers) {
         engine->hit(tid, at, registers);
       },
       [engine = target.outside](Tid tid) { engine->thread_ended(tid); },
       shadow_stack ? target::ShadowStack::kYes : target::ShadowStack::kNo});
}

Result<> Session::arm(std::size_t index) {
  Target& target = targets_[index];
  if (!target.program) return {};
  Result<> done = target.tracee.prepare();
  if (done) done = target.tracee.arm();
  // Of breakpoints nobody needs to be told who has asked for them.
  std::vector<std::string> notes = target.tracee.take_notes();
  const std::string engine = options_.text("engine");
  if (engine != "trap" && engine != "outside") std::ranges::move(notes, std::back_inserter(notes_));
  if (!done && done.error().code() != ErrorCode::kTargetGone) {
    return done.error().within(fmt::format("pid {}", target.tracee.pid().value));
  }
  return {};
}

// The process whose globals the tracer's own clauses use: the first that is traced; one beyond the
// last: none, they are the tracer's.
std::size_t Session::globals_owner() const {
  std::size_t i = 0;
  while (i < targets_.size() && !targets_[i].program) ++i;
  return i;
}

std::span<std::byte> Session::globals() {
  const std::size_t owner = globals_owner();
  if (owner < targets_.size()) {
    Target& target = targets_[owner];
    return target.tracee.arena().subspan(target.program->layout.globals, program_.globals_size);
  }
  return std::as_writable_bytes(std::span(own_globals_)).first(program_.globals_size);
}

// A process that executed a new program has none of our memory any more: its last data is taken,
// then it is armed anew.
Result<> Session::arm_again(std::size_t index) {
  Target& target = targets_[index];
  if (target.drainer || target.outside) TL_TRY(drain(consume::DrainKind::kFinal));
  // The old arena stays mapped here until reserve() replaces it: its globals go on in own_globals_.
  const std::span<std::byte> old = globals();
  if (!old.empty()) std::memmove(own_globals_.data(), old.data(), old.size());
  if (!target.tracee.held()) {
    notes_.push_back(
        fmt::format("pid {} executed a new program: what it called before the probes were armed "
                    "again was missed",
                    target.tracee.pid().value));
  }
  watch_requests(index);
  target.tracee.forget();
  target.drainer.reset();
  target.outside.reset();
  target.program.reset();
  if (const auto loaded = target.tracee.load(); !loaded) {
    if (loaded.error().code() == ErrorCode::kTargetGone) return {};
    return loaded.error();
  }
  TL_TRY(match_again(index));
  TL_TRY(reserve_or_outside(index));
  if (target.program && !own_globals_.empty()) {
    std::memcpy(target.tracee.arena().data() + target.program->layout.globals, own_globals_.data(),
                program_.globals_size);
  }
  TL_TRY(arm(index));
  environment_->set_globals(globals());
  activate(target);
  watch_requests();
  return {};
}

// For the modules that a process has now.
Result<> Session::match_again(std::size_t index) {
  Target& target = targets_[index];
  target.program.reset();
  const std::vector<MatchTarget> match{match_target(index, target.tracee.modules().mapped())};
  const std::vector<PlacedProbe> placed = number(index, enable(program_, match, next_id_));
  return plan(index, placed);
}

std::size_t Session::armed_count() const {
  std::vector<std::size_t> places(probes_.size());
  const auto count = [&](const PlannedSites& sites) {
    for (const probes::ModuleSites& module : sites.plans.modules) {
      for (const isa::SitePlan& site : module.sites) {
        for (const isa::PlannedPoint& point : site.points) {
          const std::uint32_t number = sites.plans.uses[point.tag].probe;
          if (sites.is_probe(number)) ++places[sites.probes[number]];
        }
      }
    }
  };
  for (const Target& target : targets_) {
    if (!target.program) continue;
    for (const auto& batch : target.program->batches) count(batch->sites);
    for (const probes::RefusedPlace& refused : target.tracee.refused()) --places[refused.probe];
  }
  std::size_t armed = 0;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (places[i] != 0 || std::holds_alternative<BuiltinProbe>(probes_[i].what)) ++armed;
  }
  return armed;
}

}  // namespace trapline::session
