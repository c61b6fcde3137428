// Lowering's part for operators. See lower.h for how values are computed.

#include <algorithm>

#include "dlang/lowerer.h"
#include "plan/layout.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;
using plan::kNoReg;
using plan::Op;

}  // namespace

plan::Reg Lowerer::lower_binary(const Node& node) {
  const BinaryOperator op = *node.op;
  const Node& left = *node.operands[0];
  const Node& right = *node.operands[1];
  if (is_logical(op)) return lower_logical(node);
  if (is_comparison(op)) return lower_comparison(node);
  if (op == BinaryOperator::kComma) {
    // A void value has no register; whether it failed is in the diagnostics.
    lower_discarding(left);
    return lower_discarding(right);
  }
  // A string that begins within another one.
  if (types_.is_string(node.type)) {
    const Reg address = lower_pointer(node);
    return address == kNoReg ? kNoReg : copy_string(address, std::nullopt);
  }
  const Reg l = lower(left);
  const Reg r = lower(right);
  if (l == kNoReg || r == kNoReg) return kNoReg;
  const auto points = [&](const Node& side) {
    return types_.is_pointer(side.type) || types_.is_string(side.type);
  };
  if (points(left) || points(right)) return lower_pointer_arithmetic(op, left, l, right, r);
  return lower_arithmetic(op, l, r, node.type);
}

plan::Reg Lowerer::lower_arithmetic(BinaryOperator op, Reg left, Reg right, TypeId type) {
  const bool is_signed = types_.is_signed(type);
  switch (op) {
    case BinaryOperator::kMultiply:
      return emit_value(Op::kMul, left, right);
    case BinaryOperator::kDivide:
      return emit_value(is_signed ? Op::kDivSigned : Op::kDivUnsigned, left, right);
    case BinaryOperator::kRemainder:
      return emit_value(is_signed ? Op::kRemSigned : Op::kRemUnsigned, left, right);
    case BinaryOperator::kAdd:
      return emit_value(Op::kAdd, left, right);
    case BinaryOperator::kSubtract:
      return emit_value(Op::kSub, left, right);
    case BinaryOperator::kShiftLeft:
      return emit_value(Op::kShiftLeft, left, right);
    case BinaryOperator::kShiftRight:
      return emit_value(is_signed ? Op::kShiftRightSigned : Op::kShiftRight, left, right);
    case BinaryOperator::kBitAnd:
      return emit_value(Op::kAnd, left, right);
    case BinaryOperator::kBitOr:
      return emit_value(Op::kOr, left, right);
    default:
      return emit_value(Op::kXor, left, right);
  }
}

plan::Reg Lowerer::lower_pointer_arithmetic(BinaryOperator op, const Node& left, Reg l,
                                            const Node& right, Reg r) {
  const bool strings = types_.is_string(left.type) || types_.is_string(right.type);
  const bool left_points = types_.is_pointer(left.type) || types_.is_string(left.type);
  const TypeId pointer = left_points ? left.type : right.type;
  const std::uint64_t size = strings ? 1 : types_.size(types_.pointed_to(pointer));
  // Arrays of one element or none often stand for longer ones at the end of a structure.
  const ctypes::Type& array = types_.get(types_.resolve(pointer));
  if (array.kind == TypeKind::kArray && array.is_complete && array.count > 1 &&
      op == BinaryOperator::kAdd && (left_points ? right : left).kind != NodeKind::kInteger) {
    emit(Op::kCheckIndex).a = left_points ? r : l;
    clause_.code.back().immediate = static_cast<std::int64_t>(array.count);
  }
  if (left_points && (types_.is_pointer(right.type) || types_.is_string(right.type))) {
    const Reg difference = emit_value(Op::kSub, l, r);
    return size <= 1 ? difference : emit_value(Op::kDivSigned, difference, constant(size));
  }
  Reg& count = left_points ? r : l;
  if (size != 1) count = emit_value(Op::kMul, count, constant(size));
  return emit_value(op == BinaryOperator::kAdd ? Op::kAdd : Op::kSub, l, r);
}

plan::Reg Lowerer::lower_logical(const Node& node) {
  const BinaryOperator op = *node.op;
  if (op == BinaryOperator::kLogicalXor) {
    const Reg l = lower(*node.operands[0]);
    const Reg r = lower(*node.operands[1]);
    if (l == kNoReg || r == kNoReg) return kNoReg;
    const Reg zero = constant(0);
    const Reg left = emit_value(Op::kNotEqual, l, zero);
    const Reg right = emit_value(Op::kNotEqual, r, zero);
    return emit_value(Op::kXor, left, right);
  }
  // The right operand is evaluated only where it decides.
  const bool is_and = op == BinaryOperator::kLogicalAnd;
  const Op decide = is_and ? Op::kJumpIfZero : Op::kJumpIfNotZero;
  const Reg dst = new_register();
  const Reg left = lower(*node.operands[0]);
  if (left == kNoReg) return kNoReg;
  const std::size_t first = emit_jump(decide, left);
  const Reg right = lower(*node.operands[1]);
  if (right == kNoReg) return kNoReg;
  const std::size_t second = emit_jump(decide, right);
  const auto set = [&](std::int64_t value) {
    plan::Instruction& instruction = emit(Op::kConst);
    instruction.dst = dst;
    instruction.immediate = value;
  };
  set(is_and ? 1 : 0);
  const std::size_t done = emit_jump(Op::kJump);
  land(first);
  land(second);
  set(is_and ? 0 : 1);
  land(done);
  return dst;
}

