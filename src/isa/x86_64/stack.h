// Where rsp and rbp point, relative to rsp at a function's first instruction, as far as
// instructions tell.

#pragma once

#include <cstdint>
#include <optional>

#include "isa/x86_64/decode.h"

namespace trapline::isa {

struct StackState {
  std::optional<std::int64_t> rsp;  // 0 at the entry, negative below
  std::optional<std::int64_t> rbp;  // only if it is known to hold such an address
  auto operator<=>(const StackState&) const = default;
};

inline StackState apply_stack(const Instruction& instruction, StackState state) {
  // Hostile code may adjust by 2^31 a million times; what is that far off is as good as unknown.
  constexpr std::int64_t kLimit = std::int64_t{1} << 40;
  const auto plus = [](std::optional<std::int64_t> a,
                       std::int64_t b) -> std::optional<std::int64_t> {
    if (!a || *a > kLimit || *a < -kLimit) return std::nullopt;
    return *a + b;
  };
  constexpr std::uint16_t kRbpBit = 1u << 5;
  StackState next = state;
  if ((instruction.writes & kRbpBit) != 0) next.rbp.reset();
  switch (instruction.stack) {
    case StackOp::kNone:
      break;
    case StackOp::kAdjust:
      next.rsp = plus(state.rsp, instruction.stack_value);
      break;
    case StackOp::kSaveFrame:
      next.rbp = plus(state.rsp, instruction.stack_value);
      break;
    case StackOp::kLoadFrame:
      next.rsp = plus(state.rbp, instruction.stack_value);
      break;
    case StackOp::kLeave:
      next.rsp = plus(state.rbp, 8);
      break;
    case StackOp::kAlign:
    case StackOp::kUnknown:
      next.rsp.reset();
      break;
  }
  return next;
}

}  // namespace trapline::isa
