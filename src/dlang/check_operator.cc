// The checker's part for operators, with the folding of integer constants.
//
// Arithmetic is typed as DTrace types it: the wider operand's type wins, nothing is promoted to
// int, and a constant is folded in 64 bits whatever its type.

#include <algorithm>
#include <array>
#include <limits>

#include "dlang/checker.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;

// What a constant expression is, once its two operands are known; nullopt: division by zero.
std::optional<std::uint64_t> fold_value(BinaryOperator op, std::uint64_t l, std::uint64_t r,
                                        bool is_signed) {
  const auto sl = static_cast<std::int64_t>(l);
  const auto sr = static_cast<std::int64_t>(r);
  switch (op) {
    case BinaryOperator::kMultiply:
      return l * r;
    case BinaryOperator::kAdd:
      return l + r;
    case BinaryOperator::kSubtract:
      return l - r;
    case BinaryOperator::kDivide:
      if (r == 0) return std::nullopt;
      if (!is_signed) return l / r;
      return sr == -1 ? 0 - l : static_cast<std::uint64_t>(sl / sr);
    case BinaryOperator::kRemainder:
      if (r == 0) return std::nullopt;
      if (!is_signed) return l % r;
      return sr == -1 ? 0 : static_cast<std::uint64_t>(sl % sr);
    case BinaryOperator::kShiftLeft:
      return l << (r & 63);
    case BinaryOperator::kShiftRight:
      return is_signed ? static_cast<std::uint64_t>(sl >> (r & 63)) : l >> (r & 63);
    case BinaryOperator::kBitAnd:
      return l & r;
    case BinaryOperator::kBitOr:
      return l | r;
    case BinaryOperator::kBitXor:
      return l ^ r;
    case BinaryOperator::kLess:
      return is_signed ? sl < sr : l < r;
    case BinaryOperator::kLessEqual:
      return is_signed ? sl <= sr : l <= r;
    case BinaryOperator::kGreater:
      return is_signed ? sl > sr : l > r;
    case BinaryOperator::kGreaterEqual:
      return is_signed ? sl >= sr : l >= r;
    case BinaryOperator::kEqual:
      return l == r;
    case BinaryOperator::kNotEqual:
      return l != r;
    case BinaryOperator::kLogicalAnd:
      return l != 0 && r != 0;
    case BinaryOperator::kLogicalOr:
      return l != 0 || r != 0;
    case BinaryOperator::kLogicalXor:
      return (l != 0) != (r != 0);
    case BinaryOperator::kComma:
      return r;
  }
  return 0;
}

}  // namespace

NodePtr Checker::check_expression(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::kInteger:
      return check_integer(e.as<IntegerLiteral>());
    case ExpressionKind::kString: {
      NodePtr node = make(NodeKind::kString, ctypes::kString, e.range);
      node->text = e.as<StringLiteral>().value;
      return node;
    }
    case ExpressionKind::kIdentifier:
      return check_identifier(e.as<Identifier>());
    case ExpressionKind::kAggregation:
      return check_aggregation(e, Create::kNo);
    case ExpressionKind::kIndex:
      return check_index(e.as<Index>(), Create::kNo);
    case ExpressionKind::kCall:
      return check_call(e.as<Call>());
    case ExpressionKind::kMember:
      return check_member(e.as<Member>());
    case ExpressionKind::kUnary:
      return check_unary(e.as<Unary>());
    case ExpressionKind::kBinary:
      return check_binary(e.as<Binary>());
    case ExpressionKind::kAssign:
      return check_assign(e.as<Assign>());
    case ExpressionKind::kConditional:
      return check_conditional(e.as<Conditional>());
    case ExpressionKind::kCast:
      return check_cast(e.as<Cast>());
    case ExpressionKind::kSizeofType: {
      const auto type = type_name(*e.as<SizeofType>().type);
      if (!type) return nullptr;
      if (types_.size(*type) == 0) {
        return fail("SIZEOF_TYPE", e.range, "the size of " + name_of(*type) + " is not known");
      }
      return make_integer(types_.size(*type), *types_.find_typedef("size_t"), e.range);
    }
    case ExpressionKind::kOffsetof:
      return check_offsetof(e.as<Offsetof>());
    case ExpressionKind::kXlate:
      return check_xlate(e.as<Xlate>());
  }
  return nullptr;
}

