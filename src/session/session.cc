#include "session/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "consume/merge.h"
#include "session/processors.h"
#include "session/run_on_processor.h"
#include "target/process.h"
#include "wire/layout.h"
#include "wire/speculation.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// How often arenas are drained: rarely while little happens, often while buffers fill.
constexpr milliseconds kIdlePause{50};
constexpr milliseconds kBusyPause{5};
constexpr std::size_t kManyRecords = 1000;
constexpr int kDrainTries = 20;
// Looking whether a level was left costs a stop.
constexpr std::uint32_t kRoundsOfALeftLevel = 3;
constexpr milliseconds kLevelsPause{100};
constexpr std::chrono::microseconds kFiringTime{50};
// For the names of probes in modules to come, in bytes.
constexpr std::size_t kSpareStrings = std::size_t{256} << 10;
constexpr std::int64_t kMaxBufsize = std::int64_t{1} << 40;

// -x cpu: the one processor on which probes fire.
Result<std::optional<std::uint32_t>> chosen_processor(const plan::Options& options) {
  if (!options.is_set("cpu")) return std::optional<std::uint32_t>();
  const std::int64_t cpu = options.number("cpu");
  const std::vector<std::uint32_t> allowed = allowed_processors();
  if (std::ranges::find(allowed, cpu) == allowed.end()) {
    return Error(ErrorCode::kBadInput,
                 fmt::format("could not enable tracing: there is no CPU {} that may be used", cpu));
  }
  return std::optional(static_cast<std::uint32_t>(cpu));
}

std::string execname_of(const Tracee& tracee) { return target::command_name(tracee.pid()); }

}  // namespace

Session::Session(const plan::Program& program, plan::Options options, std::vector<Tracee> tracees,
                 report::Output& output)
    : program_(program),
      options_(std::move(options)),
      output_(output),
      store_(program),
      own_globals_((program.globals_size + 7) / 8),
      interpreter_(program, names_, store_, output) {
  for (Tracee& tracee : tracees) targets_.emplace_back(std::move(tracee));
  interpreter_.set_session(
      {[this](std::string_view name, std::string_view value) { return set_option(name, value); },
       [this](std::uint32_t source, std::uint32_t token) { free_speculation(source, token); },
       static_cast<std::uint64_t>(std::max<std::int64_t>(options_.number("specsize"), 0))});
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  child_events_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
}

Session::~Session() = default;

// ------------------------------------------------------------------------------------------------
// find

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

// ------------------------------------------------------------------------------------------------
// start

Result<> Session::compile() {
  for (std::size_t i = 0; i < targets_.size(); ++i) TL_TRY(build(i));
  return {};
}

Result<> Session::start() {
  if (program_.destructive && !options_.flag("destructive")) {
    return Error(ErrorCode::kBadInput, "could not enable tracing: Destructive actions not allowed");
  }
  const std::int64_t bufsize = options_.number("bufsize");
  if (bufsize <= 0)
    return Error(ErrorCode::kBadInput, "could not enable tracing: bufsize must not be 0");
  if (bufsize > kMaxBufsize && options_.text("bufresize") == "manual")
    return Error(ErrorCode::kBadInput, "could not enable tracing: Memory allocation failure");
  TL_TRY_ASSIGN(cpu_, chosen_processor(options_));
  exit_status_.reset();
  ticks_.clear();
  sampled_self_.clear();
  std::ranges::fill(own_globals_, 0);
  fill_processors(program_, std::as_writable_bytes(std::span(own_globals_)));
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    TL_TRY_ASSIGN(const Loaded loaded, targets_[i].tracee.load());
    const auto& program = targets_[i].program;
    if (loaded == Loaded::kAnew || (program && program->batches.size() > 1)) TL_TRY(match_again(i));
    TL_TRY(reserve_or_outside(i));
  }
  environment_ = std::make_unique<TracerEnvironment>(
      program_, globals(), store_,
      [this](RemoteAddr from, std::span<std::byte> out) {
        return !targets_.empty() && targets_.front().tracee.reads_memory(from, out);
      },
      [this](RemoteAddr to, std::span<const std::byte> bytes) {
        return !targets_.empty() && targets_.front().tracee.writes_memory(to, bytes);
      });
  environment_->set_invoker(invoker_);
  for (std::size_t i = 0; i < targets_.size(); ++i) TL_TRY(arm(i));
  TL_TRY(create_profiler());
  // Everything is in place and nothing counts yet: BEGIN is the first probe that fires.
  running_ = true;
  TL_TRY(fire_all(BuiltinKind::kBegin, {}, about_tracer()));
  const SteadyClock::time_point now = SteadyClock::now();
  for (std::uint32_t i = 0; i < probes_.size(); ++i) {
    const auto* builtin = std::get_if<BuiltinProbe>(&probes_[i].what);
    if (builtin == nullptr || builtin->kind != BuiltinKind::kTick) continue;
    ticks_.push_back({i, builtin->period, now + builtin->period});
  }
  TL_TRY(begin_profiler());
  for (std::size_t i = 0; i < targets_.size() && running_; ++i) {
    share_globals(i);
    activate(targets_[i]);
  }
  watch_requests();
  return output_.flush();
}

