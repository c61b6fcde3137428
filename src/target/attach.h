// Attachment: a process, all of whose threads are seized by the calling thread; and the events of
// those threads.
//
// seize() uses PTRACE_SEIZE, which stops nobody, thread after thread until no unknown one is left;
// new threads are then seized by the kernel (PTRACE_O_TRACECLONE). stop() (stopped.h) gives a guard
// during whose life no thread runs.
//
// While an Attachment lives, every signal of the target, every new thread and every group-stop
// waits for the tracer: call wait_event() until detach(). Events are handled so that the target
// never notices: signals are delivered, group-stops kept. The caller is told of what it asked for.
//
// All calls come from the thread that called seize() or adopt(); that is checked. The kernel lets
// go of all threads if that thread ends, at whatever moment (so also after kill -9). Threads that
// cannot be stopped (a vfork parent, a thread in an uninterruptible wait) cannot be detached
// either: close() then gives kTimeout, and only the end of the calling thread lets go of them;
// ptrace_thread.h offers one to end.
//
// Waiting: SIGCHLD is blocked in the calling thread during a wait. Waits are prompt where every
// other thread of this process blocks it too or the process has one thread; otherwise they poll (1
// ms, in a long wait 10 ms). For an event loop: block SIGCHLD in all threads, poll a signalfd for
// it and then call wait_event(0) until it gives nothing. The state of children that are no tracees
// of the attachment is never consumed.
//
// Sources: ptrace(2), kernel/ptrace.c, kernel/signal.c (do_jobctl_trap, ptrace_stop), and the rules
// of docs/architecture.md.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"
#include "target/process.h"

namespace trapline::target {

class StoppedProcess;
struct Tracees;  // the state behind an Attachment; tracees.h

// Which events wait_event() reports. Exit of the process is always reported.
struct Follow {
  bool exec = true;
  bool forks = false;    // fork, vfork and processes made by clone: the child is seized too and
                         // reported stopped
  bool threads = false;  // kThreadStarted, kThreadEnded
  bool traps = false;  // kTrap for int3 and hardware breakpoints; else the SIGTRAP is delivered as
                       // any signal
};

struct AttachOptions {
  Follow follow;
  // For all of seize(), also for a vfork parent to become free of its child.
  std::chrono::milliseconds timeout{1000};
  // PTRACE_O_EXITKILL: the target dies with the calling thread. For commands that have not started
  // yet.
  bool kill_on_exit = false;
};

enum class RaisePriority : std::uint8_t { kNo, kWhenAllowed };

struct StopOptions {
  std::chrono::milliseconds timeout{1000};
  RaisePriority priority =
      RaisePriority::kWhenAllowed;  // SCHED_FIFO or nice of the tracer's thread, restored after
};

struct Event {
  enum class Kind : std::uint8_t {
    kExit,  // the process has ended: `status` as waitpid gives it
    kExec,  // `tid` (the leader now; the only thread) is stopped before the new image's first
            // instruction
    kFork,  // `child` was forked by `tid`; both run on unless Follow::forks, then `child` is
            // stopped: see adopt_child
    kThreadStarted,  // tid
    kThreadEnded,    // tid
    kTrap,  // `tid` is stopped with SIGTRAP by an instruction (int3, hardware breakpoint, step)
  };
  Kind kind{};
  Tid tid{};
  int status = 0;
  Pid child{};
  RemoteAddr pc{};     // kTrap: the thread's pc (after the int3)
  int trap_code = 0;   // kTrap: si_code: SI_KERNEL (int3), TRAP_TRACE, TRAP_HWBKPT
  bool vfork = false;  // kFork: the child shares the parent's memory until it execs or ends
};

class Attachment {
 public:
  // Waits for another Trapline that holds the process for a moment. Errors: those of
  // check_traceable; kTimeout; kTargetGone. After an error nobody stays seized (except kTimeout:
  // see above).
  static Result<Attachment> seize(Pid pid, const AttachOptions& options = {});
  // The child of an Event::kFork under Follow::forks. It stays stopped until the returned
  // attachment's resume(tid), a StoppedProcess, or detach().
  Result<Attachment> adopt_child(const Event& fork);

  Attachment(Attachment&&) noexcept;
  Attachment& operator=(Attachment&&) noexcept;
  ~Attachment();  // detach(), errors ignored

  Pid pid() const;
  // Polls readable when the process has ended.
  const Fd& pidfd() const;
  bool gone() const;  // the process has ended, as far as events have told

  // Stops every thread. Errors: kTimeout names the thread that did not stop and why; then all
  // others run on as before, and that one stops later: go on with wait_event() or detach().
  Result<StoppedProcess> stop(const StopOptions& options = {});

  // The next event, waiting at most `timeout` (0: only look). nullopt: none came. Signals,
  // group-stops, new threads are handled inside. After kExec, kTrap and kFork's child the thread
  // named stays stopped until resume(). Errors: none but kOs; an ended target is Event::kExit,
  // once.
  Result<std::optional<Event>> wait_event(std::chrono::milliseconds timeout);
  // Lets a thread go on that an event left stopped. `signal`: delivered to it (pass SIGTRAP on that
  // is not ours); 0: none.
  Result<> resume(Tid tid, int signal = 0);
  // A step by PTRACE_SINGLESTEP of a thread that an event left stopped; comes back as kTrap with
  // TRAP_TRACE.
  Result<> step(Tid tid);

  // Threads known now, without those that cannot stop.
  std::vector<Tid> threads() const;
  // Raised by every exec: what was mapped or patched under another number is gone.
  std::uint32_t image() const;

  // Lets go of every thread; nothing stays stopped that was not. Stops threads shortly to do so
  // (ptrace allows no other way). Errors: kTimeout (see above). A target that has ended is no
  // error.
  Result<> detach(std::chrono::milliseconds timeout = std::chrono::milliseconds(1000));

  // For this folder.
  Tracees& tracees() { return *tracees_; }

 private:
  static Result<Attachment> seize_now(Pid pid, const AttachOptions& options);

  friend class StoppedProcess;
  friend class LaunchedProcess;
  explicit Attachment(std::unique_ptr<Tracees> tracees);
  std::unique_ptr<Tracees> tracees_;
};

}  // namespace trapline::target