// Under follow, where every probe of the clause is fired by a traced process.
bool Checker::stands_for_each_process() const {
  if (settings_.follow == Follow::kNo || clause_ == nullptr) return false;
  return std::ranges::all_of(clause_->probes, [](const ProbeDescription& probe) {
    return probe.provider.starts_with("pid") && probe.provider.size() > 3;
  });
}

// The type is the first of a list, by suffix and base, in which the value fits (ISO C99 6.4.4.1).
NodePtr Checker::check_integer(const IntegerLiteral& literal) {
  if (literal.is_target && stands_for_each_process()) {
    NodePtr pid = make(NodeKind::kBuiltin, ctypes::kInt, literal.range);
    pid->builtin = find_builtin("pid");
    return pid;
  }
  struct Candidate {
    TypeId type;
    std::uint64_t limit;
  };
  static constexpr std::array<Candidate, 6> kCandidates = {{
      {ctypes::kInt, std::numeric_limits<std::int32_t>::max()},
      {ctypes::kUnsignedInt, std::numeric_limits<std::uint32_t>::max()},
      {ctypes::kLong, std::numeric_limits<std::int64_t>::max()},
      {ctypes::kUnsignedLong, std::numeric_limits<std::uint64_t>::max()},
      {ctypes::kLongLong, std::numeric_limits<std::int64_t>::max()},
      {ctypes::kUnsignedLongLong, std::numeric_limits<std::uint64_t>::max()},
  }};
  const std::size_t step = literal.decimal || literal.unsigned_suffix ? 2 : 1;
  std::size_t i = (literal.unsigned_suffix ? 1U : 0U) + 2U * literal.long_suffixes;
  for (; i < kCandidates.size(); i += step) {
    if (literal.value > kCandidates[i].limit) continue;
    std::uint64_t value = literal.value;
    if (literal.negative) {
      value = 0 - value;
      if (!types_.is_signed(kCandidates[i].type))
        value = keep_bits(value, types_.size(kCandidates[i].type), false);
    }
    return make_integer(value, kCandidates[i].type, literal.range);
  }
  return fail("INT_OFLOW", literal.range, "the constant does not fit any integer type");
}

// -------------------------------------------------------------------------------- binary operators

NodePtr Checker::incompatible(std::string_view op, const Node& left, const Node& right,
                              diag::Range range) {
  return fail("OP_INCOMPAT", range,
              "operands of " + std::string(op) + " do not go together: " + name_of(left) + " and " +
                  name_of(right));
}

std::optional<TypeId> Checker::pointer_meeting(const Node& left, const Node& right) const {
  const TypeKind lk = types_.kind(left.type);
  const TypeKind rk = types_.kind(right.type);
  if (lk == TypeKind::kDynamic || rk == TypeKind::kDynamic) return std::nullopt;
  const bool left_is_integer = types_.is_integer(left.type);
  const bool right_is_integer = types_.is_integer(right.type);
  if (left_is_integer && right_is_integer) return std::nullopt;
  if ((left_is_integer && !left.is_zero()) || (right_is_integer && !right.is_zero()))
    return std::nullopt;
  const auto is_pointer = [](TypeKind kind) {
    return kind == TypeKind::kPointer || kind == TypeKind::kArray || kind == TypeKind::kString;
  };
  if (left_is_integer) return is_pointer(rk) ? std::optional(right.type) : std::nullopt;
  if (right_is_integer) return is_pointer(lk) ? std::optional(left.type) : std::nullopt;
  if (!is_pointer(lk) || !is_pointer(rk)) return std::nullopt;
  const TypeId lt = lk == TypeKind::kString ? ctypes::kChar : types_.pointed_to(left.type);
  const TypeId rt = rk == TypeKind::kString ? ctypes::kChar : types_.pointed_to(right.type);
  const bool right_is_void = types_.kind(rt) == TypeKind::kVoid;
  if (types_.kind(lt) != TypeKind::kVoid && !right_is_void && !types_.compatible(lt, rt))
    return std::nullopt;
  return right_is_void ? left.type : right.type;
}

