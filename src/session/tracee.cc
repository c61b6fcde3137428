#include "session/tracee.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <iterator>
#include <map>

#include "base/check.h"
#include "probes/in_use.h"
#include "probes/leftovers.h"
#include "session/ancestors.h"
#include "target/process.h"
#include "target/thread_pointer.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;

// A site that a thread is in the midst of, and code that a thread is in, are looked at again this
// often.
constexpr int kTries = 50;
// On a machine that is overloaded a thread may not run for seconds: not to the next stop, and not
// to the end of a body. What was put in place is to go all the same.
constexpr milliseconds kInsistence{15000};
constexpr milliseconds kLongestWait{100};
constexpr milliseconds kLongestPause{20};
// A process that said that it is about to execute, and does not (no such file), is let go of again
// after this.
constexpr milliseconds kExecPatience{1000};
// One that said that it is about to fork, and does not, after this.
constexpr milliseconds kForkPatience{1000};
constexpr milliseconds kForkLinger{20};
constexpr milliseconds kLoadTimeout{30000};
// Another Trapline holds a process for some milliseconds at a time.
constexpr milliseconds kOthersPatience{1000};
// A tracer that is about to leave takes its probes along.
constexpr milliseconds kMotionPatience{3000};
constexpr milliseconds kMotionPause{5};
// How much of the buffers is entered into the page tables before tracing starts, and then by turns.
constexpr std::uint64_t kEnteredAtOnce = 1 << 20;
// How much text is compared with its file while the process is stopped.
constexpr std::uint64_t kTextPerPart = 16 * wire::kPageSize;
constexpr std::size_t kPartsPerStop = 4;
constexpr std::size_t kStopsKept = 20;
// Batches whose modules have gone that stay mapped.
constexpr std::size_t kIdleBatches = 4;

void pause_for(milliseconds time) {
  const timespec rest{time.count() / 1000, time.count() % 1000 * 1'000'000};
  nanosleep(&rest, nullptr);
}

milliseconds pause_before_try(int n) { return std::min(milliseconds(1 + n), kLongestPause); }

bool is_gone(const Error& error) { return error.code() == ErrorCode::kTargetGone; }

}  // namespace

Tracee::Tracee(Tracee&&) noexcept = default;

Tracee::~Tracee() {
  const bool moved_from = placed_.empty() && (!arena_ || arena_->local().empty());
  if (!moved_from) {
    deactivate();
    (void)disarm();
  }
  stop_serving();
}

Result<Tracee> Tracee::attach(Pid pid) {
  target::await_same_program(pid, std::chrono::steady_clock::now() + kOthersPatience);
  TL_TRY(target::check_traceable(pid));
  // The kernel's own word, which may be no although every rule that is known allows it.
  const auto memory = target::Memory::open(pid);
  if (!memory && memory.error().code() == ErrorCode::kPermission)
    return target::attach_error(pid, EPERM);
  Tracee tracee(pid);
  TL_TRY(tracee.read_identity());
  return tracee;
}

Result<Tracee> Tracee::launch(const std::string& command, const sigset_t& signal_mask) {
  TL_TRY_ASSIGN(const std::vector<std::string> argv, target::split_command(command));
  target::LaunchOptions options;
  options.signal_mask = signal_mask;
  return launch(argv, options);
}

Result<Tracee> Tracee::launch(const std::vector<std::string>& argv,
                              const target::LaunchOptions& options) {
  TL_TRY_ASSIGN(target::LaunchedProcess process, target::LaunchedProcess::start(argv, options));
  Tracee tracee(process.pid());
  tracee.launched_.emplace(std::move(process));
  tracee.launch_attached_ = true;
  tracee.at_exec_ = true;
  TL_TRY(tracee.read_identity());
  return tracee;
}

Result<> Tracee::read_identity() {
  TL_TRY_ASSIGN(pidfd_, target::open_pidfd(pid_));
  TL_TRY_ASSIGN(const target::TaskStat stat, target::read_stat(pid_));
  start_code_ = stat.start_code;
  return {};
}

// ptrace calls come from the thread that attached.
template <typename F>
auto Tracee::on_owner(F&& f) {
  return server_ ? server_->run(std::forward<F>(f)) : f();
}

target::Attachment* Tracee::attachment() {
  if (server_) return server_->attachment() ? &*server_->attachment() : nullptr;
  if (attachment_) return &*attachment_;
  return launch_attached_ ? &launched_->attachment() : nullptr;
}

Result<> Tracee::seize() {
  if (attachment() != nullptr) return {};
  if (server_) {
    TL_TRY_ASSIGN(target::Attachment served,
                  target::Attachment::seize(pid_, target::TrapServer::attach_options()));
    server_->attachment().emplace(std::move(served));
    return {};
  }
  target::AttachOptions options;
  options.follow.forks = follow_;
  TL_TRY_ASSIGN(target::Attachment attached, target::Attachment::seize(pid_, options));
  attachment_.emplace(std::move(attached));
  return {};
}

