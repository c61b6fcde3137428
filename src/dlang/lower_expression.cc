// Lowering's part for expressions. See lower.h for how values are computed.

#include <algorithm>

#include "dlang/lowerer.h"
#include "plan/layout.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;
using plan::kNoReg;
using plan::Op;

constexpr std::uint64_t kMaxObject = std::uint64_t{1} << 24;  // bytes of a structure or array

}  // namespace

// ------------------------------------------------------------------------------------ instructions

plan::Instruction& Lowerer::emit(Op op) {
  // A clause that is too long is cut here and refused at its end.
  if (clause_.code.size() >= kMaxClauseCode) {
    too_long_ = true;
    clause_.code.pop_back();
  }
  plan::Instruction& instruction = clause_.code.emplace_back();
  instruction.op = op;
  instruction.line = line_;
  return instruction;
}

plan::Reg Lowerer::emit_value(Op op, Reg a, Reg b) {
  const Reg dst = new_register();
  plan::Instruction& instruction = emit(op);
  instruction.dst = dst;
  instruction.a = a;
  instruction.b = b;
  return dst;
}

plan::Reg Lowerer::constant(std::uint64_t value) {
  const Reg dst = emit_value(Op::kConst);
  clause_.code.back().immediate = static_cast<std::int64_t>(value);
  return dst;
}

plan::Reg Lowerer::string_constant(const std::string& text) {
  // A string is at most strsize bytes with its NUL, a constant as well.
  std::string cut = text.substr(0, program_.strsize - 1);
  const auto [known, added] =
      strings_.try_emplace(cut, static_cast<std::uint32_t>(program_.strings.size()));
  if (added) program_.strings.push_back(std::move(cut));
  const Reg dst = emit_value(Op::kString);
  clause_.code.back().immediate = known->second;
  return dst;
}

plan::Reg Lowerer::copy_string(Reg address, std::optional<std::uint64_t> limit) {
  const Reg bound = limit && *limit < program_.strsize ? constant(*limit) : kNoReg;
  const Reg dst = emit_value(Op::kCopyInString, address, bound);
  clause_.code.back().scratch = allocate_scratch(program_.strsize);
  return dst;
}

std::size_t Lowerer::emit_jump(Op op, Reg condition) {
  emit(op).a = condition;
  return clause_.code.size() - 1;
}

void Lowerer::land(std::size_t jump) {
  clause_.code[jump].target = static_cast<std::uint32_t>(clause_.code.size());
}

std::uint32_t Lowerer::allocate_scratch(std::uint64_t size) {
  const std::uint64_t at = scratch_used_;
  scratch_used_ += (size + 7) / 8 * 8;
  constexpr std::uint64_t kMost = plan::kNone - 1;  // plan::lay_out() refuses far less
  clause_.scratch_size = static_cast<std::uint32_t>(
      std::min(std::max<std::uint64_t>(clause_.scratch_size, scratch_used_), kMost));
  return static_cast<std::uint32_t>(std::min(at, kMost));
}

plan::Reg Lowerer::unsupported(diag::Range range, std::string_view what) {
  diagnostics_.error("UNKNOWN", range, std::string(what) + " is not offered yet");
  return kNoReg;
}

// ------------------------------------------------------------------------------------------- types

std::optional<plan::ValueType> Lowerer::value_type(TypeId type) const {
  plan::ValueType out;
  const ctypes::Type& t = types_.get(types_.resolve(type));
  switch (t.kind) {
    case TypeKind::kInteger:
    case TypeKind::kEnum:
      out.is_signed = t.is_signed;
      out.size = static_cast<std::uint32_t>(t.size);
      out.is_char = t.is_char;
      return out;
    case TypeKind::kPointer:
      out.is_signed = false;
      out.is_pointer = true;
      return out;
    case TypeKind::kString:
      out.kind = plan::ValueKind::kString;
      out.is_signed = false;
      out.size = program_.strsize;
      return out;
    case TypeKind::kFloat:
    case TypeKind::kStruct:
    case TypeKind::kUnion:
    case TypeKind::kArray:
      if (t.size == 0 || t.size > kMaxObject) return std::nullopt;
      out.kind = plan::ValueKind::kBytes;
      out.is_signed = false;
      out.is_float = t.kind == TypeKind::kFloat;
      out.size = static_cast<std::uint32_t>(t.size);
      return out;
    default:
      return std::nullopt;
  }
}

plan::Reg Lowerer::extended(Reg value, const plan::ValueType& type) {
  if (value == kNoReg || type.kind != plan::ValueKind::kInteger || type.size >= 8) return value;
  const Reg dst = emit_value(Op::kExtend, value);
  clause_.code.back().size = static_cast<std::uint8_t>(type.size);
  clause_.code.back().is_signed = type.is_signed;
  return dst;
}

