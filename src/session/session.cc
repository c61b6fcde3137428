#include "session/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cstring>

#include "session/processors.h"
#include "session/run_on_processor.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// How often arenas are drained: rarely while little happens, often while buffers fill.
constexpr milliseconds kIdlePause{50};
constexpr milliseconds kBusyPause{5};
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
