// The instruction that a breakpoint stands on, done for the thread that has hit it: nothing may be
// mapped into the process, so there is no place where a copy of it could be executed.
//
// 1. The usual ones are done by the tracer, on the thread's registers and stack (isa's emulate()).
// 2. Any other the thread executes itself, in a single step at its place. For that moment the
//    original byte stands there again, so nobody who shares the memory may run: each thread is
//    stopped, or is in the kernel with a stop before it. The thread's signals are blocked meanwhile
//    (but those that the instruction itself can raise), so that no handler runs in between; they
//    come afterwards. A fault of the instruction is delivered as if there had been no breakpoint;
//    a handler that returns to it hits the breakpoint anew.
//
// Limits: an instruction that makes a system call must not be stepped, as it could wait for a
// thread that is stopped: who lays breakpoints refuses it. One that is kept waiting by a page
// fault longer than a moment is begun again later (kLater), so that whoever resolves it can run. If
// the tracer is killed within the step, the thread is left with its signals blocked.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/attach.h"
#include "target/memory.h"
#include "target/registers.h"

namespace trapline::target {

// CET: what a return goes to is kept by the processor, so calls and returns are the thread's own.
enum class ShadowStack : std::uint8_t { kNo, kYes };

struct HiddenInstruction {
  RemoteAddr at;
  std::vector<std::byte> bytes;  // as they were before the breakpoint
};

// What a step that could not be finished leaves to the next one.
struct Unfinished {
  std::uint64_t stack_pointer = 0;
  std::optional<std::uint64_t> signal_mask;  // the thread's own
};

// Precondition: the thread is in a ptrace stop.
Result<> set_signal_mask(Tid tid, std::uint64_t mask);

class InstructionServer {
 public:
  explicit InstructionServer(ShadowStack shadow_stack) : shadow_stack_(shadow_stack) {}

  // Preconditions: `tid` is stopped by a kTrap event, its registers are `registers`, with the pc
  // on the instruction. `sharing`: all attachments to processes that share the memory, `own` among
  // them. nullopt: done, and the thread runs on. Errors: kTargetGone, kTimeout: the thread runs,
  // and hits the breakpoint again.
  Result<std::optional<Unfinished>> run(std::span<Attachment* const> sharing, Attachment& own,
                                        Tid tid, const HiddenInstruction& hidden,
                                        const Registers& registers,
                                        std::optional<std::uint64_t> signal_mask);

  // Since the start.
  std::uint64_t emulated() const { return emulated_; }
  std::uint64_t stepped() const { return stepped_; }

 private:
  bool emulate(Pid pid, const HiddenInstruction& hidden, Registers& registers) const;

  ShadowStack shadow_stack_;
  std::uint64_t emulated_ = 0;
  std::uint64_t stepped_ = 0;
};

}  // namespace trapline::target