// Whether the node's value is within `type` for sure, so that it need not be extended again.
bool Lowerer::fits(const Node& node, const plan::ValueType& type) const {
  if (type.kind != plan::ValueKind::kInteger || type.size >= 8) return true;
  switch (node.kind) {
    case NodeKind::kInteger: {
      const unsigned shift = 64 - type.size * 8;
      const std::uint64_t high = node.value << shift;
      const std::uint64_t back =
          type.is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(high) >> shift)
                         : high >> shift;
      return back == node.value;
    }
    case NodeKind::kNot:
      return true;
    case NodeKind::kBinary:
      return is_comparison(*node.op) || is_logical(*node.op);
    case NodeKind::kConditional:
      return fits(*node.operands[1], type) && fits(*node.operands[2], type);
    case NodeKind::kCast:
      if (!cast_cuts(node.operands.front()->type, node.type))
        return fits(*node.operands.front(), type);
      [[fallthrough]];
    case NodeKind::kAssign:
    case NodeKind::kIncrement:
    case NodeKind::kVariable:
    case NodeKind::kElement:
    case NodeKind::kBuiltin:
    case NodeKind::kDereference:
    case NodeKind::kMember: {
      if (!types_.is_integer(node.type)) return false;
      const std::uint64_t size = types_.size(node.type);
      const bool is_signed = types_.is_signed(node.type);
      return (size == type.size && is_signed == type.is_signed) ||
             (size < type.size && (!is_signed || type.is_signed));
    }
    default:
      return false;
  }
}

// As DTrace casts: a wider type, or one of the same size and sign, leaves the value alone.
bool Lowerer::cast_cuts(TypeId from, TypeId to) const {
  const auto type = value_type(to);
  if (!type || type->kind != plan::ValueKind::kInteger || type->size >= 8) return false;
  const std::uint64_t source = types_.is_scalar(from) ? types_.size(from) : 8;
  const bool source_signed = types_.is_signed(from);
  if (type->size > source) return !type->is_signed && source_signed;
  return type->size != source || type->is_signed != source_signed;
}

// ------------------------------------------------------------------------------------- expressions

plan::Reg Lowerer::lower_discarding(const Node& node) {
  if (node.kind == NodeKind::kCast && types_.kind(node.type) == TypeKind::kVoid) {
    return lower_discarding(*node.operands.front());
  }
  return lower(node);
}

plan::Reg Lowerer::lower(const Node& node) {
  switch (node.kind) {
    case NodeKind::kInteger:
      return constant(node.value);
    case NodeKind::kString:
      return string_constant(node.text);
    case NodeKind::kVariable:
    case NodeKind::kElement: {
      const auto placed = placed_.find(&node);
      return placed != placed_.end() ? placed->second : lower_variable(node);
    }
    case NodeKind::kBuiltin:
      return lower_builtin(node);
    case NodeKind::kInline:
      return lower_inline(node);
    case NodeKind::kParameter: {
      const auto bound = parameters_.find(node.symbol);
      return bound != parameters_.end() ? bound->second : unsupported(node.range, "this parameter");
    }
    case NodeKind::kMinus:
    case NodeKind::kComplement: {
      const Reg value = lower(*node.operands.front());
      if (value == kNoReg) return kNoReg;
      return emit_value(node.kind == NodeKind::kMinus ? Op::kNegate : Op::kComplement, value);
    }
    case NodeKind::kNot: {
      const Reg value = lower(*node.operands.front());
      if (value == kNoReg) return kNoReg;
      return emit_value(Op::kEqual, value, constant(0));
    }
    case NodeKind::kBinary:
      return lower_binary(node);
    case NodeKind::kConditional:
      return lower_conditional(node);
    case NodeKind::kCast:
      return lower_cast(node);
    case NodeKind::kStringof:
      return lower_stringof(node);
    case NodeKind::kDereference: {
      const Reg address = lower_pointer(*node.operands.front());
      return address == kNoReg ? kNoReg : load(address, node.type, node.range);
    }
    case NodeKind::kMember:
      return lower_member(node);
    case NodeKind::kAddress:
      return lower_address(*node.operands.front());
    case NodeKind::kAssign:
      return lower_assign(node);
    case NodeKind::kIncrement:
      return lower_increment(node);
    case NodeKind::kCall:
      return lower_call(node);
    case NodeKind::kUnsupported:
      return unsupported(node.range, node.text);
    case NodeKind::kXlate:
      return unsupported(node.range, "translated data as a whole");
    case NodeKind::kAggregation:
    case NodeKind::kAggregate:
      break;
  }
  return unsupported(node.range, "an aggregation within an expression");
}

plan::Reg Lowerer::lower_string(const Node& node) {
  if (node.is_zero()) return constant(0);  // NULL
  const Reg value = lower(node);
  if (value == kNoReg || types_.is_string(node.type)) return value;
  const ctypes::Type& type = types_.get(types_.resolve(node.type));
  if (type.kind == TypeKind::kArray && type.is_complete) return copy_string(value, type.count);
  return copy_string(value, std::nullopt);
}