Result<> Tracee::let_go() {
  return on_owner([&]() -> Result<> {
    target::Attachment* const attached = attachment();
    if (attached == nullptr) return {};
    // Children that were forked with our breakpoints in them.
    if (server_) server_->serve();
    const Result<> done = attached->detach();
    if (server_) server_->attachment().reset();
    attachment_.reset();
    launch_attached_ = false;
    return done;
  });
}

void Tracee::note_stop(std::string_view purpose, std::chrono::nanoseconds duration) {
  ++stop_count_;
  longest_stop_ = std::max(longest_stop_, duration);
  if (stops_.size() < kStopsKept) stops_.push_back({purpose, duration});
}

template <typename F>
Result<> Tracee::while_stopped(std::string_view purpose, F f) {
  return on_owner([&] { return stop_and(purpose, f); });
}

template <typename F>
Result<> Tracee::stop_and(std::string_view purpose, F& f) {
  if (held_) return f(*held_);
  TL_TRY(seize());
  TL_TRY_ASSIGN(target::StoppedProcess process, attachment()->stop());
  const Result<> done = f(process);
  note_stop(purpose, process.stopped_for());
  const Result<> resumed = process.resume();
  if (!done) return done;
  return resumed;
}

// The same, again and again where it cannot be stopped.
template <typename F>
Result<> Tracee::insist(std::chrono::steady_clock::time_point deadline, std::string_view purpose,
                        F f) {
  for (;;) {
    const Result<> done = while_stopped(purpose, f);
    const bool again = !done && done.error().code() == ErrorCode::kTimeout &&
                       std::chrono::steady_clock::now() < deadline;
    if (!again) return done;
  }
}

// From now on the process belongs to a thread that serves its breakpoints, which are not there yet.
Result<> Tracee::start_server() {
  if (held_) return hand_over();
  TL_TRY(let_go());
  server_ = std::make_unique<target::TrapServer>();
  return on_owner([&]() -> Result<> {
    TL_TRY(seize());
    server_->set_serving(true);
    return {};
  });
}

// A process that was just loaded must not go on meanwhile: it turns on the spot.
Result<> Tracee::hand_over() {
  constexpr std::array kLoop{std::byte{0xeb}, std::byte{0xfe}};  // jmp to itself
  std::array<std::byte, 2> original{};
  const RemoteAddr pc = held_->threads().front().registers.resume_pc();
  if (held_->threads().size() != 1)
    return Error(ErrorCode::kUnsupported, "breakpoints in a process that has threads at its start");
  TL_TRY(held_->memory().read(pc, original));
  TL_TRY(held_->memory().write(pc, kLoop));
  TL_TRY(held_->resume());
  held_.reset();
  TL_TRY(let_go());
  server_ = std::make_unique<target::TrapServer>();
  return on_owner([&]() -> Result<> {
    TL_TRY(seize());
    TL_TRY_ASSIGN(target::StoppedProcess stopped, attachment()->stop());
    TL_TRY(stopped.memory().write(pc, original));
    held_.emplace(std::move(stopped));
    return {};
  });
}

void Tracee::stop_serving() {
  if (!server_) return;
  on_owner([&] { held_.reset(); });
  (void)let_go();
  server_.reset();
}

target::Traps Tracee::traps() const {
  target::Traps all;
  for (const Placed& placed : placed_) all.merge(placed.installation->traps());
  return all;
}

void Tracee::tell_traps() {
  const std::size_t count = traps().size();
  if (count == 0) return;
  notes_.push_back(fmt::format(
      "pid {} has {} breakpoint{}, so this tracer stays attached to it: if the tracer is killed "
      "with -9, the next one that is hit ends the process",
      pid_.value, count, count == 1 ? "" : "s"));
}

// Whether the process still runs the program that modules_ was read of.
Result<bool> Tracee::same_image() const {
  if (!modules_ || at_exec_ || image_replaced_) return false;
  TL_TRY_ASSIGN(const target::TaskStat stat, target::read_stat(pid_));
  std::byte probe{};
  return stat.start_code == start_code_ && reads_memory(start_code_, std::span(&probe, 1));
}

