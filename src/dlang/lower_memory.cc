// Lowering's part for memory: members, what pointers point to, and all that is assigned to.
//
// Structures, unions, arrays and floating-point numbers are held by address: their value is a
// register with the address of their bytes, wherever those are. Writing to a part of an associative
// array's element changes a copy of the element, which is then stored.

#include <memory>

#include "dlang/lowerer.h"
#include "plan/layout.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;
using plan::kNoReg;
using plan::Op;

}  // namespace

bool Lowerer::is_by_address(TypeId type) const {
  return types_.is_by_reference(type) || types_.is_float(type);
}

// ------------------------------------------------------------------------------------------
// reading

plan::Reg Lowerer::load(Reg address, TypeId type, diag::Range range) {
  if (is_by_address(type)) return address;
  if (types_.is_string(type)) return copy_string(address, types_.size(type));
  const auto value = value_type(type);
  if (!value) return unsupported(range, "reading a value of type " + types_.name(type));
  const Reg dst = emit_value(Op::kLoadMemory, address);
  clause_.code.back().size = static_cast<std::uint8_t>(value->size);
  clause_.code.back().is_signed = value->is_signed;
  return dst;
}

plan::Reg Lowerer::lower_pointer(const Node& node) {
  if (node.kind != NodeKind::kBinary || !types_.is_string(node.type)) return lower(node);
  const Reg left = lower(*node.operands[0]);
  const Reg right = lower(*node.operands[1]);
  if (left == kNoReg || right == kNoReg) return kNoReg;
  return lower_pointer_arithmetic(*node.op, *node.operands[0], left, *node.operands[1], right);
}

plan::Reg Lowerer::member_address(const Node& member) {
  const Reg object = lower(*member.operands.front());
  if (object == kNoReg) return kNoReg;
  std::uint64_t offset = member.bit_offset / 8;
  if (member.bit_width != 0) {
    const std::uint64_t unit = types_.size(member.type);
    offset = member.bit_offset / (unit * 8) * unit;
  }
  return offset == 0 ? object : emit_value(Op::kAdd, object, constant(offset));
}

plan::Reg Lowerer::lower_member(const Node& node) {
  const Reg address = member_address(node);
  if (address == kNoReg) return kNoReg;
  if (node.bit_width != 0) return load_bit_field(node, address);
  return load(address, node.type, node.range);
}

// A bit-field lies within one aligned unit of its declared type.
plan::Reg Lowerer::load_bit_field(const Node& member, Reg unit_address) {
  const std::uint64_t unit = types_.size(member.type);
  const std::uint64_t first = member.bit_offset % (unit * 8);
  const Reg whole = emit_value(Op::kLoadMemory, unit_address);
  clause_.code.back().size = static_cast<std::uint8_t>(unit);
  clause_.code.back().is_signed = false;
  const Reg high = emit_value(Op::kShiftLeft, whole, constant(64 - first - member.bit_width));
  const Op down = types_.is_signed(member.type) ? Op::kShiftRightSigned : Op::kShiftRight;
  return emit_value(down, high, constant(64 - member.bit_width));
}

plan::Reg Lowerer::lower_address(const Node& lvalue) {
  if (lvalue.kind == NodeKind::kDereference) return lower_pointer(*lvalue.operands.front());
  if (lvalue.kind == NodeKind::kMember && lvalue.bit_width == 0) return member_address(lvalue);
  if (is_by_address(lvalue.type)) return lower(lvalue);
  return unsupported(lvalue.range, "the address of this");
}

plan::Reg Lowerer::copy_in(Reg address, std::uint64_t size) {
  return copy_in(address, constant(size), size);
}

plan::Reg Lowerer::copy_in(Reg address, Reg size, std::uint64_t most) {
  const Reg dst = emit_value(Op::kCopyIn, address, size);
  clause_.code.back().immediate = static_cast<std::int64_t>(most);
  clause_.code.back().scratch = allocate_scratch(most);
  return dst;
}

plan::Reg Lowerer::own_bytes(const Node& node, Reg address, std::uint64_t size) {
  if (node.kind == NodeKind::kVariable || node.kind == NodeKind::kElement) return address;
  return copy_in(address, size);
}

void Lowerer::copy_memory(Reg to, Reg from, std::uint64_t size) {
  const Reg count = constant(size);
  plan::Instruction& copy = emit(Op::kCopyMemory);
  copy.a = from;
  copy.b = count;
  copy.operands.push_back({to, {}});
}