plan::Reg Lowerer::lower_as(const Node& node, TypeId type) {
  if (types_.is_string(type)) return lower_string(node);
  const Reg value = lower(node);
  const auto wanted = value_type(type);
  if (!wanted) return unsupported(node.range, "a value of type " + types_.name(type));
  return fits(node, *wanted) ? value : extended(value, *wanted);
}

std::optional<std::uint32_t> Lowerer::variable_index(const Symbol& symbol, diag::Range range) {
  const auto known = variables_.find(&symbol);
  if (known != variables_.end()) return known->second;
  const auto type = value_type(*symbol.type);
  if (!type) {
    unsupported(range, "a variable of type " + types_.name(*symbol.type));
    return std::nullopt;
  }
  plan::Variable variable;
  variable.name = symbol.name;
  variable.scope = symbol.scope == VariableScope::kSelf   ? plan::Scope::kSelf
                   : symbol.scope == VariableScope::kThis ? plan::Scope::kThis
                                                          : plan::Scope::kGlobal;
  variable.type = *type;
  variable.is_array = symbol.kind == SymbolKind::kArray;
  if (variable.is_array) {
    for (TypeId key : *symbol.keys) {
      const auto key_type = value_type(key);
      if (!key_type) {
        unsupported(range, "a key of type " + types_.name(key));
        return std::nullopt;
      }
      variable.keys.push_back(*key_type);
    }
  }
  const auto index = static_cast<std::uint32_t>(program_.variables.size());
  program_.variables.push_back(std::move(variable));
  variables_[&symbol] = index;
  return index;
}

std::optional<std::vector<plan::Operand>> Lowerer::lower_keys(const Symbol& symbol,
                                                              const std::vector<NodePtr>& keys) {
  std::vector<plan::Operand> operands;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Node& key = *keys[i];
    const TypeId wanted = (*symbol.keys)[i];
    const auto type = value_type(wanted);
    if (!type) {
      const bool is_call = key.kind == NodeKind::kCall;
      unsupported(key.range, is_call ? std::string(key.function->name) + "() as a key"
                                     : "a key of type " + types_.name(wanted));
      return std::nullopt;
    }
    Reg value = lower_as(key, wanted);
    if (value != kNoReg && type->kind == plan::ValueKind::kBytes)
      value = own_bytes(key, value, type->size);
    if (value == kNoReg) return std::nullopt;
    operands.push_back({value, *type});
  }
  return operands;
}

plan::Reg Lowerer::lower_variable(const Node& node) {
  const auto target = lower_target(node);
  return target ? load_target(*target) : kNoReg;
}

plan::Reg Lowerer::lower_builtin(const Node& node) {
  const BuiltinVariable& builtin = *node.builtin;
  if (builtin.argument >= 0) {
    const Reg dst = emit_value(Op::kArgument);
    clause_.code.back().immediate = builtin.argument;
    return dst;
  }
  if (builtin.name == register_builtin().name) {
    const Reg dst = emit_value(Op::kRegister);
    clause_.code.back().immediate = static_cast<std::int64_t>(node.value);
    return dst;
  }
  if (builtin.name == "curcpu") return processor_info();
  if (!builtin.builtin) return unsupported(node.range, builtin.name);
  const Reg dst = emit_value(Op::kBuiltin);
  clause_.code.back().immediate = static_cast<std::int64_t>(*builtin.builtin);
  return dst;
}

// The structure of the processor that the probe fires on.
plan::Reg Lowerer::processor_info() {
  if (program_.processors_variable == plan::kNone) {
    plan::Variable table;
    table.name = "curcpu";
    table.type.kind = plan::ValueKind::kBytes;
    table.type.is_signed = false;
    table.type.size = request_.processors * static_cast<std::uint32_t>(sizeof(plan::ProcessorInfo));
    program_.processors_variable = static_cast<std::uint32_t>(program_.variables.size());
    program_.variables.push_back(std::move(table));
  }
  const Reg number = emit_value(Op::kBuiltin);
  clause_.code.back().immediate = static_cast<std::int64_t>(plan::Builtin::kCpu);
  emit(Op::kCheckIndex).a = number;
  clause_.code.back().immediate = request_.processors;
  const Reg table = emit_value(Op::kLoad);
  clause_.code.back().variable = program_.processors_variable;
  return emit_value(Op::kAdd, table,
                    emit_value(Op::kMul, number, constant(sizeof(plan::ProcessorInfo))));
}

plan::Reg Lowerer::lower_inline(const Node& node) {
  const Symbol& symbol = *node.symbol;
  if (symbol.value == nullptr || too_long_) return kNoReg;
  const auto outer = parameters_;
  for (std::size_t i = 0; i < node.operands.size() && i < symbol.parameters.size(); ++i) {
    const Reg value = lower_as(*node.operands[i], *symbol.parameters[i]->type);
    if (value == kNoReg) return kNoReg;
    parameters_[symbol.parameters[i]] = value;
  }
  const Reg value = lower_as(*symbol.value, node.type);
  parameters_ = outer;
  return value;
}

}  // namespace trapline::dlang