Result<Loaded> Tracee::load() {
  if (held_ && modules_) return Loaded::kAsBefore;
  TL_TRY_ASSIGN(const bool same, same_image());
  if (at_exec_) TL_TRY(on_owner([&] { return load_held(); }));
  if (!same) {
    TL_TRY_ASSIGN(target::Memory opened, target::Memory::open(pid_));
    memory_ = std::make_shared<target::Memory>(std::move(opened));
    TL_TRY_ASSIGN(const target::TaskStat stat, target::read_stat(pid_));
    start_code_ = stat.start_code;
  }
  if (same) {
    TL_TRY_ASSIGN(const ModuleChanges changes, modules_->refresh());
    return changes.any() ? Loaded::kAnew : Loaded::kAsBefore;
  }
  TL_TRY_ASSIGN(LoadedModules loaded, LoadedModules::read(pid_, memory_));
  if (modules_) loaded.cache().share_files(modules_->cache());  // what it ran before
  modules_.emplace(std::move(loaded));
  image_replaced_ = false;
  return Loaded::kAnew;
}

Result<> Tracee::load_held() {
  if (server_) server_->set_serving(false);
  auto stopped = target::run_until_loaded(*attachment(), kLoadTimeout);
  at_exec_ = false;
  if (!stopped) {
    ended_ = is_gone(stopped.error());
    return stopped.error();
  }
  held_.emplace(std::move(*stopped));
  return {};
}

std::size_t Tracee::thread_count() const {
  const auto tasks = target::read_tasks(pid_);
  return tasks ? tasks->size() : 1;
}

Result<> Tracee::reserve(const TargetProgram& program, std::uint64_t most_memory) {
  TL_TRY(undo_leftovers());
  const wire::Layout& layout = program.layout;
  placed_.clear();
  for (const std::shared_ptr<const ProbeBatch>& batch : program.batches) place(batch);
  TL_TRY(check_memory(most_memory));
  TL_TRY(while_stopped("map memory", [&](target::StoppedProcess& process) -> Result<> {
    TL_TRY_ASSIGN(const target::ThreadPointers pointers, target::read_thread_pointers(process));
    known_by_id_ = !pointers.all_self();
    tid_offset_ = pointers.tid_offset;
    cpu_offset_ = pointers.cpu_offset;
    early_ = !pointers.all_ready();
    TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
    TL_TRY_ASSIGN(target::ArenaMapping arena, target::ArenaMapping::create(calls, layout.size));
    arena_.emplace(std::move(arena));
    TL_TRY_ASSIGN(counter_allowed_, counter_allowed(calls));
    TL_TRY_ASSIGN(target::ForkPage page, target::ForkPage::create(calls));
    fork_page_.emplace(std::move(page));
    TL_TRY(target::register_membarrier(calls));
    for (const Placed& placed : placed_) TL_TRY(placed.installation->reserve(calls, owner()));
    return calls.end();
  }));
  TL_TRY(arena_->allocate());
  entered_ = std::min(arena_->local().size(), layout.chunks + kEnteredAtOnce);
  arena_->enter(pid_, 0, entered_);
  return {};
}

Result<> Tracee::check_memory(std::uint64_t most) {
  std::uint64_t needed = 0;
  for (const Placed& placed : placed_) needed += placed.installation->memory_needed();
  if (needed <= most) return {};
  placed_.clear();
  return Error(ErrorCode::kUnsupported,
               fmt::format("these probes would take {} MB of the process's memory, for code and "
                           "for its own copies of patched pages; {} MB are taken without asking: "
                           "probe fewer functions, or allow it by -x force",
                           needed >> 20, most >> 20));
}

probes::RegionOwner Tracee::owner() const {
  return {arena_address(), arena_ ? arena_->local().size() : 0, alive_address()};
}

void Tracee::enter_more() {
  if (!has_more_to_enter()) return;
  const std::uint64_t begin = entered_;
  entered_ = std::min(arena_->local().size(), begin + kEnteredAtOnce);
  arena_->enter(pid_, begin, entered_);
}

// What a tracer that was killed left behind stands where ours are to stand.
Result<> Tracee::undo_leftovers() {
  if (forked_) return undo_parents();
  if (held_) return {};  // a new image
  TL_TRY_ASSIGN(const target::Memory memory, target::Memory::open(pid_));
  TL_TRY_ASSIGN(probes::Leftovers leftovers, probes::Leftovers::find(pid_, memory));
  const auto deadline = std::chrono::steady_clock::now() + kMotionPatience;
  while (leftovers.in_motion() && std::chrono::steady_clock::now() < deadline) {
    pause_for(kMotionPause);
    TL_TRY_ASSIGN(leftovers, probes::Leftovers::find(pid_, memory));
  }
  if (leftovers.empty()) return {};
  notes_.push_back(
      fmt::format("pid {} still had {} probe site{} of a tracer that was killed: taken "
                  "back first",
                  pid_.value, leftovers.site_count(), leftovers.site_count() == 1 ? "" : "s"));
  std::size_t written_over = 0;
  TL_TRY(while_stopped("restore leftovers", [&](target::StoppedProcess& process) -> Result<> {
    TL_TRY_ASSIGN(written_over, leftovers.disarm(process));
    return {};
  }));
  if (written_over != 0) {
    notes_.push_back(
        fmt::format("{} of them {} written over by somebody else: what they lead to "
                    "stays mapped",
                    written_over, written_over == 1 ? "was" : "were"));
    return {};
  }
  for (int n = 0; n < kTries && !leftovers.empty(); ++n) {
    bool clean = false;
    TL_TRY(while_stopped("unmap leftovers", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(clean, leftovers.release(process));
      return {};
    }));
    if (!clean) pause_for(pause_before_try(n));
  }
  return {};
}

