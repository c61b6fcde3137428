// StoppedProcess: during its life no thread of the process executes an instruction of its own.
//
// Made by Attachment::stop(). Lives on the stack of the ptrace thread; its end resumes everyone:
// each thread as it was found (running, or in its group-stop). While stopped:
//   - signals sent to the target stay pending; none is lost, none added;
//   - system calls that were interrupted by the stop start again when the target goes on, and those
//   that would have
//     returned EINTR for it do not (a relative timeout of epoll_wait, semtimedop, sigtimedwait,
//     io_getevents and of sockets starts anew);
//   - SIGKILL still works: every operation may then give kTargetGone.
// Threads that never stop (io_uring and vhost workers) are not listed: they run kernel code only.

#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/attach.h"
#include "target/memory.h"
#include "target/process.h"
#include "target/registers.h"
#include "target/wait.h"

namespace trapline::target {

struct StoppedThread {
  Tid tid;
  Registers registers;         // at the stop, the EINTR repair done
  bool group_stopped = false;  // by SIGSTOP or the like: it stays so
};

class StoppedProcess {
 public:
  StoppedProcess(StoppedProcess&& other) noexcept;
  StoppedProcess& operator=(StoppedProcess&&) = delete;
  ~StoppedProcess();  // resume(), errors ignored

  Pid pid() const;
  // Valid until move_out() or RemoteCalls::begin(), which may let a thread run for a moment.
  std::span<const StoppedThread> threads() const { return threads_; }
  const StoppedThread* find(Tid tid) const;
  Memory& memory();
  const Memory& memory() const;

  // The mappings; read once, and again after refresh_maps() (injected calls do that).
  Result<std::span<const Mapping>> maps();
  void refresh_maps() { maps_.clear(); }

  // Changes a thread's registers, for when it goes on.
  Result<> set_registers(Tid tid, const Registers& registers);

  // How long the target has been stopped, from before the first thread was interrupted.
  std::chrono::nanoseconds stopped_for() const;

  // All threads go on; the attachment stays. Afterwards only destruction is allowed.
  Result<> resume();
  // All threads go on and are let go of: the attachment is empty afterwards. Needs no second stop.
  Result<> detach();

  // For this folder.
  Tracees& tracees() { return *tracees_; }
  // After threads were let run for a moment: stops what is new, and reads threads and registers
  // again. kTargetGone if another program was executed.
  Result<> settle();

 private:
  friend class Attachment;
  StoppedProcess(Tracees& tracees, RaisePriority priority);
  Result<> begin();

  Tracees* tracees_;  // null after resume()
  std::unique_ptr<RaisedPriority> priority_;
  std::vector<StoppedThread> threads_;
  std::vector<Mapping> maps_;
  std::uint32_t image_ = 0;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace trapline::target
