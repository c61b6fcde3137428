// run_until_loaded: from an exec event to the executable's entry point.
//
// An int3 is put there and taken away again when it is hit; the page is then given back. (Debug
// registers would leave memory alone, but virtual machines accept them and never fire.) Children
// that library initialisers fork meanwhile get the original byte and are let go of. The kernel
// resets the handler of a SIGTRAP that is blocked or ignored when one comes: a blocked one is
// unblocked for the time being, an ignored one ignored again afterwards by an injected
// rt_sigaction.

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <deque>
#include <optional>

#include "target/code_region.h"
#include "target/launch.h"
#include "target/remote_syscall.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kInt3{0xcc};
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kScratchBelow =
    16 * 1024;  // under the stack pointer, far from what RemoteCalls keeps there
constexpr std::uint64_t kSigtrapBit = 1ull << (SIGTRAP - 1);

enum class Reached : std::uint8_t { kEntry, kAnotherExec };

// The kernel's struct sigaction for SIG_IGN.
constexpr std::array<std::uint64_t, 4> kIgnore{1, 0, 0, 0};

class EntryRun {
 public:
  EntryRun(Attachment& attachment, Clock::time_point deadline)
      : attachment_(attachment),
        tracees_(attachment.tracees()),
        deadline_(deadline),
        follow_(tracees_.follow) {
    tracees_.follow.traps = true;
    tracees_.follow.exec = true;
  }
  ~EntryRun() {
    tracees_.follow = follow_;
    tracees_.events.insert(tracees_.events.begin(), for_caller_.begin(), for_caller_.end());
  }
  EntryRun(const EntryRun&) = delete;
  EntryRun& operator=(const EntryRun&) = delete;

  // From an exec event on.
  Result<Reached> run();
  // At the entry, everybody stopped.
  Result<> tidy(StoppedProcess& stopped);

 private:
  Result<> set();
  Result<> clear();
  Result<std::optional<Reached>> handle(const Event& event);
  Result<> free_child(const Event& fork);
  Result<> ignore_trap_again(RemoteCalls& calls);
  void block_trap_again(const StoppedProcess& stopped) const;

  Attachment& attachment_;
  Tracees& tracees_;
  Clock::time_point deadline_;
  Follow follow_;                 // the caller's
  std::deque<Event> for_caller_;  // events that are none of ours, in order
  RemoteAddr entry_;
  std::byte original_{};
  bool set_ = false;
  std::uint64_t mask_ = 0;
  bool trap_ignored_ = false;
};

// Precondition: the only thread is stopped at an exec event.
Result<> EntryRun::set() {
  const Tid tid{tracees_.pid.value};
  TL_TRY_ASSIGN(const auto status, read_status(tracees_.pid));
  trap_ignored_ = (status.ignored_signals & kSigtrapBit) != 0;
  if (::ptrace(PTRACE_GETSIGMASK, tid.value, sizeof mask_, &mask_) != 0) {
    return call_error(tid, "reading the signal mask of", errno);
  }
  TL_TRY_ASSIGN(Memory * memory, tracees_.open_memory());
  memory->set_stopped_thread(tid);
  TL_TRY_ASSIGN(original_, memory->read_value<std::byte>(entry_));
  TL_TRY(tracees_.set_options(tid, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK));
  TL_TRY(memory->write_value(entry_, kInt3));
  memory->set_stopped_thread({});
  set_ = true;
  const std::uint64_t open_mask = mask_ & ~kSigtrapBit;
  if (open_mask != mask_) ::ptrace(PTRACE_SETSIGMASK, tid.value, sizeof open_mask, &open_mask);
  return {};
}

// Precondition: the first thread is stopped.
Result<> EntryRun::clear() {
  set_ = false;
  TL_TRY_ASSIGN(Memory * memory, tracees_.open_memory());
  memory->set_stopped_thread(Tid{tracees_.pid.value});
  auto written = memory->write_value(entry_, original_);
  memory->set_stopped_thread({});
  return written;
}

// In threads and children that were made while SIGTRAP was unblocked.
void EntryRun::block_trap_again(const StoppedProcess& stopped) const {
  if ((mask_ & kSigtrapBit) == 0) return;
  for (const StoppedThread& t : stopped.threads()) {
    std::uint64_t mask = 0;
    if (::ptrace(PTRACE_GETSIGMASK, t.tid.value, sizeof mask, &mask) != 0) continue;
    mask |= kSigtrapBit;
    ::ptrace(PTRACE_SETSIGMASK, t.tid.value, sizeof mask, &mask);
  }
}

// A vfork child has the parent's memory: nothing to be taken away there.
Result<> EntryRun::free_child(const Event& fork) {
  TL_TRY_ASSIGN(Attachment child, attachment_.adopt_child(fork));
  TL_TRY_ASSIGN(StoppedProcess stopped, child.stop());
  if (!fork.vfork) TL_TRY(stopped.memory().write_value(entry_, original_));
  block_trap_again(stopped);
  return stopped.detach();
}