void Session::activate(Target& target) {
  if (options_.flag("follow")) target.tracee.follow();
  if (options_.flag("follow") &&
      !(target.program && target.program->batches.front()->sites.told.forks)) {
    notes_.push_back(fmt::format(
        "children of pid {} are not followed: it cannot tell of them (a seccomp filter, or no "
        "function that makes processes)",
        target.tracee.pid().value));
  }
  const bool told = target.program && target.program->batches.front()->sites.told.execs;
  target.tracee.activate(told ? ExecsTold::kYes : ExecsTold::kNo);
  next_comparison_ = {};
}

// What BEGIN assigned holds in every process; each then has its own globals.
void Session::share_globals(std::size_t index) {
  Target& target = targets_[index];
  const std::span<std::byte> from = globals();
  if (!target.program || from.empty()) return;
  std::byte* to = target.tracee.arena().data() + target.program->layout.globals;
  if (to != from.data()) std::memcpy(to, from.data(), from.size());
}

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
  fill_arena(*target.program, arena, target.tracee.pid(), execname_of(target.tracee));
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

// ------------------------------------------------------------------------------------------------
// step

Result<> Session::step(int fd) {
  std::vector<pollfd> fds;
  if (fd >= 0) fds.push_back({fd, POLLIN, 0});
  for (const int event : event_fds()) fds.push_back({event, POLLIN, 0});
  (void)::poll(fds.data(), fds.size(), static_cast<int>(time_to_wait().count()));
  return work();
}

std::vector<int> Session::event_fds() const {
  std::vector<int> fds;
  if (child_events_ && !any_served()) fds.push_back(child_events_.get());
  if (requests_.event_fd() >= 0) fds.push_back(requests_.event_fd());
  for (const Target& target : targets_) {
    if (!target.tracee.ended()) fds.push_back(target.tracee.event_fd());
  }
  return fds;
}

Result<> Session::work() {
  if (child_events_ && !any_served()) {
    signalfd_siginfo ignored{};
    while (::read(child_events_.get(), &ignored, sizeof(ignored)) > 0) {
    }
  }
  requests_.take();
  for (std::size_t i = 0; i < targets_.size(); ++i) TL_TRY(look_at(i));
  TL_TRY(compare_modules());
  for (Target& target : targets_) {
    if (target.tracee.early()) TL_TRY(target.tracee.end_early());
    target.tracee.enter_more();
  }
  TL_TRY(drain(consume::DrainKind::kRunning));
  retire_children();
  if (running_) TL_TRY(run_ticks());
  if (!targets_.empty() && all_ended()) running_ = false;
  return output_.flush();
}

Result<> Session::look_at(std::size_t index) {
  if (targets_[index].over) return {};
  TL_TRY_ASSIGN(const Happening happening, targets_[index].tracee.look());
  for (Tracee::Child& child : targets_[index].tracee.take_children())
    TL_TRY(follow_child(index, std::move(child)));
  if (happening == Happening::kExecuted) return arm_again(index);
  if (happening != Happening::kLoading) return {};
  const Result<> done = update_modules(index, Told::kYes);
  targets_[index].tracee.answer_load();
  return done;
}

