// The general registers of one stopped thread.
//
// Preconditions: the thread is in a ptrace stop of the calling thread. kTargetGone if it has been
// killed meanwhile. Sources: ptrace(2) PTRACE_GETREGS, <sys/user.h>, arch/x86/kernel/signal.c
// (system call restart).

#pragma once

#include <sys/user.h>

#include <cstdint>

#include "base/address.h"
#include "base/result.h"

namespace trapline::target {

struct Registers {
  ::user_regs_struct raw{};

  RemoteAddr pc() const { return RemoteAddr(raw.rip); }
  void set_pc(RemoteAddr a) { raw.rip = a.value(); }
  RemoteAddr sp() const { return RemoteAddr(raw.rsp); }
  // 0 until the thread's TLS has been set up.
  std::uint64_t fs_base() const { return raw.fs_base; }

  // The thread was interrupted in a system call that the kernel will start again when it goes on:
  // it then executes the `syscall` instruction two bytes before pc() a second time.
  bool restarts_system_call() const;
  // Where the thread will execute next when it goes on: pc(), or two bytes before it (see above).
  RemoteAddr resume_pc() const { return restarts_system_call() ? pc() - 2 : pc(); }
};

Result<Registers> read_registers(Tid tid);
Result<> write_registers(Tid tid, const Registers& registers);

}  // namespace trapline::target
