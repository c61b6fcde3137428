// The plan's integer operations: 64-bit two's complement, as plan.h defines them.

#pragma once

#include <cstdint>
#include <optional>

#include "plan/plan.h"

namespace trapline::interp {

struct ArithmeticResult {
  std::uint64_t value = 0;
  bool divide_by_zero = false;
};

// kAdd ... kComplement; nullopt: not such an operation. Unary operations ignore `b`.
std::optional<ArithmeticResult> arithmetic(plan::Op op, std::uint64_t a, std::uint64_t b);

// The low `size` bytes of `value`, extended. Sizes of 8 and more, and 0, leave it as it is.
std::uint64_t extend(std::uint64_t value, unsigned size, bool is_signed);

}  // namespace trapline::interp
