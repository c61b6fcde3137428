// System calls executed by a stopped process.
//
// One stopped thread is chosen, its registers and signal mask are saved, all its signals blocked;
// rip is put at a `syscall` instruction that the process has mapped anyway, the call runs (between
// a syscall-entry and a syscall-exit stop: no SIGTRAP is involved, whose handler the kernel would
// reset if it is blocked or ignored), rax is read; at the end everything is put back. Nothing of
// libc is called; errno is not touched.
//
// Chosen is a thread that is in no restartable sequence (rseq), since an injected call would leave
// its critical section unprotected; if there is none, kTimeout: let the process run a bit and stop
// it again.
//
// If the tracer dies in the midst, the kernel lets the thread run on from wherever it is: where
// possible (a `syscall; ret`, a sigreturn sequence and room below the red zone exist) a signal
// frame is kept below the stack pointer that brings all registers back; its bytes are restored at
// the end as well.
//
// seccomp: filters apply to these calls, and a filter may kill. Calls are only made through a
// thread without filters, or if the filters were found to allow them (see seccomp.h). Else
// kUnsupported.
//
// Sources: ptrace(2), rseq(2), syscall(2), design notes in docs/architecture.md.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/address.h"
#include "base/result.h"
#include "target/stopped.h"

namespace trapline::target {

// A guard: stack only, one at a time, within the life of the StoppedProcess.
class RemoteCalls {
 public:
  // Errors: kTargetGone, kUnsupported (seccomp; no `syscall` instruction), kTimeout (rseq).
  static Result<RemoteCalls> begin(StoppedProcess& process);
  RemoteCalls(RemoteCalls&&) noexcept;
  RemoteCalls& operator=(RemoteCalls&&) = delete;
  ~RemoteCalls();  // end(), errors ignored

  // What the call returned. A failed call is kOs with its errno; `what` names it: "mmap in process
  // 12".
  template <typename... Args>
  Result<std::uint64_t> call(std::string_view what, long number, Args... args) {
    static_assert(sizeof...(args) <= 6);
    return run(what, number, std::array<std::uint64_t, 6>{static_cast<std::uint64_t>(args)...});
  }
  Result<std::uint64_t> run(std::string_view what, long number,
                            const std::array<std::uint64_t, 6>& args);

  // The thread that makes the calls.
  Tid tid() const;
  StoppedProcess& process();

  // Puts everything back.
  Result<> end();

 private:
  struct State;
  explicit RemoteCalls(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trapline::target
