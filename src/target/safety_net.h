// What brings a thread back if the tracer dies while the thread makes an injected system call.
//
// The kernel then lets the thread run on: after the `syscall` it executes what follows there. So
// the instruction used is a `syscall; ret`, and the stack pointer is put below the red zone on a
// signal frame as the kernel would have built it, whose return address leads to a rt_sigreturn: all
// registers (vector ones too), the signal mask and the place of execution are then what they were
// before the injection.
//
//     rsp -> [ sigreturn code     ]   popped by ret; or: [pop rax; ret] [15] [syscall]
//            [ ucontext           ]   registers, mask; an invalid ss_flags so that the signal stack
//            is left alone [ xsave area, 64-al. ] ( red zone, 128 ) old rsp
//
// An interrupted system call that would have restarted is restarted by the frame (pc 2 bytes
// before). What lay in these bytes is written back in the ordinary case, when everybody else is
// stopped. Limits: none where the stack has too little room below, with a CET shadow stack, or if
// the instructions do not exist in the target. Sources: arch/x86/kernel/signal_64.c (rt_sigframe),
// arch/x86/kernel/fpu/signal.c (check_xstate_in_sigframe).

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "target/memory.h"
#include "target/process.h"
#include "target/registers.h"
#include "target/tracees.h"

namespace trapline::target {

struct SafetyNet {
  RemoteAddr stack_pointer;         // for the injected calls
  RemoteAddr syscall;               // the instruction to be used
  std::vector<std::byte> original;  // bytes at stack_pointer
};

// Writes the frame into the target. nullopt: not possible here (nothing was written).
Result<std::optional<SafetyNet>> spread_net(Memory& memory, Tid tid, const Registers& registers,
                                            std::uint64_t signal_mask, const Gadgets& gadgets,
                                            std::span<const Mapping> maps);
// Writes back what was there.
Result<> fold_net(Memory& memory, const SafetyNet& net);

}  // namespace trapline::target