// ------------------------------------------------------------------------------------------ places

namespace {

// The element that a place is a part of; nullptr: of none.
const Node* element_of(const Node& place, const ctypes::TypeTable& types) {
  const Node* node = &place;
  while (true) {
    switch (node->kind) {
      case NodeKind::kElement:
        return types.is_by_reference(node->type) ? node : nullptr;
      case NodeKind::kMember:
        node = node->operands.front().get();
        continue;
      case NodeKind::kDereference: {
        const Node* pointer = node->operands.front().get();
        if (pointer->kind == NodeKind::kBinary) pointer = pointer->operands.front().get();
        if (types.kind(pointer->type) != TypeKind::kArray) return nullptr;
        node = pointer;
        continue;
      }
      default:
        return nullptr;
    }
  }
}

}  // namespace

std::optional<Lowerer::Target> Lowerer::lower_target(const Node& node) {
  if (node.kind != NodeKind::kVariable && node.kind != NodeKind::kElement)
    return lower_memory_target(node);
  Target target;
  target.type = *node.symbol->type;
  target.is_element = node.kind == NodeKind::kElement;
  const auto index = variable_index(*node.symbol, node.range);
  if (!index) return std::nullopt;
  target.variable = *index;
  if (target.is_element) {
    auto keys = lower_keys(*node.symbol, node.operands);
    if (!keys) return std::nullopt;
    target.keys = std::move(*keys);
  }
  return target;
}

std::optional<Lowerer::Target> Lowerer::lower_memory_target(const Node& node) {
  if (node.kind != NodeKind::kMember && node.kind != NodeKind::kDereference) {
    unsupported(node.range, "writing to this");
    return std::nullopt;
  }
  Target target;
  target.type = node.type;
  if (const Node* element = element_of(node, types_)) {
    const auto whole = lower_target(*element);
    if (!whole) return std::nullopt;
    target.element = std::make_shared<Target>(*whole);
    target.element_copy = load_target(*whole);
    placed_[element] = target.element_copy;
  }
  if (node.kind == NodeKind::kMember && node.bit_width != 0) target.bit_field = &node;
  target.address =
      node.kind == NodeKind::kMember ? member_address(node) : lower_pointer(*node.operands.front());
  placed_.clear();
  if (target.address == kNoReg) return std::nullopt;
  return target;
}

plan::Reg Lowerer::load_target(const Target& target) {
  if (target.variable == plan::kNone) {
    if (target.bit_field != nullptr) return load_bit_field(*target.bit_field, target.address);
    return load(target.address, target.type, {});
  }
  const Reg dst = emit_value(target.is_element ? Op::kLoadElement : Op::kLoad);
  plan::Instruction& instruction = clause_.code.back();
  instruction.variable = target.variable;
  if (!target.is_element) return dst;
  instruction.operands = target.keys;
  const plan::Variable& variable = program_.variables[target.variable];
  std::uint64_t area = plan::key_area(variable);
  if (variable.type.kind != plan::ValueKind::kInteger) area += plan::storage_size(variable.type);
  instruction.scratch = allocate_scratch(area);
  return dst;
}

void Lowerer::store_target(const Target& target, Reg value) {
  if (target.variable == plan::kNone) {
    store_memory(target, value);
    return;
  }
  const plan::Variable& variable = program_.variables[target.variable];
  if (!target.is_element && variable.type.kind == plan::ValueKind::kBytes) {
    copy_memory(load_target(target), value, variable.type.size);
    return;
  }
  plan::Instruction& instruction = emit(target.is_element ? Op::kStoreElement : Op::kStore);
  instruction.variable = target.variable;
  instruction.a = value;
  if (!target.is_element) return;
  instruction.operands = target.keys;
  std::uint64_t area = plan::key_area(variable);
  if (variable.type.kind == plan::ValueKind::kString) area += plan::storage_size(variable.type);
  instruction.scratch = allocate_scratch(area);
}

void Lowerer::store_memory(const Target& target, Reg value) {
  if (target.bit_field != nullptr) {
    store_bit_field(target, value);
  } else if (is_by_address(target.type)) {
    copy_memory(target.address, value, types_.size(target.type));
  } else if (types_.is_string(target.type)) {
    plan::Instruction& store = emit(Op::kStoreString);
    store.a = target.address;
    store.b = value;
    store.immediate = static_cast<std::int64_t>(types_.size(target.type));
  } else {
    plan::Instruction& store = emit(Op::kStoreMemory);
    store.a = target.address;
    store.b = value;
    store.size = static_cast<std::uint8_t>(types_.size(target.type));
  }
  if (target.element != nullptr) store_target(*target.element, target.element_copy);
}