Result<std::optional<Reached>> EntryRun::handle(const Event& event) {
  const Tid first{tracees_.pid.value};
  switch (event.kind) {
    case Event::Kind::kExec:
      set_ = false;
      return Reached::kAnotherExec;
    case Event::Kind::kTrap: {
      if (event.tid != first || event.trap_code != SI_KERNEL || event.pc != entry_ + 1) {
        TL_TRY(attachment_.resume(event.tid, SIGTRAP));
        break;
      }
      TL_TRY(clear());
      TL_TRY_ASSIGN(Registers registers, read_registers(first));
      registers.set_pc(entry_);
      TL_TRY(write_registers(first, registers));
      tracees_.threads.at(first.value).trap_pc = {};
      return Reached::kEntry;
    }
    case Event::Kind::kFork:
      if (!follow_.forks) {
        const auto freed = free_child(event);
        if (!freed && freed.error().code() != ErrorCode::kTargetGone) return freed.error();
        break;
      }
      [[fallthrough]];
    case Event::Kind::kExit:
    case Event::Kind::kThreadStarted:
    case Event::Kind::kThreadEnded:
      for_caller_.push_back(event);
      if (event.kind == Event::Kind::kExit) return gone(tracees_.pid);
  }
  return std::optional<Reached>();
}

Result<Reached> EntryRun::run() {
  const Tid first{tracees_.pid.value};
  TL_TRY_ASSIGN(const auto auxiliary, read_auxiliary_vector(tracees_.pid));
  TL_TRY_ASSIGN(const Registers registers, read_registers(first));
  entry_ = auxiliary.entry;
  if (registers.pc() == entry_) return Reached::kEntry;  // static: there already
  TL_TRY(set());
  TL_TRY(attachment_.resume(first));
  while (Clock::now() < deadline_) {
    TL_TRY_ASSIGN(const auto event, attachment_.wait_event(100ms));
    if (!event) continue;
    TL_TRY_ASSIGN(const auto reached, handle(*event));
    if (reached) return *reached;
  }
  if (auto stopped = attachment_.stop(); stopped && set_) {  // it goes on without
    (void)clear();
    block_trap_again(*stopped);
  }
  return Error(ErrorCode::kTimeout, "process " + std::to_string(tracees_.pid.value) + " (" +
                                        command_name(tracees_.pid) +
                                        ") has not reached its entry point in time");
}

Result<> EntryRun::ignore_trap_again(RemoteCalls& calls) {
  StoppedProcess& process = calls.process();
  const RemoteAddr at((process.find(calls.tid())->registers.sp().value() - kScratchBelow) & ~15ull);
  std::array<std::byte, sizeof kIgnore> old{};
  TL_TRY(process.memory().read(at, old));
  TL_TRY(process.memory().write(at, std::as_bytes(std::span(kIgnore))));
  TL_TRY(
      calls.call("rt_sigaction", SYS_rt_sigaction, SIGTRAP, at.value(), 0, sizeof(std::uint64_t)));
  return process.memory().write(at, old);
}

// Best effort: what fails leaves one private page, or a SIGTRAP that is no longer ignored.
Result<> EntryRun::tidy(StoppedProcess& stopped) {
  block_trap_again(stopped);
  tracees_.kill_on_exit = false;
  for (const StoppedThread& t : stopped.threads()) TL_TRY(tracees_.set_options(t.tid, 0));
  TL_TRY_ASSIGN(auto calls, RemoteCalls::begin(stopped));
  const RemoteAddr page(entry_.value() & ~(kPage - 1));
  const AddressRange pages{page, page + kPage};
  TL_TRY(give_back_text(calls, std::span(&pages, 1)));
  if (trap_ignored_) TL_TRY(ignore_trap_again(calls));
  return calls.end();
}

}  // namespace

Result<StoppedProcess> run_until_loaded(Attachment& attachment, std::chrono::milliseconds timeout) {
  Tracees& tracees = attachment.tracees();
  tracees.check_owner();
  const auto it = tracees.threads.find(tracees.pid.value);
  if (it == tracees.threads.end()) return gone(tracees.pid);
  if (it->second.state != TraceeState::kHeld) {
    return Error(ErrorCode::kInternal,
                 "run_until_loaded of a process that is not at an exec event");
  }
  EntryRun run(attachment, Clock::now() + timeout);
  for (;;) {
    TL_TRY_ASSIGN(const Reached reached, run.run());
    if (reached == Reached::kEntry) break;
  }
  TL_TRY_ASSIGN(StoppedProcess stopped, attachment.stop());
  if (const auto tidied = run.tidy(stopped);
      !tidied && tidied.error().code() == ErrorCode::kTargetGone) {
    return tidied.error();
  }
  return stopped;
}

}  // namespace trapline::target
