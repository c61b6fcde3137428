// Checks a plan before code is made of it. The code that comes out runs in somebody's process: an
// index out of range, a string register that may hold any address, or scratch that overlaps would
// harm it. After this check the emitter trusts the plan.

#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "codegen/codegen.h"

namespace trapline::codegen {

// Errors: kInternal (the plan breaks its rules), kUnsupported (beyond what this back end does).
Result<> validate(const plan::Program& program, const wire::Layout& layout,
                  std::span<const BodyRequest> bodies);

// The greatest static scratch of the program's clauses; dynamic scratch lies behind it.
std::uint32_t static_scratch_size(const plan::Program& program);

// Bytes of the longest key that the operands make; `prefix_words`: thread id and bin that the
// engine adds.
std::uint64_t longest_key(std::span<const plan::Operand> operands, std::uint32_t prefix_words);

}  // namespace trapline::codegen
