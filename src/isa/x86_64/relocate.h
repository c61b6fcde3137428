// Relocating: the displaced instructions, made to do at another address what they did at their own.
//
//   was                         becomes
//   op [rip+disp32]             the same, disp32 fixed; refused beyond +-2 GiB
//   jmp rel8/rel32              e9 rel32, or beyond 2 GiB: ff 25 00000000 imm64 (jmp [rip+0])
//   jcc rel8/rel32              0f 8x rel32, or beyond: 7x^1 0e, then the 14-byte jump
//   loop/jrcxz rel8             (67) ex 02 | eb 05 | e9 rel32      (eb 0e | ff 25 ... beyond)
//   branch into the window      the same to the copy of the instruction (or the probe before it)
//   ret, jmp reg/mem, the rest  copied
//   call, last in the window    the return address, pushed as the call would have pushed it, and a
//   jump:
//                               48 8d 64 24 f8        lea rsp, [rsp-8]
//                               c7 04 24 imm32        mov dword [rsp], low half
//                               c7 44 24 04 imm32     mov dword [rsp+4], high half
//                               e9 rel32 | ff /4      jmp to the callee
//                               The callee returns to its caller's own code, not here: unwinding
//                               sees what it always saw.
//   syscall, xbegin, ...        refused (site.h never plans them)

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "isa/x86_64/assembler.h"
#include "isa/x86_64/decode.h"
#include "isa/x86_64/site.h"

namespace trapline::isa {

// Why this instruction can never be relocated; nullopt: it can, reach apart. kJumpDirect etc.
// included.
std::optional<Refusal> unrelocatable(const Instruction& instruction);

// A call that can be relocated as the last instruction of a window. Not one through rsp, whose
// operand the push would move. Never where the process has a shadow stack: that would miss the
// call.
bool is_relocatable_call(const Instruction& instruction);

// Whether `trampoline` (any address within `slack` bytes from it) suits a site: the jump there, the
// jump back and every rip-relative operand are in reach. `bias` leads from link to remote
// addresses.
bool in_reach(const SitePlan& plan, LoadBias bias, RemoteAddr trampoline,
              std::uint64_t slack = 4096);

// Relocates one window, instruction by instruction, so that a caller can put code between them.
class Relocator {
 public:
  // `assembler` is where the code goes; `original` the window's bytes. Both outlive this.
  Relocator(Assembler& assembler, const SitePlan& plan, LoadBias bias);

  // Emits the copy of plan.displaced[index]; to be called in order, once each. Errors: kUnsupported
  // (out of reach).
  Result<> emit(std::size_t index);
  // Branches into the window lead to where the assembler is now. Call before emitting what precedes
  // the instruction.
  void mark(std::size_t index);
  // A jump to where a displaced branch leads, for code that replaces the branch.
  void jump_to(RemoteAddr target);
  // Resolves branches into the window. Call last, when every instruction was emitted.
  void finish();

 private:
  struct Fixup {
    std::size_t at = 0;      // offset of a rel32 in the assembler
    std::size_t target = 0;  // index of the displaced instruction
  };
  std::optional<std::size_t> inside(RemoteAddr target) const;
  std::span<const std::byte> original_bytes(const Instruction& i) const;
  void emit_rel32_inside(std::size_t target);
  void emit_jcc(const Instruction& i, RemoteAddr target);
  Result<> emit_call(const Instruction& i);
  void emit_loop(const Instruction& i, RemoteAddr target);
  Result<> emit_plain(const Instruction& i);

  Assembler& out_;
  const SitePlan& plan_;
  LoadBias bias_;
  std::vector<std::size_t> marks_;
  std::vector<Fixup> fixups_;
};

}  // namespace trapline::isa