// SIGCHLD comes with every breakpoint that is hit, and is for the thread that serves them.
bool Session::any_served() const {
  return std::ranges::any_of(targets_, [](const Target& target) { return target.tracee.served(); });
}

bool Session::all_ended() const {
  return std::ranges::all_of(targets_, [](const Target& target) { return target.tracee.ended(); });
}

milliseconds Session::time_to_wait() const {
  const bool any_arena =
      std::ranges::any_of(targets_, [](const Target& t) { return t.drainer || t.outside; });
  milliseconds wait = busy_ ? kBusyPause : any_arena ? kIdlePause : milliseconds(100);
  for (const Target& target : targets_) {
    if (target.tracee.about_to_exec()) wait = std::min(wait, kBusyPause);
    if (target.tracee.has_more_to_enter()) wait = milliseconds(0);
  }
  const SteadyClock::time_point now = SteadyClock::now();
  const auto wait_for = [&](SteadyClock::time_point due) {
    wait = std::clamp(std::chrono::ceil<milliseconds>(due - now), milliseconds(0), wait);
  };
  for (const Tick& tick : ticks_) wait_for(tick.due);
  if (profiler_) wait_for(profiler_->due());
  return wait;
}

Result<> Session::run_ticks() {
  for (Tick& tick : ticks_) {
    const SteadyClock::time_point now = SteadyClock::now();
    if (now < tick.due || !running_) continue;
    // A late tick fires once; the ones that were missed meanwhile are not made up for.
    const auto behind = (now - tick.due) / tick.period;
    tick.due += tick.period * (behind + 1);
    TL_TRY(take_profile_firings());
    TL_TRY(fire_profile(Clock::monotonic_ns()));
    if (!running_) break;
    TL_TRY(fire(tick.probe, {0, tracer_pc()}, about_tracer()));
  }
  return {};
}

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
  if (slots.empty() || SteadyClock::now() < target.levels_due) return {};
  target.levels_due = SteadyClock::now() + kLevelsPause;
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

// ------------------------------------------------------------------------------------------------
// stop

Result<> Session::stop() {
  running_ = false;
  std::optional<Error> failed;
  requests_.watch({});
  for (Target& target : targets_) target.tracee.deactivate();
  for (Target& target : targets_) {
    if (exit_status_) target.tracee.kill_launched();
    auto left = target.tracee.disarm();
    if (left) {
      std::ranges::move(*left, std::back_inserter(notes_));
    } else if (!failed) {
      failed = left.error().within(fmt::format("restoring pid {}", target.tracee.pid().value));
    }
  }
  TL_TRY(drain(consume::DrainKind::kFinal));
  ending_ = true;
  const Result<> ended =
      environment_ ? fire_all(BuiltinKind::kEnd, {}, about_tracer()) : Result<>{};
  ending_ = false;
  if (!ended) return ended;
  TL_TRY(tell_drops());
  TL_TRY(output_.flush());
  profiler_.reset();
  environment_.reset();
  for (Target& target : targets_) {
    target.drainer.reset();
    target.outside.reset();
  }
  if (failed) return *failed;
  return {};
}

Result<std::vector<Tracee>> Session::release_tracees() {
  for (Target& target : targets_) TL_TRY(target.tracee.disarm());
  std::vector<Tracee> tracees;
  for (Target& target : targets_) {
    target.drainer.reset();
    tracees.push_back(std::move(target.tracee));
  }
  targets_.clear();
  return tracees;
}

std::uint64_t Session::nanoseconds(std::uint64_t stamp) {
  const bool counter =
      counter_trusted_ && (targets_.empty() || targets_.front().tracee.reads_counter());
  if (!counter) return stamp;
  clock_.calibrate();
  return clock_.to_ns(stamp);
}

Result<> Session::finish() {
  TL_TRY(output_.finish(store_));
  return output_.flush();
}

}  // namespace trapline::session
