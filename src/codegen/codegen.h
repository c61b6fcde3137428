// From clauses to machine code: probe bodies that run in the traced process.
//
// A body is `preserve_mostcc void body(i64 a0..a5, ptr site)`: called with the six integer argument
// registers as the probed code has them and a `const wire::ProbeSite*` in r10, it preserves every
// general register but r11, and touches no vector or x87 register. Flags and r10 are the
// trampoline's to save. Everything a body needs is found through its site; so the object has no
// relocation left and may lie anywhere.
//
// A body does, in this order: read the site's alive word and the arena's state (return if it is not
// to run); find the thread's slot; take a level, if it needs one; run its clauses; give the level
// back.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "wire/arena.h"

namespace trapline::codegen {

// What arg0..arg9 are.
enum class SiteKind : std::uint8_t {
  kEntry,   // arg0..5: the argument registers; arg6..9: on the stack, as the System V ABI passes
            // them. Of an instruction within the function too: what is there by then
  kReturn,  // arg0: the instruction's offset in its function; arg1: the value, passed as the body's
            // first parameter
};

// One firing of `clauses` (indices into Program::clauses), in this order.
struct BodyRequest {
  SiteKind kind = SiteKind::kEntry;
  std::vector<std::uint32_t> clauses;
};

// Bytes of the target's stack that a body and its helpers use at most, the return address of the
// call included. Nearly all stay below the first; one that does not keeps its registers in scratch,
// which is slower, and may use the second.
inline constexpr std::uint32_t kUsualBodyStack = 256;
inline constexpr std::uint32_t kMaxBodyStack = 512;

struct Span {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

struct ObjectCode {
  std::vector<std::byte> bytes;        // to be placed at a multiple of kObjectAlignment
  std::vector<std::uint32_t> entries;  // offset of each requested body
  Span code;                           // instructions
  Span constants;                      // read-only data; size 0 for most objects
  std::uint32_t max_stack = 0;         // bytes, at most kMaxBodyStack
  // System calls that some body may make. gettid only while a thread has no thread pointer
  // (wire::kEarly) or where Header::tid_offset is 0; clock_gettime for vtimestamp, or where
  // Header::tsc_mult is 0.
  bool calls_gettid = false;
  bool calls_process_vm_readv = false;
  bool calls_clock_gettime = false;
  bool calls_process_vm_writev = false;  // copyout(), copyoutstr()
  bool calls_kill = false;               // raise(), stop()
};
inline constexpr std::uint32_t kObjectAlignment = 64;

// What LayoutRequest::scratch_size has to be for a program: static and dynamic scratch, and room
// for the registers of bodies that would use too much of the target's stack.
std::uint32_t scratch_size(const plan::Program& program);

// How much time machine code is worth.
enum class Effort : std::uint8_t {
  kByCount,  // quick for more than a hundred clauses
  kFull,     // the runtime is inlined and all is optimised: 5 to 40 ms a clause
  kQuick,    // the runtime is called, and little is optimised: 2 ms a clause, some ns more a firing
};

// Errors: kUnsupported for what cannot be compiled (a body too large for its stack, a record larger
// than a chunk); kInternal for a plan that breaks its own rules, or a failure of LLVM.
Result<ObjectCode> compile(const plan::Program& program, const wire::Layout& layout,
                           std::span<const BodyRequest> bodies, Effort effort = Effort::kByCount);

}  // namespace trapline::codegen
