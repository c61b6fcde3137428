// The checker's part for members and unary operators.

#include "dlang/checker.h"

namespace trapline::dlang {

using ctypes::TypeId;
using ctypes::TypeKind;

std::uint64_t keep_bits(std::uint64_t value, std::uint64_t bytes, bool is_signed) {
  if (bytes == 0 || bytes >= 8) return value;
  const auto shift = static_cast<unsigned>(64 - bytes * 8);
  value <<= shift;
  return is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value) >> shift)
                   : value >> shift;
}

// ----------------------------------------------------------------------------------------- members

NodePtr Checker::check_member(const Member& member) {
  NodePtr base = check_expression(*member.base);
  if (base == nullptr) return nullptr;
  if (base->kind == NodeKind::kXlate) return check_translated_member(member, *base);
  TypeId type = types_.resolve(base->type);
  const bool arrow = member.access == Access::kArrow;
  const char* const op = arrow ? "->" : ".";
  if (arrow) {
    if (types_.kind(type) != TypeKind::kPointer) {
      return fail("OP_PTR", member.range, "-> needs a pointer; this is of type " + name_of(*base));
    }
    type = types_.resolve(types_.pointed_to(type));
  }
  const ctypes::Type& structure = types_.get(type);
  if (structure.kind != TypeKind::kStruct && structure.kind != TypeKind::kUnion) {
    return fail("OP_SOU", member.range,
                std::string(op) + " needs a structure or union; this is of type " + name_of(*base));
  }
  if (!structure.is_complete && base->kind == NodeKind::kBuiltin) {
    return fail("UNKNOWN", member.range, std::string(base->builtin->name) + " is not offered yet");
  }
  if (!structure.is_complete) {
    return fail("OP_INCOMPLETE", member.range,
                "the members of " + name_of(type) + " are not known");
  }
  const auto found = types_.find_member(type, member.name);
  if (!found)
    return fail("TYPE_MEMBER", member.name_range, name_of(type) + " has no member " + member.name);
  // curcpu is no pointer here; the one member that has a meaning is.
  if (base->builtin != nullptr && base->kind == NodeKind::kBuiltin &&
      base->builtin->name == "curcpu" && member.name == "cpu_id") {
    NodePtr node = make(NodeKind::kBuiltin, ctypes::kInt, member.range);
    node->builtin = find_builtin("cpu");
    node->lvalue = true;
    return node;
  }
  const TypeId result =
      found->bit_width != 0 ? types_.bit_field(found->type, found->bit_width) : found->type;
  NodePtr node = make(NodeKind::kMember, result, member.range);
  const bool is_array = types_.kind(found->type) == TypeKind::kArray;
  node->lvalue = (arrow || base->lvalue) && !is_array;
  node->writable = base->writable;
  node->bit_offset = found->bit_offset;
  node->bit_width = found->bit_width;
  node->operands.push_back(std::move(base));
  return node;
}

NodePtr Checker::check_offsetof(const Offsetof& expression) {
  const auto type = type_name(*expression.type);
  if (!type) return nullptr;
  const TypeKind kind = types_.kind(*type);
  if ((kind != TypeKind::kStruct && kind != TypeKind::kUnion) ||
      !types_.get(types_.resolve(*type)).is_complete) {
    return fail("OFFSETOF_TYPE", expression.range,
                "offsetof() needs a structure or union, not " + name_of(*type));
  }
  const auto found = types_.find_member(*type, expression.member);
  if (!found) {
    return fail("UNKNOWN", expression.member_range,
                name_of(*type) + " has no member " + expression.member);
  }
  if (found->bit_width != 0 &&
      is_bit_field(types_.bit_field(found->type, found->bit_width), types_)) {
    return fail("OFFSETOF_BITFIELD", expression.member_range,
                "a bit-field has no offset: " + expression.member);
  }
  return make_integer(found->bit_offset / 8, ctypes::kInt, expression.range);
}

// --------------------------------------------------------------------------------- unary operators