// A forked child that is held has what its parent had: probes that stand and count nothing.
Result<> Tracee::undo_parents() {
  forked_ = false;
  TL_TRY_ASSIGN(probes::Leftovers leftovers, probes::Leftovers::find(pid_, *memory_));
  if (leftovers.empty()) return {};
  TL_TRY_ASSIGN(const std::size_t written_over, leftovers.disarm(*held_));
  // Where it was forked within a signal handler that had interrupted one of our bodies, they stay.
  if (written_over == 0) TL_TRY(leftovers.release(*held_));
  return {};
}

// A process may have forbidden itself to read the time-stamp counter (prctl PR_SET_TSC): rdtsc
// would end it. The answer is written to the arena, which is still empty.
Result<bool> Tracee::counter_allowed(target::RemoteCalls& calls) {
  TL_TRY(calls.call("prctl", SYS_prctl, PR_GET_TSC, arena_->remote().value(), 0, 0, 0));
  std::uint32_t answer = 0;
  std::memcpy(&answer, arena_->local().data(), sizeof(answer));
  std::memset(arena_->local().data(), 0, sizeof(answer));
  return answer == PR_TSC_ENABLE;
}

std::span<std::byte> Tracee::arena() const {
  return arena_ ? arena_->local() : std::span<std::byte>{};
}
RemoteAddr Tracee::arena_address() const { return arena_ ? arena_->remote() : RemoteAddr{}; }
RemoteAddr Tracee::alive_address() const {
  return fork_page_ ? fork_page_->address() : RemoteAddr{};
}

void Tracee::fill_header(wire::Header& header) const {
  header.pid = pid_.value;
  header.tid_offset = tid_offset_;
  header.cpu_offset = cpu_offset_;
  if (const auto status = target::read_status(pid_)) {
    header.uid = status->uid;
    header.gid = status->gid;
  }
  if (const auto stat = target::read_stat(pid_)) header.ppid = stat->parent.value;
  std::ranges::copy(ancestors(pid_), header.ancestors);
}

void Tracee::place(const std::shared_ptr<const ProbeBatch>& batch) {
  placed_.push_back({batch, std::make_unique<probes::Installation>(
                                modules_->cache(), batch->sites.plans, batch->object->code.bytes)});
}

Result<> Tracee::prepare(const Placed& placed) {
  TL_TRY_ASSIGN(target::Memory memory, target::Memory::open(pid_));
  TL_TRY(placed.installation->prepare(memory, bind(*placed.batch, arena_address(), alive_address()),
                                      arena_->local().size()));
  for (const probes::ModuleSites& sites : placed.batch->sites.plans.modules) {
    if (!modules_->cache().is_mapped(sites.module))
      placed.installation->forget_module(sites.module);
  }
  return {};
}

Result<> Tracee::prepare() {
  for (const Placed& placed : placed_) TL_TRY(prepare(placed));
  return {};
}

Result<> Tracee::arm() {
  const bool planned = std::ranges::any_of(
      placed_, [](const Placed& placed) { return placed.batch->sites.plans.trap_count() != 0; });
  if (planned && !server_) TL_TRY(start_server());
  for (int n = 0; n < kTries; ++n) {
    std::size_t deferred = 0;
    TL_TRY(while_stopped("arm", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(const std::vector<std::size_t> gone, modules_->forget_gone());
      forget_sites(gone);
      Result<> done;
      for (const Placed& placed : placed_) {
        const auto round = placed.installation->arm(process);
        if (!round) done = round.error();
        if (!done) break;
        deferred += round->deferred;
      }
      if (server_) server_->set_traps(traps());
      return done;
    }));
    if (deferred == 0 || held_) break;
    pause_for(pause_before_try(n));
  }
  for (const Placed& placed : placed_) placed.installation->refuse_deferred();
  tell_traps();
  return {};
}

std::vector<probes::RefusedPlace> Tracee::refused(const ProbeBatch* batch) const {
  std::vector<probes::RefusedPlace> all;
  for (const Placed& placed : placed_) {
    if (batch != nullptr && batch != placed.batch.get()) continue;
    for (probes::RefusedPlace place : placed.installation->refused()) {
      if (!placed.batch->sites.is_probe(place.probe)) continue;
      place.probe = placed.batch->sites.probes[place.probe];
      all.push_back(std::move(place));
    }
  }
  return all;
}

