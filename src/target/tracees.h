// The traced threads of one process and what state each is in: what Attachment and StoppedProcess
// are made of.
//
// Every status that waitpid gives goes through on_status(), with the purpose of the moment: while
// pumping, threads go on at once; while stopping, every stop that is not the wanted one is answered
// by PTRACE_INTERRUPT and then PTRACE_CONT (with its signal), which makes the thread stop again
// before it executes any instruction. So the stopped state is always the same one:
// PTRACE_EVENT_STOP, outside of any system call, where registers may be changed and calls injected.
//
// Why the order INTERRUPT, CONT: any trap clears a pending PTRACE_INTERRUPT (kernel/signal.c,
// ptrace_stop), so one that was sent before a signal-delivery stop is gone; and one sent after CONT
// would let the thread run meanwhile.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"
#include "target/attach.h"
#include "target/memory.h"
#include "target/process.h"
#include "target/wait.h"

namespace trapline::target {

enum class TraceeState : std::uint8_t {
  kRunning,    // or about to report a stop
  kListening,  // in a group-stop, as PTRACE_LISTEN leaves it
  kStopped,    // PTRACE_EVENT_STOP; nothing outstanding
  kHeld,       // stopped by an event that the caller was told of
  kDead,       // a zombie that is not reported yet (a leader whose threads live on)
};

struct Tracee {
  Tid tid;
  TraceeState state = TraceeState::kRunning;
  int group_signal = 0;      // kStopped: the group-stop's signal; 0: none
  bool interrupted = false;  // PTRACE_INTERRUPT was sent and no stop has come since
  bool stepping = false;     // PTRACE_SINGLESTEP by the caller
  RemoteAddr trap_pc{};      // kHeld at an int3: the pc reported
};

enum class Purpose : std::uint8_t { kPump, kStop };

// A thread that sleeps in the kernel uninterruptibly (for its vfork child, say), and has been sent
// PTRACE_INTERRUPT, executes no instruction before it stops: that may be enough.
enum class InKernel : std::uint8_t { kIsAwaited, kIsEnough };

// Instructions of the target that remote_syscall.h uses; looked for once an image.
struct Gadgets {
  RemoteAddr syscall;         // 0f 05
  RemoteAddr syscall_return;  // 0f 05 c3; 0: none
  RemoteAddr sigreturn;       // mov $15,%rax; syscall; 0: none
  RemoteAddr pop_rax_return;  // 58 c3; 0: none
};

struct Tracees {
  Pid pid;
  Fd pidfd;
  Follow follow;
  pid_t owner = 0;  // the thread whose tracees these are
  std::map<pid_t, Tracee> threads;
  std::deque<Event> events;
  std::set<pid_t> forked;  // children reported and not adopted; they are stopped
  std::set<pid_t>
      strays;  // processes that the kernel seized and nobody asked for: let go at their first stop
  bool gone = false;
  std::optional<int> exit_status;
  std::uint32_t image = 0;       // raised by every exec
  std::optional<Memory> memory;  // of this image
  std::optional<Gadgets> gadgets;

  void check_owner() const;
  unsigned long ptrace_options() const;
  bool kill_on_exit = false;

  // Seizes every thread; nobody is stopped.
  Result<> seize_all(Clock::time_point deadline);
  // Brings every thread to kStopped. kTimeout: some did not; the others stay stopped.
  Result<> stop_all(Clock::time_point deadline, InKernel in_kernel = InKernel::kIsAwaited);
  // Every kStopped thread goes on as it was.
  void resume_all();
  // Every kStopped thread is let go of, and children and strays, which are waited for.
  Result<> detach_stopped(Clock::time_point deadline);

  // Handles what there is to be handled, without waiting. True: something was.
  bool collect(Purpose purpose);
  Result<Memory*> open_memory();
  // PTRACE_O_* beyond ptrace_options() for one stopped thread.
  Result<> set_options(Tid tid, unsigned long more);

  // The next status of one thread, which is not handled here; its end is, and gives kTargetGone.
  // kTimeout.
  Result<int> wait_for(Tid tid, Clock::time_point deadline);
  // A thread in some other stop comes to kStopped without executing an instruction. `signal`:
  // delivered to it first; 0: none.
  Result<> restop(Tid tid, Clock::time_point deadline, int signal = 0);
  // A kStopped thread runs for a moment and is kStopped again. It may have made other threads
  // meanwhile: see StoppedProcess::settle().
  Result<> run_briefly(Tid tid, std::chrono::microseconds time, Clock::time_point deadline);

 private:
  enum class Seized : std::uint8_t { kYes, kSkipped };
  Result<Seized> seize_thread(Tid tid);
  Result<bool> seize_unknown(Purpose purpose);
  bool scan(Purpose purpose);
  void release_children();
  void on_status(pid_t tid, int status, Purpose purpose);
  void on_end(pid_t tid, int status);
  void on_stop(Tracee& t, int signal, Purpose purpose);
  void on_signal(Tracee& t, int signal, Purpose purpose);
  void on_exec(pid_t tid, Purpose purpose);
  void on_new_task(Tracee& parent, int event, Purpose purpose);
  void add_thread(pid_t tid);
  void go_on(Tracee& t, int signal, Purpose purpose);
  void interrupt(Tracee& t);
  static bool int3_pending(Tid tid);
  void release_held(Tracee& t);
  static void repair(const Tracee& t);
  void mark_dead();
  bool all_stopped(InKernel in_kernel = InKernel::kIsAwaited) const;
  Error not_stopped() const;
};

// An INT3 that was just executed is undone: pc goes back onto it, so that it will be executed
// again. Nothing if the byte before pc is none. Returns whether it was.
bool undo_int3(const Memory& memory, Tid tid);

}  // namespace trapline::target
