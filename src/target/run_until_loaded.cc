// run_until_loaded: from an exec event to the executable's entry point.
//
// An int3 is written to the entry and taken away again, from children forked by library initialisers as well. (A hardware
// breakpoint would leave memory alone, but there are virtual machines that take the debug registers and never fire.) A SIGTRAP
// that the program blocks is unblocked for the time being, since the kernel would reset its handler.

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <optional>

#include "target/launch.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kInt3{0xcc};
constexpr std::uint64_t kSigtrapBit = 1ull << (SIGTRAP - 1);

// Watches one address of a process whose only thread is stopped.
class EntryWatch {
 public:
  EntryWatch(Tracees& tracees, Tid tid, RemoteAddr entry) : tracees_(tracees), tid_(tid), entry_(entry) {}

  Result<> set() {
    TL_TRY_ASSIGN(Memory * memory, tracees_.open_memory());
    memory->set_stopped_thread(tid_);
    TL_TRY_ASSIGN(original_, memory->read_value<std::byte>(entry_));
    TL_TRY(tracees_.set_options(tid_, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK));
    TL_TRY(memory->write_value(entry_, kInt3));
    return {};
  }

  // `tid_` is stopped.
  Result<> clear() {
    TL_TRY_ASSIGN(Memory * memory, tracees_.open_memory());
    TL_TRY(memory->write_value(entry_, original_));
    return tracees_.set_options(tid_, 0);
  }

  bool hit(const Event& e) const { return e.trap_code == SI_KERNEL && e.pc == entry_ + 1; }

  RemoteAddr entry() const { return entry_; }
  std::byte original() const { return original_; }

 private:
  Tracees& tracees_;
  Tid tid_;
  RemoteAddr entry_;
  std::byte original_{};
};

// What this run has to remember.
struct Run {
  Attachment& attachment;
  Tracees& tracees;
  Clock::time_point deadline;
  Follow follow;                 // the caller's
  std::deque<Event> for_caller;  // events that are none of ours, in order

  ~Run() {
    tracees.follow = follow;
    tracees.events.insert(tracees.events.begin(), for_caller.begin(), for_caller.end());
  }
  Result<bool> to_entry();
  Result<> free_child(const Event& fork, const EntryWatch& watch);
};

// A child that was forked while the int3 is in place: its copy is taken away.
Result<> Run::free_child(const Event& fork, const EntryWatch& watch) {
  TL_TRY_ASSIGN(Attachment child, attachment.adopt_child(fork));
  TL_TRY_ASSIGN(StoppedProcess stopped, child.stop());
  if (!fork.vfork) TL_TRY(stopped.memory().write_value(watch.entry(), watch.original()));
  return stopped.detach();
}

// True: at the entry. False: another program was executed on the way; it is at its exec event.
Result<bool> Run::to_entry() {
  const Tid tid{tracees.pid.value};
  TL_TRY_ASSIGN(const auto auxiliary, read_auxiliary_vector(tracees.pid));
  TL_TRY_ASSIGN(const Registers registers, read_registers(tid));
  if (registers.pc() == auxiliary.entry) return true;  // static: there already

  EntryWatch watch(tracees, tid, auxiliary.entry);
  TL_TRY(watch.set());
  std::uint64_t mask = 0;
  ::ptrace(PTRACE_GETSIGMASK, tid.value, sizeof mask, &mask);
  const std::uint64_t open_mask = mask & ~kSigtrapBit;
  if (open_mask != mask) ::ptrace(PTRACE_SETSIGMASK, tid.value, sizeof open_mask, &open_mask);
  TL_TRY(attachment.resume(tid));

  while (Clock::now() < deadline) {
    TL_TRY_ASSIGN(const auto event, attachment.wait_event(100ms));
    if (!event) continue;
    switch (event->kind) {
      case Event::Kind::kExit:
        for_caller.push_back(*event);
        return gone(tracees.pid);
      case Event::Kind::kExec:
        return false;
      case Event::Kind::kTrap:
        if (event->tid == tid && watch.hit(*event)) {
          TL_TRY(watch.clear());
          TL_TRY_ASSIGN(Registers r, read_registers(tid));
          r.set_pc(auxiliary.entry);
          TL_TRY(write_registers(tid, r));
          tracees.threads.at(tid.value).trap_pc = {};
          if (open_mask != mask) ::ptrace(PTRACE_SETSIGMASK, tid.value, sizeof mask, &mask);
          return true;
        }
        TL_TRY(attachment.resume(event->tid, SIGTRAP));
        break;
      case Event::Kind::kFork:
        if (!follow.forks) {
          if (auto freed = free_child(*event, watch); !freed && freed.error().code() != ErrorCode::kTargetGone) {
            return freed.error();
          }
          break;
        }
        [[fallthrough]];
      case Event::Kind::kThreadStarted:
      case Event::Kind::kThreadEnded:
        for_caller.push_back(*event);
        break;
    }
  }
  // Not there in time: it goes on without the watch.
  if (auto stopped = attachment.stop(); stopped) (void)watch.clear();
  return Error(ErrorCode::kTimeout, "process " + std::to_string(tracees.pid.value) + " (" + command_name(tracees.pid) +
                                        ") has not reached its entry point in time");
}

}  // namespace

Result<StoppedProcess> run_until_loaded(Attachment& attachment, std::chrono::milliseconds timeout) {
  Tracees& tracees = attachment.tracees();
  tracees.check_owner();
  const auto it = tracees.threads.find(tracees.pid.value);
  if (it == tracees.threads.end()) return gone(tracees.pid);
  if (it->second.state != TraceeState::kHeld) {
    return Error(ErrorCode::kInternal, "run_until_loaded of a process that is not at an exec event");
  }
  {
    Run run{attachment, tracees, Clock::now() + timeout, tracees.follow, {}};
    tracees.follow.traps = true;
    tracees.follow.exec = true;
    for (;;) {
      TL_TRY_ASSIGN(const bool there, run.to_entry());
      if (there) break;
    }
  }
  return attachment.stop();
}

}  // namespace trapline::target