// ------------------------------------------------------------------------------------------------
// modules that come and go

Result<ModuleChanges> Tracee::module_changes() {
  TL_TRY_ASSIGN(ModuleChanges changes, modules_->refresh());
  forget_sites(changes.gone);
  for (const std::size_t module : replaced_modules()) {
    if (std::ranges::find(changes.came, module) != changes.came.end()) continue;
    changes.came.push_back(module);
    forget_sites(std::span(&module, 1));
  }
  return changes;
}

// One that was unmapped and mapped again at its place looks as before, but for our jumps.
std::vector<std::size_t> Tracee::replaced_modules() const {
  std::vector<std::size_t> modules = modules_->cache().mapped();
  std::erase_if(modules, [&](std::size_t module) {
    return std::ranges::none_of(placed_, [&](const Placed& placed) {
      return placed.installation->was_replaced(module, *memory_);
    });
  });
  return modules;
}

void Tracee::forget_sites(std::span<const std::size_t> modules) {
  for (const std::size_t module : modules) {
    for (const Placed& placed : placed_) placed.installation->forget_module(module);
  }
  if (server_ && !modules.empty()) server_->run([&] { server_->set_traps(traps()); });
}

Result<> Tracee::forget_gone_modules() {
  TL_TRY_ASSIGN(const std::vector<std::size_t> gone, modules_->forget_gone());
  forget_sites(gone);
  forget_sites(replaced_modules());
  return {};
}

Result<std::vector<const ProbeBatch*>> Tracee::add(std::shared_ptr<const ProbeBatch> batch) {
  const bool was_attached = attachment() != nullptr;
  std::vector<const ProbeBatch*> released;
  const auto put = [&]() -> Result<> {
    place(batch);
    TL_TRY(while_stopped("map memory", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(released, release_idle(process));
      TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
      TL_TRY(placed_.back().installation->reserve(calls, owner()));
      return calls.end();
    }));
    TL_TRY(prepare(placed_.back()));
    return arm();
  };
  const Result<> done = put();
  if (!was_attached && !server_) (void)let_go();
  if (!done) return done.error();
  return released;
}

Result<> Tracee::arm_again(std::span<const std::size_t> modules) {
  const bool was_attached = attachment() != nullptr;
  for (const Placed& placed : placed_) {
    for (const std::size_t module : modules) placed.installation->expect_module(module);
  }
  const Result<> done = arm();
  if (!was_attached && !server_) (void)let_go();
  return done;
}

// Of the batches whose modules have gone the last few stay, as they may come again.
Result<std::vector<const ProbeBatch*>> Tracee::release_idle(target::StoppedProcess& process) {
  std::vector<const ProbeBatch*> released;
  auto idle = static_cast<std::size_t>(std::ranges::count_if(
      placed_, [](const Placed& placed) { return placed.installation->is_idle(); }));
  for (std::size_t i = 0; i < placed_.size() && idle > kIdleBatches; ++i) {
    probes::Installation& installation = *placed_[i].installation;
    if (!installation.is_idle()) continue;
    TL_TRY_ASSIGN(const bool unused, installation.release(process));
    if (!unused) continue;
    for (const probes::ModuleSites& module : placed_[i].batch->sites.plans.modules)
      modules_->cache().retire(module.module);
    released.push_back(placed_[i].batch.get());
    placed_.erase(placed_.begin() + static_cast<std::ptrdiff_t>(i--));
    --idle;
  }
  return released;
}

// ------------------------------------------------------------------------------------------------
// requests

wire::Header* Tracee::header() const {
  return arena_ && active_ ? reinterpret_cast<wire::Header*>(arena_->local().data()) : nullptr;
}

