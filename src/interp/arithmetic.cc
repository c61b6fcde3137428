#include "interp/arithmetic.h"

#include <limits>

namespace trapline::interp {
namespace {

using plan::Op;

ArithmeticResult divide(Op op, std::uint64_t a, std::uint64_t b) {
  if (b == 0) return {0, true};
  const auto left = static_cast<std::int64_t>(a);
  const auto right = static_cast<std::int64_t>(b);
  const bool overflows = left == std::numeric_limits<std::int64_t>::min() && right == -1;
  switch (op) {
    case Op::kDivUnsigned:
      return {a / b};
    case Op::kRemUnsigned:
      return {a % b};
    case Op::kDivSigned:
      return {overflows ? a : static_cast<std::uint64_t>(left / right)};
    default:
      return {overflows ? 0 : static_cast<std::uint64_t>(left % right)};
  }
}

std::optional<std::uint64_t> compare(Op op, std::uint64_t a, std::uint64_t b) {
  const auto left = static_cast<std::int64_t>(a);
  const auto right = static_cast<std::int64_t>(b);
  switch (op) {
    case Op::kEqual:
      return a == b;
    case Op::kNotEqual:
      return a != b;
    case Op::kLess:
      return left < right;
    case Op::kLessEqual:
      return left <= right;
    case Op::kLessUnsigned:
      return a < b;
    case Op::kLessEqualUnsigned:
      return a <= b;
    default:
      return std::nullopt;
  }
}

std::optional<std::uint64_t> combine(Op op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    case Op::kShiftLeft:
      return a << (b & 63);
    case Op::kShiftRight:
      return a >> (b & 63);
    case Op::kShiftRightSigned:
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(a) >> (b & 63));
    case Op::kNegate:
      return 0 - a;
    case Op::kComplement:
      return ~a;
    default:
      return compare(op, a, b);
  }
}

}  // namespace

std::optional<ArithmeticResult> arithmetic(Op op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case Op::kDivSigned:
    case Op::kDivUnsigned:
    case Op::kRemSigned:
    case Op::kRemUnsigned:
      return divide(op, a, b);
    default:
      break;
  }
  if (const auto value = combine(op, a, b)) return ArithmeticResult{*value};
  return std::nullopt;
}

std::uint64_t extend(std::uint64_t value, unsigned size, bool is_signed) {
  if (size == 0 || size >= 8) return value;
  const unsigned shift = 64 - 8 * size;
  value <<= shift;
  if (!is_signed) return value >> shift;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value) >> shift);
}

}  // namespace trapline::interp
