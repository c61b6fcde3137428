#include "session/tracee.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>

#include "base/check.h"
#include "probes/in_use.h"
#include "session/ancestors.h"
#include "session/tracee_stop.h"
#include "target/process.h"
#include "target/thread_pointer.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLoadTimeout{30000};
// Another Trapline holds a process for some milliseconds at a time.
constexpr milliseconds kOthersPatience{3000};
// How much of the buffers is entered into the page tables before tracing starts, and then by turns.
constexpr std::uint64_t kEnteredAtOnce = 1 << 20;
constexpr std::size_t kStopsKept = 20;

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

Result<> Tracee::check_guarded() const {
  if (ledger_ == nullptr || !ledger_->is_deserted()) return {};
  return Error(ErrorCode::kOs, "the tracer's first process has ended");
}

Result<> Tracee::reserve(const TargetProgram& program, std::uint64_t most_memory) {
  TL_TRY(check_guarded());
  TL_TRY(undo_leftovers());
  const wire::Layout& layout = program.layout;
  placed_.clear();
  outside_ = program.batches.front()->sites.is_outside();
  for (const std::shared_ptr<const ProbeBatch>& batch : program.batches) place(batch);
  TL_TRY(check_memory(most_memory));
  if (outside_) {
    TL_TRY_ASSIGN(target::ArenaMapping arena, target::ArenaMapping::create_here(layout.size));
    arena_.emplace(std::move(arena));
    entered_ = arena_->local().size();
    early_ = false;
    known_by_id_ = false;
    counter_allowed_ = true;
    return {};
  }
  const Result<> mapped = map_memory(layout);
  refuses_mappings_ =
      !mapped && !is_gone(mapped.error()) && mapped.error().code() != ErrorCode::kTimeout;
  return mapped;
}

Result<> Tracee::map_memory(const wire::Layout& layout) {
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
  auto installation =
      batch->sites.is_outside()
          ? std::make_unique<probes::Installation>(modules_->cache(), batch->sites.plans)
          : std::make_unique<probes::Installation>(modules_->cache(), batch->sites.plans,
                                                   batch->object->code.bytes);
  placed_.push_back({batch, std::move(installation)});
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
  TL_TRY(check_guarded());
  const bool planned = std::ranges::any_of(
      placed_, [](const Placed& placed) { return placed.batch->sites.plans.trap_count() != 0; });
  if (planned && !server_) TL_TRY(start_server());
  TL_TRY(note_traps());
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
      if (server_ && outside_hits_) server_->set_outside(*outside_hits_);
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