void Lowerer::store_bit_field(const Target& target, Reg value) {
  const Node& member = *target.bit_field;
  const std::uint64_t unit = types_.size(member.type);
  const std::uint64_t first = member.bit_offset % (unit * 8);
  const std::uint64_t low =
      member.bit_width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << member.bit_width) - 1;
  const Reg old = emit_value(Op::kLoadMemory, target.address);
  clause_.code.back().size = static_cast<std::uint8_t>(unit);
  const Reg others = emit_value(Op::kAnd, old, constant(~(low << first)));
  const Reg cut = emit_value(Op::kAnd, value, constant(low));
  const Reg moved = first == 0 ? cut : emit_value(Op::kShiftLeft, cut, constant(first));
  const Reg whole = emit_value(Op::kOr, others, moved);
  plan::Instruction& store = emit(Op::kStoreMemory);
  store.a = target.address;
  store.b = whole;
  store.size = static_cast<std::uint8_t>(unit);
}

// Assigning 0 to an element, or to a variable that holds more than a number: it is as if it had
// never been set.
void Lowerer::remove_target(const Target& target) {
  const plan::Variable& variable = program_.variables[target.variable];
  if (target.is_element) {
    plan::Instruction& instruction = emit(Op::kRemoveElement);
    instruction.variable = target.variable;
    instruction.operands = target.keys;
    instruction.scratch = allocate_scratch(plan::key_area(variable));
    return;
  }
  const Reg address = load_target(target);
  const Reg zero = constant(0);
  for (std::uint64_t at = 0; at < variable.type.size; ++at) {
    const std::uint64_t left = variable.type.size - at;
    const std::uint64_t size = left >= 8 ? 8 : 1;
    const Reg to = at == 0 ? address : emit_value(Op::kAdd, address, constant(at));
    plan::Instruction& store = emit(Op::kStoreMemory);
    store.a = to;
    store.b = zero;
    store.size = static_cast<std::uint8_t>(size);
    at += size - 1;
  }
}

// ------------------------------------------------------------------------------------- assignments

plan::Reg Lowerer::lower_assign(const Node& node) {
  const Node& place = *node.operands[0];
  const Node& source = *node.operands[1];
  const bool is_variable = place.kind == NodeKind::kVariable || place.kind == NodeKind::kElement;
  // As DTrace does it, what is assigned is computed before where it goes.
  if (!node.op) {
    const bool removes = is_variable && source.is_zero() &&
                         (is_by_address(place.type) ||
                          (place.kind == NodeKind::kElement && types_.is_string(place.type)));
    if (removes) {
      const auto target = lower_target(place);
      if (!target) return kNoReg;
      remove_target(*target);
      return constant(0);
    }
    Reg value = lower_as(source, place.type);
    if (value == kNoReg) return kNoReg;
    if (is_by_address(place.type) && place.kind == NodeKind::kElement)
      value = own_bytes(source, value, types_.size(place.type));
    const auto target = lower_target(place);
    if (!target) return kNoReg;
    store_target(*target, value);
    if (target->bit_field != nullptr) return load_target(*target);
    return value;
  }
  const auto target = lower_target(place);
  if (!target) return kNoReg;
  const Reg old = load_target(*target);
  const Reg operand = lower(source);
  if (operand == kNoReg) return kNoReg;
  Reg value = kNoReg;
  if (types_.is_pointer(place.type)) {
    value = lower_pointer_arithmetic(*node.op, place, old, source, operand);
  } else {
    value = lower_arithmetic(*node.op, old, operand, place.type);
  }
  const auto type = value_type(place.type);
  if (!type) return unsupported(node.range, "a value of type " + types_.name(place.type));
  value = extended(value, *type);
  store_target(*target, value);
  return target->bit_field != nullptr ? load_target(*target) : value;
}

plan::Reg Lowerer::lower_increment(const Node& node) {
  const auto target = lower_target(*node.operands.front());
  if (!target) return kNoReg;
  const Reg old = load_target(*target);
  Reg value = emit_value(Op::kAdd, old, constant(node.value));
  if (const auto type = value_type(target->type)) value = extended(value, *type);
  store_target(*target, value);
  if (node.is_postfix) return old;
  return target->bit_field != nullptr ? load_target(*target) : value;
}

}  // namespace trapline::dlang