NodePtr Checker::check_unary(const Unary& unary) {
  switch (unary.op) {
    case UnaryOperator::kPreIncrement:
    case UnaryOperator::kPreDecrement:
    case UnaryOperator::kPostIncrement:
    case UnaryOperator::kPostDecrement:
      return check_increment(unary);
    case UnaryOperator::kSizeof:
      return check_sizeof(unary);
    default:
      break;
  }
  NodePtr operand = check_expression(*unary.operand);
  if (operand == nullptr) return nullptr;
  const std::string op(spelling(unary.op));
  NodeKind kind = NodeKind::kMinus;
  switch (unary.op) {
    case UnaryOperator::kDereference:
      return check_dereference(std::move(operand), unary.range);
    case UnaryOperator::kAddress:
      return check_address(std::move(operand), unary.range);
    case UnaryOperator::kStringof:
      return check_stringof(std::move(operand), unary.range);
    case UnaryOperator::kPlus:
    case UnaryOperator::kMinus:
      if (!types_.is_integer(operand->type)) {
        return fail("OP_ARITH", unary.range,
                    "unary " + op + " needs a number; this is of type " + name_of(*operand));
      }
      if (unary.op == UnaryOperator::kPlus) {
        operand->lvalue = false;
        return operand;
      }
      if (operand->kind == NodeKind::kInteger) {
        operand->value = 0 - operand->value;
        if (!types_.is_signed(operand->type)) {
          operand->value = keep_bits(operand->value, types_.size(operand->type), false);
        }
        operand->range = unary.range;
        return operand;
      }
      break;
    case UnaryOperator::kComplement:
      if (!types_.is_integer(operand->type)) {
        return fail("OP_INT", unary.range,
                    "~ needs an integer; this is of type " + name_of(*operand));
      }
      if (operand->kind == NodeKind::kInteger)
        return make_integer(~operand->value, operand->type, unary.range);
      kind = NodeKind::kComplement;
      break;
    default:
      if (!types_.is_scalar(operand->type)) {
        return fail("OP_SCALAR", unary.range,
                    op + " needs a number or pointer; this is of type " + name_of(*operand));
      }
      if (operand->kind == NodeKind::kInteger) {
        return make_integer(operand->value == 0 ? 1 : 0, operand->type, unary.range);
      }
      kind = NodeKind::kNot;
      break;
  }
  NodePtr node = make(kind, kind == NodeKind::kNot ? ctypes::kInt : operand->type, unary.range);
  node->operands.push_back(std::move(operand));
  return node;
}

NodePtr Checker::check_dereference(NodePtr operand, diag::Range range) {
  if (types_.is_string(operand->type)) {
    NodePtr node = make(NodeKind::kDereference, ctypes::kChar, range);
    node->lvalue = true;
    node->operands.push_back(std::move(operand));
    return node;
  }
  if (!types_.is_pointer(operand->type)) {
    return fail("DEREF_NONPTR", range, "this is not a pointer, but of type " + name_of(*operand));
  }
  const TypeId target = types_.pointed_to(operand->type);
  const TypeKind kind = types_.kind(target);
  if (kind == TypeKind::kVoid)
    return fail("DEREF_VOID", range, "a pointer to void cannot be followed");
  if (kind == TypeKind::kFunction)
    return fail("DEREF_FUNC", range, "a pointer to a function cannot be followed");
  NodePtr node = make(NodeKind::kDereference, target, range);
  node->lvalue = kind != TypeKind::kArray;
  const bool is_sum = operand->kind == NodeKind::kBinary && operand->op == BinaryOperator::kAdd;
  node->writable = operand->writable || (is_sum && operand->operands.front()->writable);
  node->operands.push_back(std::move(operand));
  return node;
}

NodePtr Checker::check_address(NodePtr operand, diag::Range range) {
  switch (operand->kind) {
    case NodeKind::kVariable:
    case NodeKind::kElement:
    case NodeKind::kBuiltin:
    case NodeKind::kInline:
    case NodeKind::kParameter:
    case NodeKind::kAggregation:
      return fail("ADDROF_VAR", range, "a variable has no address");
    default:
      break;
  }
  if (types_.kind(operand->type) == TypeKind::kDynamic)
    return fail("ADDROF_VAR", range, "this has no address");
  if (!operand->lvalue) return fail("ADDROF_LVAL", range, "this has no address");
  if (is_bit_field(operand->type, types_))
    return fail("ADDROF_BITFIELD", range, "a bit-field has no address");
  NodePtr node = make(NodeKind::kAddress, types_.pointer_to(operand->type), range);
  node->operands.push_back(std::move(operand));
  return node;
}

NodePtr Checker::check_sizeof(const Unary& unary) {
  const NodePtr operand = check_expression(*unary.operand);
  if (operand == nullptr) return nullptr;
  if (is_bit_field(operand->type, types_)) {
    return fail("SIZEOF_BITFIELD", unary.range, "a bit-field has no size in bytes");
  }
  std::uint64_t size = types_.size(operand->type);
  if (operand->kind == NodeKind::kString) size = operand->text.size() + 1;
  if (size == 0) {
    return fail("SIZEOF_TYPE", unary.range,
                "the size of a value of type " + name_of(*operand) + " is not known");
  }
  return make_integer(size, *types_.find_typedef("size_t"), unary.range);
}

NodePtr Checker::check_stringof(NodePtr operand, diag::Range range) {
  if (!types_.is_scalar(operand->type) && !types_.is_pointer(operand->type) &&
      !types_.is_string_like(operand->type)) {
    return fail("STRINGOF_TYPE", range,
                "stringof() cannot be applied to a value of type " + name_of(*operand));
  }
  NodePtr node = make(NodeKind::kStringof, ctypes::kString, range);
  node->operands.push_back(std::move(operand));
  return node;
}

}  // namespace trapline::dlang
