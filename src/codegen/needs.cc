// See needs.h.

#include "codegen/needs.h"

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
    case Op::kLoadMemory:
    case Op::kCopyIn:
    case Op::kCopyInString:
    case Op::kStringLength:
    case Op::kStringJoin:
    case Op::kField:
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

}  // namespace

std::vector<bool> nonzero_constants(const plan::Clause& clause) {
  std::vector<unsigned> writes(clause.register_count, 0);
  std::vector<bool> nonzero(clause.register_count, false);
  for (const Instruction& instruction : clause.code) {
    if (instruction.dst >= clause.register_count) continue;
    ++writes[instruction.dst];
    if (instruction.op == Op::kConst && instruction.immediate != 0) nonzero[instruction.dst] = true;
  }
  for (std::size_t r = 0; r < nonzero.size(); ++r) nonzero[r] = nonzero[r] && writes[r] == 1;
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
    case Op::kCopyIn:
    case Op::kCopyInString:
      return true;
    default:
      return false;
  }
}

Needs needs_of(const plan::Program& program, std::span<const std::uint32_t> clauses) {
  Needs needs;
  for (const std::uint32_t index : clauses) {
    const plan::Clause& clause = program.clauses[index];
    const std::vector<bool> nonzero = nonzero_constants(clause);
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
