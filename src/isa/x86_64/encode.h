// Trampolines: the code between a patched site and a probe body.
//
// The site's jump leads here. At each probe point the body is called; the displaced instructions
// run; the last thing is a jump back, unless the window ends in a ret or jmp. A body is a
// preserve_most function: it gives back every general register but r11, and flags do not survive
// it. It finds its site in r10.
//
// Entry point, ABI boundary (flags, r10, r11 and everything below rsp are dead; System V ABI 3.2.1
// to 3.2.3):
//   4c 8d 15 rel32        lea r10, [rip+site]
//   e8 rel32              call body
// or, out of reach:
//   49 ba imm64           movabs r10, site
//   49 bb imm64           movabs r11, body
//   41 ff d3              call r11
// then
//   ...                   displaced instructions
//   e9 rel32              jmp back
//
// Return point: rax is the body's first argument. rdi is dead by the ABI, but not by gcc's
// -fipa-ra, so it is kept:
//   57                    push rdi
//   48 89 c7              mov rdi, rax
//   ...                   lea r10, call body
//   5f                    pop rdi
//   c3                    ret
//
// Save::kRegisters: around the above
//   41 52 41 53           push r10; push r11
//   ...
//   41 5b 41 5a           pop r11; pop r10
//
// Everything kept (Save::kAll: local functions, hand-written assembler, mid-function):
//   48 8d 64 24 80        lea rsp, [rsp-128]          over the red zone
//   50 9f 0f 90 c0 50     push rax; lahf; seto al; push rax
//   41 52 41 53           push r10; push r11
//   48 8b 44 24 18        mov rax, [rsp+24]           the body may see rax
//   ...
//   41 5b 41 5a           pop r11; pop r10
//   58 04 7f 9e 58        pop rax; add al, 127 (OF again); sahf; pop rax
//   48 8d a4 24 80 00 00 00  lea rsp, [rsp+128]
//
// kGoEntry, within Save::kAll: Go's argument registers (rax, rbx, rcx, rdi, rsi, r8, r9, r10, r11)
// and what follows on the stack become those of C; kGoStackEntry: the stack's first six do. See
// Encoder::push_go_arguments.
//
// kStatic, within Save::kAll: ten operands of the program's, pushed from the last to the first,
// become the arguments. See Encoder::push_operands.
//
// Conditional tail jump: 0f 8x^1 rel32 over the point's code and the jump, so that the probe fires
// only when it is taken.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "isa/x86_64/operand.h"
#include "isa/x86_64/site.h"

namespace trapline::isa {

enum class Save : std::uint8_t {
  kNothing,    // flags, r10, r11 are dead, there is no red zone
  kRegisters,  // flags are dead, there is no red zone; r10 and r11 are kept
  kAll,        // every register and flag (CF PF AF ZF SF OF) is kept, and the red zone
};

// What the callers of a function may know of it.
enum class Boundary : std::uint8_t {
  kAbi,      // the ABI only: they come through a PLT or a pointer
  kModule,   // some call it directly. gcc's -fipa-ra lets such a caller keep values in r10 and r11,
             // if they were compiled together and the function does not use them. (Flags never live
             // across a call.)
  kUnknown,  // local functions, whose convention the compiler may have changed, and hand-written
             // assembler
};
enum class Linkage : std::uint8_t { kExported, kLocal };

Boundary boundary_of(const ModuleCode& module, const FunctionCode& function, Linkage linkage);
Save save_for(PointKind kind, Boundary boundary);

struct TrampolinePoint {
  std::uint8_t offset = 0;  // in the window, as in PlannedPoint
  PointKind kind = PointKind::kEntry;
  Save save = Save::kAll;
  RemoteAddr body;
  RemoteAddr probe_site;                   // of its wire::ProbeSite
  std::span<const Operand> operands = {};  // kStatic: the arguments; the body reads 0 for more
};

struct TrampolineRequest {
  RemoteAddr address;  // of the trampoline
  LoadBias bias;       // of the module
  const SitePlan* plan = nullptr;
  std::vector<TrampolinePoint> points =
      {};  // called in this order where offsets are equal; any of plan->points or none
};

// Where a PC goes. A thread stopped at `site_offset` in the window (never 0: it just runs into the
// jump) is moved to `trampoline_offset`, where the probe of that instruction is still to come; one
// stopped at `instruction_offset` of the trampoline can be moved to site_offset when the site is
// restored.
struct PcMapping {
  std::uint8_t site_offset = 0;
  std::uint16_t trampoline_offset = 0;   // the instruction's probes, if any, else the instruction
  std::uint16_t instruction_offset = 0;  // the relocated instruction itself
};

struct Trampoline {
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t>
      stack_adjust;            // a point each, in the request's order: for wire::ProbeSite
  std::vector<PcMapping> pcs;  // a displaced instruction each
};

// Of a window of kMaxWindow bytes in which every instruction has some points.
inline constexpr std::size_t kMaxTrampoline = 32 * 1024;

// Of a kStatic point: as many as a body can ask for.
inline constexpr std::size_t kMaxOperands = 10;

// The most bytes a trampoline for this plan can take, to reserve room before its address is known.
std::size_t trampoline_bound(const SitePlan& plan, std::size_t points);

// Errors: kUnsupported (a rip-relative operand or the jump back is out of reach), kInternal (a
// point that is no displaced instruction).
Result<Trampoline> encode_trampoline(const TrampolineRequest& request);

// The bytes to write at the site: e9 rel32 to the trampoline (kIsland: eb rel8 to the island;
// kTrap: cc). Error: kUnsupported, out of reach.
Result<std::vector<std::byte>> encode_patch(const SitePlan& plan, LoadBias bias,
                                            RemoteAddr trampoline);
// The bytes to write at the island: e9 rel32 to the trampoline. Precondition: the plan has one.
// Error: kUnsupported, out of reach.
Result<std::vector<std::byte>> encode_island(const SitePlan& plan, LoadBias bias,
                                             RemoteAddr trampoline);

}  // namespace trapline::isa
