// See needs.h.

#include "codegen/needs.h"

#include <algorithm>

namespace trapline::codegen {

using plan::Builtin;
using plan::Instruction;
using plan::Op;
using plan::Scope;
using plan::ValueKind;

namespace {

constexpr std::int64_t kRegisterArguments = 6;

bool uses_self(const plan::Program& program, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kLoad:
    case Op::kStore:
    case Op::kLoadElement:
    case Op::kStoreElement:
    case Op::kRemoveElement:
      return program.variables[instruction.variable].scope == Scope::kSelf;
    default:
      return false;
  }
}

// Instructions that work on registers, direct cells and integer variables alone.
bool needs_level(const plan::Program& program, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kCompareString:
    case Op::kLoadElement:
    case Op::kStoreElement:
    case Op::kRemoveElement:
    case Op::kLoadMemory:
    case Op::kStoreMemory:
    case Op::kStoreString:
    case Op::kCopyMemory:
    case Op::kCopyOut:
    case Op::kCopyOutString:
    case Op::kAlloca:
    case Op::kCopyIn:
    case Op::kCopyInString:
    case Op::kStringLength:
    case Op::kStringJoin:
    case Op::kCall:
    case Op::kField:
    case Op::kSpeculation:
    case Op::kSpeculate:
    case Op::kCommit:
    case Op::kDiscard:
    case Op::kRaise:
    case Op::kStop:
    case Op::kChill:
    case Op::kExit:
      return true;
    case Op::kLoad:
    case Op::kStore:
      return program.variables[instruction.variable].type.kind != ValueKind::kInteger;
    case Op::kAggregate:
      return !program.aggregations[instruction.variable].direct;
    default:
      return false;
  }
}

bool makes_nonzero(const Instruction& instruction, const std::vector<bool>& nonzero) {
  switch (instruction.op) {
    case Op::kConst:
      return instruction.immediate != 0;
    case Op::kMove:
      return instruction.a < nonzero.size() && nonzero[instruction.a];
    case Op::kString:
    case Op::kStringJoin:
    case Op::kCopyIn:
    case Op::kCopyInString:
    case Op::kAlloca:
      return true;
    case Op::kBuiltin:
      return instruction.immediate >= static_cast<std::int64_t>(Builtin::kExecname);
    default:
      return false;
  }
}

bool has_null_key(const Instruction& instruction, const std::vector<bool>& nonzero) {
  return std::ranges::any_of(instruction.operands, [&](const plan::Operand& operand) {
    return operand.type.kind == ValueKind::kString &&
           (operand.reg >= nonzero.size() || !nonzero[operand.reg]);
  });
}

}  // namespace

std::vector<bool> nonzero_registers(const plan::Clause& clause) {
  std::vector<bool> nonzero(clause.register_count, true);
  std::vector<bool> written(clause.register_count, false);
  // As code only runs forward, all writes of a register count, to a fixed point (kMove).
  bool changed = true;
  while (changed) {
    changed = false;
    for (const Instruction& instruction : clause.code) {
      if (instruction.dst >= clause.register_count) continue;
      written[instruction.dst] = true;
      if (nonzero[instruction.dst] && !makes_nonzero(instruction, nonzero)) {
        nonzero[instruction.dst] = false;
        changed = true;
      }
    }
  }
  for (std::size_t r = 0; r < nonzero.size(); ++r) nonzero[r] = nonzero[r] && written[r];
  return nonzero;
}

bool may_fault(const Instruction& instruction, const std::vector<bool>& nonzero) {
  switch (instruction.op) {
    case Op::kDivSigned:
    case Op::kDivUnsigned:
    case Op::kRemSigned:
    case Op::kRemUnsigned:
      return instruction.b >= nonzero.size() || !nonzero[instruction.b];
    case Op::kArgument:
      return instruction.immediate >= kRegisterArguments;
    case Op::kLoadMemory:
    case Op::kStoreMemory:
    case Op::kStoreString:
    case Op::kCopyMemory:
    case Op::kCopyOut:
    case Op::kCopyOutString:
    case Op::kAlloca:
    case Op::kCopyIn:
    case Op::kCopyInString:
    case Op::kCall:
    case Op::kCheckIndex:
    case Op::kCommit:
    case Op::kDiscard:
    case Op::kChill:
      return true;
    case Op::kBuiltin:
      return instruction.immediate == static_cast<std::int64_t>(Builtin::kUserCaller);
    case Op::kStringLength:
      return instruction.a >= nonzero.size() || !nonzero[instruction.a];
    case Op::kStringJoin:
      return instruction.a >= nonzero.size() || !nonzero[instruction.a] ||
             instruction.b >= nonzero.size() || !nonzero[instruction.b];
    case Op::kLoadElement:
    case Op::kStoreElement:
    case Op::kRemoveElement:
    case Op::kAggregate:
      return has_null_key(instruction, nonzero);
    case Op::kField:
      return instruction.a >= nonzero.size() || !nonzero[instruction.a];
    default:
      return false;
  }
}

Needs needs_of(const plan::Program& program, std::span<const std::uint32_t> clauses) {
  Needs needs;
  for (const std::uint32_t index : clauses) {
    const plan::Clause& clause = program.clauses[index];
    const std::vector<bool> nonzero = nonzero_registers(clause);
    needs.level |= clause.has_record;
    needs.thread |= clause.has_record;
    for (const Instruction& instruction : clause.code) {
      const bool faults = may_fault(instruction, nonzero);
      needs.level |= faults || needs_level(program, instruction);
      needs.thread |= faults || uses_self(program, instruction);
      needs.thread |= instruction.op == Op::kBuiltin &&
                      static_cast<Builtin>(instruction.immediate) == Builtin::kTid;
    }
  }
  return needs;
}

}  // namespace trapline::codegen