// Only that thread's request: another one may have come meanwhile.
void Tracee::answer(wire::Request request, std::uint32_t thread) {
  if (header() == nullptr) return;
  std::uint32_t* word = &header()->requests[request].thread;
  for (std::uint32_t there : {thread, thread | wire::kRequestSeen}) {
    __atomic_compare_exchange_n(word, &there, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint32_t Tracee::waiting_for(wire::Request request) const {
  if (header() == nullptr) return 0;
  return __atomic_load_n(&header()->requests[request].thread, __ATOMIC_ACQUIRE) &
         ~wire::kRequestSeen;
}

void Tracee::answer_load() { answer(wire::kLoadRequest, std::exchange(loading_, 0)); }

std::uint32_t Tracee::take_missed_loads() {
  if (header() == nullptr) return 0;
  return __atomic_exchange_n(&header()->requests[wire::kLoadRequest].missed, 0, __ATOMIC_ACQ_REL);
}

void Tracee::activate(ExecsTold told) {
  if (arena_) {
    auto* header = reinterpret_cast<wire::Header*>(arena_->local().data());
    const std::uint32_t state = wire::kActive | (early_ || known_by_id_ ? wire::kEarly : 0);
    __atomic_store_n(&header->state, state, __ATOMIC_RELEASE);
    active_ = true;
  }
  on_owner([&] {
    if (held_) (void)held_->resume();
    held_.reset();
    if (server_) server_->set_serving(true);
  });
  if (server_) {
    if (traps().empty()) stop_serving();
    return;
  }
  if (told == ExecsTold::kYes || !launched_) (void)let_go();
}

void Tracee::deactivate() {
  active_ = false;
  if (!arena_) return;
  auto* header = reinterpret_cast<wire::Header*>(arena_->local().data());
  __atomic_store_n(&header->state, 0, __ATOMIC_RELEASE);
  // Whoever waits for us goes on.
  for (wire::RequestWord& request : header->requests) {
    __atomic_store_n(&request.thread, 0, __ATOMIC_RELEASE);
    ::syscall(SYS_futex, &request.thread, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

Result<> Tracee::end_early() {
  const bool was_attached = attachment() != nullptr;
  const Result<> looked =
      while_stopped("end early mode", [&](target::StoppedProcess& process) -> Result<> {
        TL_TRY_ASSIGN(const target::ThreadPointers pointers, target::read_thread_pointers(process));
        if (!pointers.all_ready()) return {};
        early_ = false;
        known_by_id_ = !pointers.all_self();
        if (known_by_id_) return {};
        auto* header = reinterpret_cast<wire::Header*>(arena_->local().data());
        __atomic_store_n(&header->tid_offset, pointers.tid_offset, __ATOMIC_RELEASE);
        __atomic_fetch_and(&header->state, ~wire::kEarly, __ATOMIC_ACQ_REL);
        return {};
      });
  if (!was_attached && !server_) (void)let_go();
  if (!looked && is_gone(looked.error())) return {};
  return looked;
}

Result<> Tracee::look_at_threads(const std::function<void(const target::StoppedThread&)>& then) {
  const bool was_attached = attachment() != nullptr;
  const Result<> looked = while_stopped("sample", [&](target::StoppedProcess& process) {
    for (const target::StoppedThread& thread : process.threads()) then(thread);
    return Result<>{};
  });
  if (!was_attached && !server_) (void)let_go();
  if (!looked && is_gone(looked.error())) return {};
  return looked;
}

Result<> Tracee::look_at_owners(std::span<const std::uint64_t> owners,
                                const std::function<void(std::size_t, probes::Presence)>& then) {
  const bool was_attached = attachment() != nullptr;
  const Result<> looked =
      while_stopped("free levels", [&](target::StoppedProcess& process) -> Result<> {
        std::vector<target::AddressRange> code;
        for (const Placed& placed : placed_) {
          const std::vector<target::AddressRange> own = placed.installation->code();
          code.insert(code.end(), own.begin(), own.end());
        }
        std::ranges::sort(code);
        TL_TRY_ASSIGN(const auto present, probes::presence(process, code));
        TL_TRY_ASSIGN(const target::ThreadPointers pointers, target::read_thread_pointers(process));
        std::map<std::uint64_t, probes::Presence> by_owner;
        for (const auto& thread : pointers.threads) {
          const auto found = present.find(thread.tid.value);
          if (found == present.end()) continue;
          by_owner[thread.pointer.value()] = found->second;
          by_owner[wire::kOwnerIsTid | static_cast<std::uint32_t>(thread.tid.value)] =
              found->second;
        }
        for (std::size_t i = 0; i < owners.size(); ++i) {
          const auto found = by_owner.find(owners[i]);
          then(i, found == by_owner.end() ? probes::Presence::kOutside : found->second);
        }
        return {};
      });
  if (!was_attached && !server_) (void)let_go();
  if (!looked && is_gone(looked.error())) return {};
  return looked;
}

int Tracee::event_fd() const { return pidfd_.get(); }

Result<Happening> Tracee::look() {
  if (ended_) return Happening::kNothing;
  if (attachment() != nullptr) {
    TL_TRY_ASSIGN(const Happening happening, take_events());
    if (happening != Happening::kNothing) return happening;
  } else if (has_ended()) {
    return Happening::kExited;
  }
  TL_TRY(answer_exec_request());
  TL_TRY(answer_fork_request());
  if (attachment() != nullptr) {
    TL_TRY_ASSIGN(const Happening happening, take_events());
    if (happening != Happening::kNothing) return happening;
  } else if (const auto stat = target::read_stat(pid_); stat && !stat->is_dead() &&
                                                        stat->start_code.value() != 0 &&
                                                        stat->start_code != start_code_) {
    start_code_ = stat->start_code;
    image_replaced_ = true;
    return Happening::kExecuted;
  }
  loading_ = waiting_for(wire::kLoadRequest);
  return loading_ != 0 ? Happening::kLoading : Happening::kNothing;
}

bool Tracee::has_ended() {
  pollfd exit{pidfd_.get(), POLLIN, 0};
  if (::poll(&exit, 1, 0) <= 0) return false;
  ended_ = true;
  if (launched_) {
    if (const auto status = launched_->wait_exit(milliseconds(0)); status && *status)
      exit_status_ = **status;
  }
  return true;
}

// Of an attached process: its signals and threads are seen to, and an exec or its end is told.
Result<Happening> Tracee::take_events() {
  for (;;) {
    TL_TRY_ASSIGN(const std::optional<target::Event> event, next_event());
    if (!event) break;
    switch (event->kind) {
      case target::Event::Kind::kExit:
        if (apart_) *apart_ = true;
        ended_ = true;
        exit_status_ = event->status;
        return Happening::kExited;
      case target::Event::Kind::kExec:
        if (apart_) *apart_ = true;
        at_exec_ = true;
        image_replaced_ = true;
        exec_deadline_.reset();
        fork_deadline_.reset();
        forks_expected_ = 0;
        return Happening::kExecuted;
      case target::Event::Kind::kTrap:
        TL_TRY(attachment()->resume(event->tid, SIGTRAP));
        break;
      case target::Event::Kind::kFork:
        TL_TRY(adopt(*event));
        break;
      default:
        break;
    }
  }
  if (fork_deadline_ && !waits_for_children()) {
    fork_deadline_.reset();
    forks_expected_ = 0;
    if (!exec_deadline_) TL_TRY(let_go());
  }
  if (exec_deadline_ && std::chrono::steady_clock::now() > *exec_deadline_) {
    exec_deadline_.reset();
    if (!fork_deadline_ && !server_) TL_TRY(let_go());
  }
  return Happening::kNothing;
}

Result<std::optional<target::Event>> Tracee::next_event() {
  if (!server_) return attachment()->wait_event(milliseconds(0));
  return server_->run([&] { return Result<std::optional<target::Event>>(server_->take_event()); });
}

// The other half of the rendezvous: 1. seize, so that the exec stops the process; 2. let the
// waiting thread go on.
Result<> Tracee::answer_exec_request() {
  const std::uint32_t thread = waiting_for(wire::kExecRequest);
  if (thread == 0) return {};
  const Result<> seized = seize();
  answer(wire::kExecRequest, thread);
  if (!seized) {
    if (is_gone(seized.error())) return {};
    return seized;
  }
  exec_deadline_ = std::chrono::steady_clock::now() + kExecPatience;
  return {};
}

// ------------------------------------------------------------------------------------------------
// children

// As for an exec; it stays seized until each fork that was told has been seen, or has failed, and
// for a moment more.
Result<> Tracee::answer_fork_request() {
  const std::uint32_t thread = waiting_for(wire::kForkRequest);
  if (thread == 0) return {};
  const Result<> seized = seize();
  answer(wire::kForkRequest, thread);
  if (!seized) {
    if (is_gone(seized.error())) return {};
    return seized;
  }
  ++forks_expected_;
  fork_deadline_ = std::chrono::steady_clock::now() + kForkPatience;
  return {};
}

// A thread whose vfork child runs cannot be stopped, and so not be let go of.
bool Tracee::waits_for_children() const {
  const bool vfork = std::ranges::any_of(vforks_, [](const auto& apart) { return !*apart; });
  return vfork || std::chrono::steady_clock::now() < *fork_deadline_;
}

Result<> Tracee::adopt(const target::Event& fork) {
  if (forks_expected_ > 0) --forks_expected_;
  // One that forks often is not let go of and seized again each time.
  if (forks_expected_ == 0) fork_deadline_ = std::chrono::steady_clock::now() + kForkLinger;
  auto attached = attachment()->adopt_child(fork);
  if (!attached) return is_gone(attached.error()) ? Result<>{} : attached.error();
  auto apart = std::make_shared<bool>(!fork.vfork);
  std::erase_if(vforks_, [](const auto& known) { return *known; });
  if (fork.vfork) {
    vforks_.push_back(apart);
  }
  children_.push_back({std::move(*attached), fork.vfork, std::move(apart)});
  return {};
}

Result<Tracee> Tracee::of_child(Child child, const Tracee& parent) {
  Tracee tracee(child.attachment.pid());
  tracee.follow_ = true;
  TL_TRY(tracee.read_identity());
  tracee.attachment_.emplace(std::move(child.attachment));
  tracee.apart_ = std::move(child.apart);
  tracee.memory_ = parent.memory_;
  if (!child.shares_memory) {
    TL_TRY_ASSIGN(target::Memory opened, target::Memory::open(tracee.pid_));
    tracee.memory_ = std::make_shared<target::Memory>(std::move(opened));
  }
  tracee.modules_.emplace(LoadedModules::of_child(*parent.modules_, tracee.pid_, tracee.memory_));
  if (child.shares_memory) return tracee;
  TL_TRY_ASSIGN(target::StoppedProcess stopped, tracee.attachment_->stop());
  tracee.held_.emplace(std::move(stopped));
  tracee.forked_ = true;
  return tracee;
}

void Tracee::drop() {
  forget();
  stop_serving();
  arena_.reset();
  attachment_.reset();
  memory_.reset();
  modules_.reset();
  pidfd_ = Fd();
}

Result<std::vector<std::string>> Tracee::disarm() {
  std::vector<std::string> left;
  deactivate();
  if (ended_ || placed_.empty()) {
    forget();
    stop_serving();
    if (!ended_ && !held_ && !at_exec_) (void)let_go();
    return left;
  }
  const Result<> done = release_all(left);
  if (!done && is_gone(done.error())) {
    ended_ = true;
    forget();
    stop_serving();
    return left;
  }
  if (!done) return done.error();
  placed_.clear();
  stop_serving();
  (void)let_go();
  return left;
}

Result<> Tracee::release_all(std::vector<std::string>& left) {
  std::size_t foreign = 0;
  bool clean = false;
  const auto deadline = std::chrono::steady_clock::now() + kInsistence;
  TL_TRY(insist(deadline, "disarm", [&](target::StoppedProcess& process) -> Result<> {
    TL_TRY(forget_gone_modules());
    for (const Placed& placed : placed_) {
      TL_TRY_ASSIGN(const std::size_t left_here, placed.installation->disarm(process));
      foreign += left_here;
    }
    return {};
  }));
  if (foreign != 0) {
    left.push_back(fmt::format(
        "{} site{} of pid {} patched over by somebody else: left as they are, switched off",
        foreign, foreign == 1 ? " was" : "s were", pid_.value));
    return {};
  }
  for (int n = 0; !clean && std::chrono::steady_clock::now() < deadline; ++n) {
    TL_TRY(insist(deadline, "unmap", [&](target::StoppedProcess& process) -> Result<> {
      clean = true;
      for (const Placed& placed : placed_) {
        TL_TRY_ASSIGN(const bool released, placed.installation->release(process));
        clean = clean && released;
      }
      if (!clean) return {};
      TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
      if (arena_) TL_TRY(arena_->remove(calls));
      if (fork_page_) TL_TRY(fork_page_->remove(calls));
      fork_page_.reset();
      return calls.end();
    }));
    if (!clean) pause_for(std::min(milliseconds(1 + n), kLongestWait));
  }
  if (clean) give_text_back();
  if (!clean) {
    left.push_back(fmt::format(
        "a thread of pid {} is still in code of ours: it stays mapped, unused", pid_.value));
  }
  return {};
}

// The private copies of text pages, in short stops of their own. Only memory is at stake: failures
// change nothing.
void Tracee::give_text_back() {
  std::vector<target::AddressRange> parts;
  for (const Placed& placed : placed_)
    std::ranges::move(placed.installation->text_pages(kTextPerPart), std::back_inserter(parts));
  for (std::size_t first = 0; first < parts.size(); first += kPartsPerStop) {
    const std::size_t count = std::min(kPartsPerStop, parts.size() - first);
    (void)while_stopped("give text back", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
      TL_TRY(target::give_back_text(calls, std::span(parts).subspan(first, count)));
      return calls.end();
    });
  }
}

void Tracee::kill_launched() {
  if (launched_ && !ended_) ::kill(pid_.value, SIGKILL);
}

void Tracee::forget() {
  active_ = false;
  for (const Placed& placed : placed_) placed.installation->forget();
  if (server_) server_->run([&] { server_->set_traps({}); });
  if (fork_page_) fork_page_->forget();
  if (arena_) arena_->forget();
  fork_page_.reset();
  placed_.clear();
}

bool Tracee::reads_memory(RemoteAddr from, std::span<std::byte> out) const {
  return memory_ && memory_->read(from, out).has_value();
}

// Only what the process itself may write.
bool Tracee::writes_memory(RemoteAddr to, std::span<const std::byte> bytes) const {
  const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const iovec remote{reinterpret_cast<void*>(to.value()), bytes.size()};
  return ::process_vm_writev(pid_.value, &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace trapline::session
