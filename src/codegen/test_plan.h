// Builds plans by hand, for tests.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/layout.h"
#include "plan/plan.h"

namespace trapline::codegen::test {

using plan::Op;
using plan::Operand;
using plan::Reg;
using plan::ValueKind;
using plan::ValueType;

inline ValueType integer(std::uint32_t size = 8, bool is_signed = true) {
  ValueType type;
  type.size = size;
  type.is_signed = is_signed;
  return type;
}
inline ValueType text(std::uint32_t strsize = 256) {
  ValueType type;
  type.kind = ValueKind::kString;
  type.size = strsize;
  return type;
}
inline ValueType bytes(std::uint32_t size) {
  ValueType type;
  type.kind = ValueKind::kBytes;
  type.size = size;
  return type;
}

class ClauseBuilder {
 public:
  Reg reg() { return clause_.register_count++; }

  plan::Instruction& emit(Op op) {
    clause_.code.emplace_back();
    clause_.code.back().op = op;
    return clause_.code.back();
  }
  Reg binary(Op op, Reg a, Reg b) {
    auto& i = emit(op);
    i.a = a;
    i.b = b;
    return i.dst = reg();
  }
  Reg unary(Op op, Reg a) { return binary(op, a, plan::kNoReg); }
  Reg constant(std::int64_t value) {
    auto& i = emit(Op::kConst);
    i.immediate = value;
    return i.dst = reg();
  }
  Reg argument(std::int64_t number) {
    auto& i = emit(Op::kArgument);
    i.immediate = number;
    return i.dst = reg();
  }
  Reg builtin(plan::Builtin which) {
    auto& i = emit(Op::kBuiltin);
    i.immediate = static_cast<std::int64_t>(which);
    return i.dst = reg();
  }
  Reg string(std::int64_t number) {
    auto& i = emit(Op::kString);
    i.immediate = number;
    return i.dst = reg();
  }
  Reg extend(Reg a, std::uint8_t size, bool is_signed) {
    auto& i = emit(Op::kExtend);
    i.a = a;
    i.size = size;
    i.is_signed = is_signed;
    return i.dst = reg();
  }
  Reg load_memory(Reg address, std::uint8_t size, bool is_signed) {
    auto& i = emit(Op::kLoadMemory);
    i.a = address;
    i.size = size;
    i.is_signed = is_signed;
    return i.dst = reg();
  }
  Reg load(std::uint32_t variable) {
    auto& i = emit(Op::kLoad);
    i.variable = variable;
    return i.dst = reg();
  }
  void store(std::uint32_t variable, Reg a) {
    auto& i = emit(Op::kStore);
    i.variable = variable;
    i.a = a;
  }
  Reg copy_in_string(Reg address, Reg limit = plan::kNoReg, std::uint32_t strsize = 256) {
    auto& i = emit(Op::kCopyInString);
    i.a = address;
    i.b = limit;
    i.scratch = room(strsize);
    return i.dst = reg();
  }
  Reg join(Reg a, Reg b, std::uint32_t strsize = 256) {
    const Reg dst = binary(Op::kStringJoin, a, b);
    clause_.code.back().scratch = room(strsize);
    return dst;
  }
  Reg load_element(const plan::Program& program, std::uint32_t variable, std::vector<Operand> key) {
    auto& i = emit(Op::kLoadElement);
    i.variable = variable;
    i.operands = std::move(key);
    const plan::Variable& array = program.variables[variable];
    i.scratch =
        room(static_cast<std::uint32_t>(plan::key_area(array) + plan::storage_size(array.type)));
    return i.dst = reg();
  }
  void store_element(const plan::Program& program, std::uint32_t variable, std::vector<Operand> key,
                     Reg a) {
    auto& i = emit(Op::kStoreElement);
    i.variable = variable;
    i.operands = std::move(key);
    i.a = a;
    const plan::Variable& array = program.variables[variable];
    i.scratch =
        room(static_cast<std::uint32_t>(plan::key_area(array) + plan::storage_size(array.type)));
  }
  void aggregate(const plan::Program& program, std::uint32_t aggregation, Reg value = plan::kNoReg,
                 std::vector<Operand> key = {}, Reg weight = plan::kNoReg) {
    auto& i = emit(Op::kAggregate);
    i.variable = aggregation;
    i.a = value;
    i.b = weight;
    i.operands = std::move(key);
    const auto size = static_cast<std::uint32_t>(plan::key_area(program.aggregations[aggregation]));
    if (size != 0) i.scratch = room(size);
  }

  // A jump whose target is the instruction that comes next when land() is called.
  std::size_t jump(Op op, Reg a = plan::kNoReg) {
    emit(op).a = a;
    return clause_.code.size() - 1;
  }
  void land(std::size_t jump) {
    clause_.code[jump].target = static_cast<std::uint32_t>(clause_.code.size());
  }

  // A predicate: the clause goes on only if `a` is not 0.
  void predicate(Reg a) { predicates_.push_back(jump(Op::kJumpIfZero, a)); }
  void reserve() { emit(Op::kReserve); }

  void field(Reg a, ValueType type) {
    plan::Field field;
    field.type = type;
    auto& i = emit(Op::kField);
    i.immediate = static_cast<std::int64_t>(clause_.fields.size());
    i.a = a;
    clause_.fields.push_back(field);
    clause_.has_record = true;
  }
  void record() { clause_.has_record = true; }
  void exit(Reg a) { emit(Op::kExit).a = a; }

  plan::Clause done() {
    for (const std::size_t jump : predicates_) land(jump);
    emit(Op::kEnd);
    return std::move(clause_);
  }

 private:
  std::uint32_t room(std::uint32_t size) {
    const std::uint32_t offset = clause_.scratch_size;
    clause_.scratch_size += (size + 7) & ~7U;
    return offset;
  }

  plan::Clause clause_;
  std::vector<std::size_t> predicates_;
};

inline std::uint32_t add_aggregation(plan::Program& program, plan::AggregationKind kind,
                                     std::vector<ValueType> keys = {},
                                     std::vector<std::int64_t> parameters = {}) {
  plan::Aggregation aggregation;
  aggregation.kind = kind;
  aggregation.keys = std::move(keys);
  for (std::size_t i = 0; i < parameters.size(); ++i) aggregation.parameters[i] = parameters[i];
  plan::choose_storage(aggregation);
  program.aggregations.push_back(aggregation);
  return static_cast<std::uint32_t>(program.aggregations.size() - 1);
}

inline std::uint32_t add_variable(plan::Program& program, plan::Scope scope, ValueType type) {
  plan::Variable variable;
  variable.name = "v" + std::to_string(program.variables.size());
  variable.scope = scope;
  variable.type = type;
  program.variables.push_back(variable);
  return static_cast<std::uint32_t>(program.variables.size() - 1);
}

inline std::uint32_t add_array(plan::Program& program, plan::Scope scope, ValueType type,
                               std::vector<ValueType> keys) {
  const std::uint32_t index = add_variable(program, scope, type);
  program.variables[index].is_array = true;
  program.variables[index].keys = std::move(keys);
  return index;
}

inline std::uint32_t add_string(plan::Program& program, std::string text) {
  program.strings.push_back(std::move(text));
  return static_cast<std::uint32_t>(program.strings.size() - 1);
}

}  // namespace trapline::codegen::test