bool Checker::argument_fits(TypeId parameter, const Node& argument) const {
  Node node;
  node.kind = NodeKind::kVariable;
  node.type = parameter;
  return argument_fits(node, argument);
}

bool Checker::argument_fits(const Node& parameter, const Node& argument) const {
  if (types_.is_integer(parameter.type) && types_.is_integer(argument.type)) return true;
  if (types_.is_string_like(parameter.type) && types_.is_string_like(argument.type)) return true;
  const TypeKind kind = types_.kind(parameter.type);
  if (kind == types_.kind(argument.type) && (kind == TypeKind::kStack || kind == TypeKind::kSymbol))
    return true;
  if (kind == TypeKind::kFunction || kind == TypeKind::kStruct || kind == TypeKind::kUnion) {
    return types_.compatible(parameter.type, argument.type);
  }
  return pointer_meeting(parameter, argument).has_value();
}

NodePtr Checker::check_binary(const Binary& binary) {
  NodePtr left = check_expression(*binary.left);
  NodePtr constant =
      left != nullptr && is_comparison(binary.op) ? enumerator_operand(binary, left) : nullptr;
  NodePtr right = constant != nullptr ? std::move(constant) : check_expression(*binary.right);
  if (left == nullptr || right == nullptr) return nullptr;
  const BinaryOperator op = binary.op;
  const std::string name(spelling(op));
  const bool divides = op == BinaryOperator::kDivide || op == BinaryOperator::kRemainder;
  if (divides && right->is_zero()) return fail("DIV_ZERO", binary.range, "division by zero");
  if (left->kind == NodeKind::kInteger && right->kind == NodeKind::kInteger &&
      op != BinaryOperator::kComma) {
    return fold(op, *left, *right, binary.range);
  }
  if (is_comparison(op)) return check_comparison(binary, std::move(left), std::move(right));
  if (op == BinaryOperator::kAdd || op == BinaryOperator::kSubtract) {
    return check_additive(op, std::move(left), std::move(right), binary.range);
  }
  TypeId type = ctypes::kInt;
  if (op == BinaryOperator::kComma) {
    if (types_.kind(left->type) == TypeKind::kDynamic ||
        types_.kind(right->type) == TypeKind::kDynamic) {
      return fail("OP_DYN", binary.range,
                  "an aggregation or associative array cannot be an operand of ,");
    }
    if (left->is_action() || right->is_action())
      return fail("OP_ACT", binary.range, "an action cannot be an operand of ,");
    type = right->type;
  } else if (is_logical(op)) {
    if (!types_.is_scalar(left->type) || !types_.is_scalar(right->type)) {
      return fail(
          "OP_SCALAR", binary.range,
          name + " needs numbers or pointers, not " + name_of(*left) + " and " + name_of(*right));
    }
  } else {
    if (!types_.is_integer(left->type) || !types_.is_integer(right->type)) {
      const bool multiplies = op == BinaryOperator::kMultiply || op == BinaryOperator::kDivide;
      return fail(multiplies ? "OP_ARITH" : "OP_INT", binary.range,
                  name + " needs integers, not " + name_of(*left) + " and " + name_of(*right));
    }
    type = is_shift(op) ? left->type : types_.arithmetic_result(left->type, right->type);
  }
  NodePtr node = make(NodeKind::kBinary, type, binary.range);
  node->op = op;
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return node;
}

