// The verifier: what compiled code must be before it is mapped into somebody's process.
//
// Code generators have bugs and options get lost; a vector register touched, a deep stack or a
// stray branch would harm the target. So every object is decoded again here, along every path from
// its entries, and refused unless
//   - every reachable instruction decodes, inside the code ranges, and control never leaves them;
//   - only general registers, flags, and fs/gs as segments are used: no x87, MMX, vector, mask or
//   tile state;
//   - there is no indirect jump or call, no int, hlt, privileged or far instruction, no ud2 that
//   can be reached,
//     no pushf/popf, no std; `syscall` only where it is planned;
//   - the stack pointer moves only in ways that can be followed, is the same on all paths to an
//   instruction, is back
//     at `ret`, and stays within the bound along the deepest chain of calls; no recursion.
// What it does not judge: memory accesses, termination, preserve_most (tests do).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace trapline::isa {

struct OffsetRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

enum class SystemCalls : std::uint8_t { kForbidden, kAllowed };

struct VerifyRequest {
  std::span<const std::byte>
      blob;  // code and read-only data as they will be mapped, relocations applied
  std::vector<OffsetRange> code;     // the parts of it that are code
  std::vector<std::size_t> entries;  // offsets of the functions that are called from outside
  std::size_t max_stack = 256;       // below the entry's rsp; the return addresses of calls count
  SystemCalls system_calls = SystemCalls::kForbidden;
};

struct VerifyReport {
  std::size_t max_stack = 0;  // over all entries
  std::size_t instructions = 0;
  std::size_t functions = 0;
  std::size_t system_calls = 0;
};

// Errors: kInternal, with the offset, the reason and the bytes.
Result<VerifyReport> verify_code(const VerifyRequest& request);

}  // namespace trapline::isa