plan::Reg Lowerer::compare(BinaryOperator op, Reg left, Reg right, bool is_signed) {
  const Op less = is_signed ? Op::kLess : Op::kLessUnsigned;
  const Op less_equal = is_signed ? Op::kLessEqual : Op::kLessEqualUnsigned;
  switch (op) {
    case BinaryOperator::kEqual:
      return emit_value(Op::kEqual, left, right);
    case BinaryOperator::kNotEqual:
      return emit_value(Op::kNotEqual, left, right);
    case BinaryOperator::kLess:
      return emit_value(less, left, right);
    case BinaryOperator::kLessEqual:
      return emit_value(less_equal, left, right);
    case BinaryOperator::kGreater:
      return emit_value(less, right, left);
    default:
      return emit_value(less_equal, right, left);
  }
}

plan::Reg Lowerer::lower_comparison(const Node& node) {
  const Node& left = *node.operands[0];
  const Node& right = *node.operands[1];
  if (types_.is_string(left.type) || types_.is_string(right.type))
    return lower_string_comparison(node);
  if ((types_.is_by_reference(left.type) && !types_.is_pointer(left.type)) ||
      types_.is_float(left.type)) {
    return unsupported(node.range, "comparing values of type " + types_.name(left.type));
  }
  const Reg l = lower(left);
  const Reg r = lower(right);
  if (l == kNoReg || r == kNoReg) return kNoReg;
  const bool numbers = types_.is_integer(left.type) && types_.is_integer(right.type);
  const bool is_signed =
      numbers && types_.is_signed(types_.arithmetic_result(left.type, right.type));
  return compare(*node.op, l, r, is_signed);
}

plan::Reg Lowerer::lower_string_comparison(const Node& node) {
  const Node& left = *node.operands[0];
  const Node& right = *node.operands[1];
  const BinaryOperator op = *node.op;
  const auto is_text = [&](const Node& side) {
    return side.is_zero() || types_.is_string_like(side.type);
  };
  if (!is_text(left) || !is_text(right)) {
    return unsupported(node.range,
                       "comparing a string with a value of type " +
                           types_.name(types_.is_string(left.type) ? right.type : left.type));
  }
  const Reg l = lower_string(left);
  const Reg r = lower_string(right);
  if (l == kNoReg || r == kNoReg) return kNoReg;
  const Reg order = emit_value(Op::kCompareString, l, r);
  return compare(op, order, constant(0), true);
}

plan::Reg Lowerer::lower_conditional(const Node& node) {
  const bool is_string = types_.is_string(node.type);
  const auto branch = [&](const Node& side) {
    return is_string ? lower_string(side) : lower(side);
  };
  const Reg dst = new_register();
  const auto move_to_dst = [&](Reg value) {
    plan::Instruction& instruction = emit(Op::kMove);
    instruction.dst = dst;
    instruction.a = value;
  };
  const Reg condition = lower(*node.operands[0]);
  if (condition == kNoReg) return kNoReg;
  const std::size_t otherwise = emit_jump(Op::kJumpIfZero, condition);
  const Reg left = branch(*node.operands[1]);
  if (left == kNoReg) return kNoReg;
  move_to_dst(left);
  const std::size_t done = emit_jump(Op::kJump);
  land(otherwise);
  const Reg right = branch(*node.operands[2]);
  if (right == kNoReg) return kNoReg;
  move_to_dst(right);
  land(done);
  return dst;
}

plan::Reg Lowerer::lower_cast(const Node& node) {
  const Node& operand = *node.operands.front();
  if (types_.is_float(node.type) != types_.is_float(operand.type) ||
      (types_.is_float(node.type) && types_.size(node.type) != types_.size(operand.type))) {
    return unsupported(node.range, "floating-point arithmetic");
  }
  const Reg value = lower(operand);
  if (value == kNoReg) return kNoReg;
  return cast_cuts(operand.type, node.type) ? extended(value, *value_type(node.type)) : value;
}

plan::Reg Lowerer::lower_stringof(const Node& node) {
  const Node& operand = *node.operands.front();
  if (types_.is_string_like(operand.type)) return lower_string(operand);
  const Reg address = lower(operand);
  return address == kNoReg ? kNoReg : copy_string(address, std::nullopt);
}

}  // namespace trapline::dlang