NodePtr Checker::fold(BinaryOperator op, const Node& left, const Node& right, diag::Range range) {
  TypeId type = is_shift(op) ? left.type : types_.arithmetic_result(left.type, right.type);
  const bool is_signed =
      types_.is_signed(type) && op != BinaryOperator::kShiftRight;  // >> folds as unsigned
  const auto value = fold_value(op, left.value, right.value, is_signed);
  if (!value) return fail("DIV_ZERO", range, "division by zero");
  if (is_comparison(op) || is_logical(op)) type = ctypes::kInt;
  return make_integer(*value, type, range);
}

// A name to the right of a comparison is an enumerator of the left side's type, if that has one of
// this name.
NodePtr Checker::enumerator_operand(const Binary& binary, const NodePtr& left) {
  if (types_.kind(left->type) != TypeKind::kEnum) return nullptr;
  const auto* identifier = binary.right->get_if<Identifier>();
  if (identifier == nullptr || identifier->symbol || identifier->scope != VariableScope::kGlobal)
    return nullptr;
  if (find_symbol(VariableScope::kGlobal, identifier->name) != nullptr) return nullptr;
  const auto value = types_.find_enumerator(left->type, identifier->name);
  if (!value) return nullptr;
  return make_integer(static_cast<std::uint64_t>(*value), left->type, identifier->range);
}

NodePtr Checker::check_comparison(const Binary& binary, NodePtr left, NodePtr right) {
  const bool strings = types_.is_string_like(left->type) && types_.is_string_like(right->type) &&
                       (types_.is_string(left->type) || types_.is_string(right->type));
  const bool dynamic = types_.kind(left->type) == TypeKind::kDynamic ||
                       types_.kind(right->type) == TypeKind::kDynamic;
  const bool fits =
      !dynamic && (types_.compatible(left->type, right->type) ||
                   (types_.is_integer(left->type) && types_.is_integer(right->type)) || strings ||
                   pointer_meeting(*left, *right).has_value());
  if (!fits) return incompatible(spelling(binary.op), *left, *right, binary.range);
  NodePtr node = make(NodeKind::kBinary, ctypes::kInt, binary.range);
  node->op = binary.op;
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return node;
}

NodePtr Checker::check_additive(BinaryOperator op, NodePtr left, NodePtr right, diag::Range range) {
  const auto points = [&](const Node& node) {
    return types_.is_string(node.type) ||
           (types_.is_pointer(node.type) && !types_.is_void_or_function_pointer(node.type));
  };
  const bool left_is_integer = types_.is_integer(left->type);
  const bool right_is_integer = types_.is_integer(right->type);
  if (left->kind == NodeKind::kInteger && right->kind == NodeKind::kInteger && left_is_integer &&
      right_is_integer) {
    return fold(op, *left, *right, range);
  }
  TypeId type = ctypes::kVoid;
  if (left_is_integer && right_is_integer) {
    type = types_.arithmetic_result(left->type, right->type);
  } else if (points(*left) && right_is_integer) {
    type = left->type;
  } else if (left_is_integer && points(*right) && op == BinaryOperator::kAdd) {
    type = right->type;
  } else if (points(*left) && points(*right) && op == BinaryOperator::kSubtract &&
             pointer_meeting(*left, *right)) {
    type = *types_.find_typedef("ptrdiff_t");
  } else {
    return incompatible(spelling(op), *left, *right, range);
  }
  // Arrays of one element or none often stand for longer ones at the end of a structure.
  const ctypes::Type& array = types_.get(types_.resolve(left->type));
  const bool checked =
      left->kind != NodeKind::kElement;  // nor does DTrace for what associative arrays hold
  if (checked && array.kind == TypeKind::kArray && right->kind == NodeKind::kInteger &&
      array.count > 1 && right->value >= array.count) {
    return fail("ARR_BOUNDS", range,
                "index " + std::to_string(static_cast<std::int64_t>(right->value)) +
                    " is outside of an array of " + std::to_string(array.count));
  }
  NodePtr node = make(NodeKind::kBinary, type, range);
  node->op = op;
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return node;
}

// ----------------------------------------------------------------------------- conditionals, casts

NodePtr Checker::check_conditional(const Conditional& conditional) {
  NodePtr condition = check_expression(*conditional.condition);
  if (condition != nullptr && condition->kind == NodeKind::kInteger) {
    // As in DTrace, the other branch might as well not be there.
    return check_expression(condition->value != 0 ? *conditional.if_true : *conditional.if_false);
  }
  NodePtr left = check_expression(*conditional.if_true);
  NodePtr right = check_expression(*conditional.if_false);
  if (condition == nullptr || left == nullptr || right == nullptr) return nullptr;
  if (!types_.is_scalar(condition->type)) {
    return fail(
        "OP_SCALAR", conditional.condition->range,
        "the condition of ?: must be a number or pointer; this is of type " + name_of(*condition));
  }
  if (types_.kind(left->type) == TypeKind::kDynamic ||
      types_.kind(right->type) == TypeKind::kDynamic) {
    return fail("OP_DYN", conditional.range,
                "an aggregation or associative array cannot be an operand of ?:");
  }
  TypeId type = left->type;
  if (types_.compatible(left->type, right->type)) {
    type = left->type;
  } else if (types_.is_integer(left->type) && types_.is_integer(right->type)) {
    type = types_.arithmetic_result(left->type, right->type);
  } else if (types_.is_string_like(left->type) && types_.is_string_like(right->type) &&
             (types_.is_string(left->type) || types_.is_string(right->type))) {
    type = ctypes::kString;
  } else if (const auto meeting = pointer_meeting(*left, *right)) {
    type = *meeting;
  } else {
    return incompatible("?:", *left, *right, conditional.range);
  }
  if (left->is_action() || right->is_action()) {
    return fail("OP_ACT", conditional.range, "an action cannot be an operand of ?:");
  }
  NodePtr node = make(NodeKind::kConditional, type, conditional.range);
  node->operands.push_back(std::move(condition));
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return node;
}

NodePtr Checker::check_cast(const Cast& cast) {
  const auto type = type_name(*cast.type);
  NodePtr operand = check_expression(*cast.operand);
  if (!type || operand == nullptr) return nullptr;
  const TypeId from = operand->type;
  if (operand->kind == NodeKind::kInteger && types_.is_integer(*type) && types_.size(*type) != 0) {
    const std::uint64_t size = types_.size(*type);
    const bool is_signed = types_.is_signed(*type);
    const std::uint64_t source = types_.size(from);
    const bool keeps = (size > source && (is_signed || !types_.is_signed(from))) ||
                       (size == source && is_signed == types_.is_signed(from));
    const std::uint64_t value = keeps ? operand->value : keep_bits(operand->value, size, is_signed);
    return make_integer(value, *type, cast.range);
  }
  const TypeKind to_kind = types_.kind(*type);
  const bool dynamic = types_.kind(from) == TypeKind::kDynamic || to_kind == TypeKind::kDynamic;
  const bool possible =
      !dynamic &&
      (types_.compatible(*type, from) ||
       (types_.is_scalar(*type) &&
        (types_.is_scalar(from) || types_.kind(from) == TypeKind::kFunction)) ||
       to_kind == TypeKind::kVoid || (to_kind == TypeKind::kPointer && types_.is_pointer(from)) ||
       (types_.is_string(*type) &&
        (types_.is_scalar(from) || types_.is_pointer(from) || types_.is_string_like(from))));
  if (!possible) {
    return fail("CAST_INVAL", cast.range,
                "a value of type " + name_of(*operand) + " cannot be cast to " + name_of(*type));
  }
  NodePtr node =
      make(types_.is_string(*type) ? NodeKind::kStringof : NodeKind::kCast, *type, cast.range);
  node->operands.push_back(std::move(operand));
  return node;
}

}  // namespace trapline::dlang
