// See validate.h.

#include "codegen/validate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/registers.h"
#include "wire/bins.h"
#include "wire/dynvar.h"
#include "wire/key.h"
#include "wire/layout.h"
#include "wire/speculation.h"

namespace trapline::codegen {

using plan::Clause;
using plan::Instruction;
using plan::kNone;
using plan::kNoReg;
using plan::Op;
using plan::Program;
using plan::Reg;
using plan::Scope;
using plan::ValueKind;
using plan::ValueType;
using plan::Variable;

namespace {

constexpr std::size_t kMaxClauses = 0xffff;       // RecordHeader::clause
constexpr std::size_t kMaxAggregations = 0xffff;  // Entry::aggregation
constexpr std::uint32_t kMaxRegisters = 1 << 20;
constexpr std::int64_t kArguments = 10;

bool integer_size(std::uint32_t size) { return size == 1 || size == 2 || size == 4 || size == 8; }
bool valid_type(const ValueType& type) {
  return type.kind == ValueKind::kInteger ? integer_size(type.size) : type.size != 0;
}

// Registers that hold addresses of our own memory, whatever path was taken: only such may be used
// as a string. A register that is never written, or written from something else too, may hold
// anything.
class OwnAddresses {
 public:
  OwnAddresses(const Program& program, const Clause& clause)
      : own_(clause.register_count, true), written_(clause.register_count, false) {
    // Code only runs forward, but a move may stand behind a write of its source that does not
    // dominate it; so all writes of a register count, to a fixed point.
    bool changed = true;
    while (changed) {
      changed = false;
      for (const Instruction& instruction : clause.code) {
        if (instruction.dst >= own_.size()) continue;
        written_[instruction.dst] = true;
        if (own_[instruction.dst] && !makes_own(program, instruction)) {
          own_[instruction.dst] = false;
          changed = true;
        }
      }
    }
  }
  bool operator()(Reg reg) const { return reg < own_.size() && own_[reg] && written_[reg]; }

 private:
  bool makes_own(const Program& program, const Instruction& instruction) const {
    switch (instruction.op) {
      case Op::kString:
      case Op::kCopyIn:
      case Op::kCopyInString:
      case Op::kStringJoin:
        return true;
      case Op::kCall:
        return instruction.immediate >= 0 &&
               instruction.immediate < static_cast<std::int64_t>(plan::kRoutines) &&
               plan::routine_info(static_cast<plan::Routine>(instruction.immediate)).result == 't';
      case Op::kMove:
        return instruction.a < own_.size() && own_[instruction.a];
      case Op::kConst:
        return instruction.immediate == 0;  // NULL
      case Op::kBuiltin:
        return instruction.immediate >= static_cast<std::int64_t>(plan::Builtin::kExecname);
      case Op::kLoad:
      case Op::kLoadElement:
        return instruction.variable < program.variables.size() &&
               program.variables[instruction.variable].type.kind != ValueKind::kInteger;
      default:
        return false;
    }
  }

  std::vector<bool> own_;
  std::vector<bool> written_;
};

// Checks one clause, instruction by instruction.
class ClauseCheck {
 public:
  ClauseCheck(const Program& program, const wire::Layout& layout, std::uint32_t index)
      : program_(program),
        layout_(layout),
        clause_(program.clauses[index]),
        own_(program, clause_),
        where_("clause " + std::to_string(index)) {}

  Result<> run() {
    if (clause_.code.empty() || clause_.code.back().op != Op::kEnd)
      return broken("the code has no end");
    if (clause_.has_record && std::uint64_t{clause_.record_size} + sizeof(wire::RecordHeader) + 8 >
                                  wire::RingChunk::kDataSize) {
      return Error(ErrorCode::kUnsupported, where_ + ": a record of " +
                                                std::to_string(clause_.record_size) +
                                                " bytes does not fit into a buffer chunk");
    }
    for (const plan::Field& field : clause_.fields) {
      if (!valid_type(field.type) ||
          std::uint64_t{field.offset} + field.type.size > std::uint64_t{clause_.record_size}) {
        return broken("a field lies outside the record");
      }
    }
    for (at_ = 0; at_ < clause_.code.size(); ++at_) TL_TRY(check(clause_.code[at_]));
    return {};
  }

 private:
  Error broken(std::string_view what) const {
    return {ErrorCode::kInternal, where_ + ", instruction " + std::to_string(at_) +
                                      ": malformed plan: " + std::string(what)};
  }
  bool is_register(Reg reg) const { return reg < clause_.register_count; }

  // The registers and the target that each kind of instruction must have.
  Result<> check_shape(const Instruction& i) const {
    bool needs_dst = true;
    bool needs_a = true;
    bool needs_b = false;
    switch (i.op) {
      case Op::kConst:
      case Op::kString:
      case Op::kArgument:
      case Op::kBuiltin:
      case Op::kRegister:
      case Op::kLoad:
      case Op::kLoadElement:
      case Op::kCall:
      case Op::kSpeculation:
        needs_a = false;
        break;
      case Op::kJump:
      case Op::kReserve:
      case Op::kEnd:
      case Op::kAggregate:
      case Op::kRemoveElement:
      case Op::kStop:
        needs_dst = needs_a = false;
        break;
      case Op::kJumpIfZero:
      case Op::kJumpIfNotZero:
      case Op::kStore:
      case Op::kStoreElement:
      case Op::kField:
      case Op::kExit:
      case Op::kCheckIndex:
      case Op::kSpeculate:
      case Op::kRaise:
      case Op::kChill:
        needs_dst = false;
        break;
      case Op::kStoreMemory:
      case Op::kStoreString:
      case Op::kCopyMemory:
      case Op::kCopyOut:
      case Op::kCopyOutString:
        needs_dst = false;
        needs_b = true;
        break;
      case Op::kMove:
      case Op::kNegate:
      case Op::kComplement:
      case Op::kExtend:
      case Op::kLoadMemory:
      case Op::kCopyInString:
      case Op::kStringLength:
      case Op::kAlloca:
      case Op::kByteSwap:
      case Op::kCommit:
      case Op::kDiscard:
        break;
      default:
        needs_b = true;
        break;
    }
    if (needs_dst && !is_register(i.dst)) return broken("no destination");
    if (needs_a && !is_register(i.a)) return broken("no first operand");
    if (needs_b && !is_register(i.b)) return broken("no second operand");
    if ((i.a != kNoReg && !is_register(i.a)) || (i.b != kNoReg && !is_register(i.b)) ||
        (i.dst != kNoReg && !is_register(i.dst))) {
      return broken("no such register");
    }
    const bool jumps = i.op == Op::kJump || i.op == Op::kJumpIfZero || i.op == Op::kJumpIfNotZero;
    if (jumps && (i.target <= at_ || i.target >= clause_.code.size()))
      return broken("a jump that is not forward");
    return {};
  }

  Result<> check(const Instruction& i) const {
    TL_TRY(check_shape(i));
    switch (i.op) {
      case Op::kString:
        if (i.immediate < 0 || static_cast<std::uint64_t>(i.immediate) >= program_.strings.size()) {
          return broken("no such string");
        }
        return {};
      case Op::kArgument:
        if (i.immediate < 0 || i.immediate >= kArguments) return broken("no such argument");
        return {};
      case Op::kBuiltin:
        if (i.immediate < 0 || i.immediate > static_cast<std::int64_t>(plan::Builtin::kProbeName)) {
          return broken("no such builtin");
        }
        return {};
      case Op::kRegister:
        if (i.immediate < 0 || i.immediate >= plan::kUserRegisters)
          return broken("no such register of user mode");
        return {};
      case Op::kExtend:
      case Op::kLoadMemory:
      case Op::kStoreMemory:
      case Op::kByteSwap:
        if (!integer_size(i.size) || (i.op == Op::kByteSwap && i.size == 1))
          return broken("a bad size");
        return {};
      case Op::kStoreString:
        if (i.immediate <= 0 || i.immediate > std::int64_t{program_.strsize})
          return broken("a bad size");
        if (!own_(i.b)) return broken("a string operand that may be any address");
        return {};
      case Op::kCopyMemory:
      case Op::kCopyOut:
      case Op::kCopyOutString:
        if (i.operands.size() != 1 || !is_register(i.operands.front().reg))
          return broken("no destination");
        if (i.op == Op::kCopyOutString && !own_(i.a))
          return broken("a string operand that may be any address");
        return {};
      case Op::kCopyIn:
        if (i.scratch == kNone) return {};
        if (i.immediate < 0) return broken("a bad size");
        return check_scratch(i.scratch, static_cast<std::uint64_t>(i.immediate));
      case Op::kCall:
        return check_call(i);
      case Op::kSpeculation:
      case Op::kSpeculate:
      case Op::kCommit:
      case Op::kDiscard:
        return {};
      case Op::kLoad:
      case Op::kStore:
        return check_scalar(i);
      case Op::kLoadElement:
      case Op::kStoreElement:
      case Op::kRemoveElement:
        return check_array(i);
      case Op::kCompareString:
      case Op::kStringJoin:
        if (!own_(i.a) || !own_(i.b)) return broken("a string operand that may be any address");
        return i.op == Op::kStringJoin ? check_scratch(i.scratch, program_.strsize) : Result<>{};
      case Op::kStringLength:
        if (!own_(i.a)) return broken("a string operand that may be any address");
        return {};
      case Op::kCopyInString:
        return i.scratch == kNone ? Result<>{} : check_scratch(i.scratch, program_.strsize);
      case Op::kField:
        return check_field(i);
      case Op::kAggregate:
        return check_aggregate(i);
      default:
        return {};
    }
  }

  Result<> check_call(const Instruction& i) const {
    if (i.immediate < 0 || i.immediate >= static_cast<std::int64_t>(plan::kRoutines))
      return broken("no such routine");
    const plan::RoutineInfo& info = plan::routine_info(static_cast<plan::Routine>(i.immediate));
    std::size_t count = 0;
    bool optional = false;
    for (const char kind : info.operands) {
      if (kind == '?') {
        optional = true;
        continue;
      }
      if (count >= i.operands.size()) return broken("a missing operand");
      const Reg reg = i.operands[count++].reg;
      if (optional && reg == kNoReg) continue;
      if (!is_register(reg)) return broken("a missing operand");
      if (kind != 'n' && !own_(reg)) return broken("a string operand that may be any address");
    }
    if (count != i.operands.size()) return broken("too many operands");
    return info.result == 't' ? check_scratch(i.scratch, program_.strsize) : Result<>{};
  }

  Result<> check_scratch(std::uint32_t offset, std::uint64_t size) const {
    if (offset == kNone || offset % 8 != 0 || offset + size > clause_.scratch_size) {
      return broken("a result outside the scratch");
    }
    return {};
  }

  Result<> check_scalar(const Instruction& i) const {
    if (i.variable >= program_.variables.size() || program_.variables[i.variable].is_array) {
      return broken("no such variable");
    }
    const Variable& variable = program_.variables[i.variable];
    if (i.op == Op::kStore && variable.type.kind != ValueKind::kInteger && !own_(i.a)) {
      return broken("a string operand that may be any address");
    }
    return {};
  }

  Result<> check_operands(const Instruction& i, std::size_t count) const {
    if (i.operands.size() != count) return broken("a key of the wrong length");
    for (const plan::Operand& operand : i.operands) {
      if (!is_register(operand.reg) || !valid_type(operand.type)) return broken("a malformed key");
      if (operand.type.kind != ValueKind::kInteger && !own_(operand.reg)) {
        return broken("a string operand that may be any address");
      }
    }
    return {};
  }

  Result<> check_array(const Instruction& i) const {
    if (i.variable >= program_.variables.size() || !program_.variables[i.variable].is_array) {
      return broken("no such array");
    }
    const Variable& array = program_.variables[i.variable];
    TL_TRY(check_operands(i, array.keys.size()));
    const std::uint64_t key = longest_key(i.operands, array.scope == Scope::kSelf ? 1 : 0);
    const auto value = static_cast<std::uint32_t>(plan::stored_size(array.type));
    const wire::DynvarTable table{nullptr, array.capacity, array.cell_size, value};
    if (key > wire::kMaxKeySize)
      return Error(ErrorCode::kUnsupported, where_ + ": the key of " + array.name + " is too long");
    if (!wire::dynvar_key_fits(table, static_cast<std::uint32_t>(key / 8))) {
      return broken("a cell too small for the key and value of " + array.name);
    }
    if (array.type.kind == ValueKind::kInteger || i.op == Op::kRemoveElement)
      return check_scratch(i.scratch, key);
    if (i.op == Op::kStoreElement && !own_(i.a))
      return broken("a string operand that may be any address");
    if (i.op == Op::kStoreElement && array.type.kind == ValueKind::kBytes)
      return check_scratch(i.scratch, key);
    return check_scratch(i.scratch, plan::key_area(array) + value);
  }

  Result<> check_field(const Instruction& i) const {
    if (i.immediate < 0 || static_cast<std::uint64_t>(i.immediate) >= clause_.fields.size() ||
        !clause_.has_record) {
      return broken("no such field");
    }
    const plan::Field& field = clause_.fields[static_cast<std::size_t>(i.immediate)];
    if (field.type.kind != ValueKind::kInteger && !own_(i.a)) {
      return broken("a string operand that may be any address");
    }
    return {};
  }

  Result<> check_aggregate(const Instruction& i) const {
    if (i.variable >= program_.aggregations.size()) return broken("no such aggregation");
    const plan::Aggregation& aggregation = program_.aggregations[i.variable];
    if (aggregation.kind != plan::AggregationKind::kCount && !is_register(i.a))
      return broken("no value");
    TL_TRY(check_operands(i, aggregation.keys.size()));
    if (aggregation.direct) {
      if (!i.operands.empty()) return broken("a direct aggregation with a key");
      return {};
    }
    const std::uint64_t key = longest_key(i.operands, aggregation.sparse ? 1 : 0);
    if (key > wire::kMaxKeySize) {
      return Error(ErrorCode::kUnsupported,
                   where_ + ": the key of @" + aggregation.name + " is too long");
    }
    return i.operands.empty() ? Result<>{} : check_scratch(i.scratch, key);
  }

  const Program& program_;
  const wire::Layout& layout_;
  const Clause& clause_;
  OwnAddresses own_;
  std::string where_;
  std::size_t at_ = 0;
};

Error malformed(const std::string& what) {
  return {ErrorCode::kInternal, "malformed plan: " + what};
}

Result<> check_variable(const Program& program, const Variable& variable) {
  if (!valid_type(variable.type)) return malformed("the type of " + variable.name);
  std::uint64_t area = program.globals_size;
  if (!variable.is_array && variable.scope == Scope::kSelf) area = program.self_size;
  if (!variable.is_array && variable.scope == Scope::kThis) area = program.this_size;
  std::uint64_t size = plan::stored_size(variable.type);
  if (variable.is_array) {
    const std::uint32_t capacity = variable.capacity;
    if (capacity == 0 || (capacity & (capacity - 1)) != 0 || variable.cell_size % 8 != 0 ||
        variable.offset % 8 != 0) {
      return malformed("the table of " + variable.name);
    }
    size = std::uint64_t{capacity} * variable.cell_size;
  }
  if (size > area || variable.offset > area - size)
    return malformed("the place of " + variable.name);
  return {};
}

// The number of bins that the parameters give, or 0 if they give none.
std::uint32_t bins_of(const plan::Aggregation& a) {
  switch (a.kind) {
    case plan::AggregationKind::kQuantize:
      return wire::kQuantizeBins;
    case plan::AggregationKind::kLquantize:
      if (a.parameters[1] <= 0 || a.parameters[2] < 0 || a.parameters[2] > 0xffff) return 0;
      return wire::lquantize_bins(static_cast<std::uint32_t>(a.parameters[2]));
    case plan::AggregationKind::kLlquantize: {
      for (const std::int64_t parameter : a.parameters) {
        if (parameter < 0 || parameter > 0xffff) return 0;
      }
      if (a.parameters[0] < 2 || a.parameters[1] > a.parameters[2] || a.parameters[3] < 1) return 0;
      return wire::llquantize_bins({static_cast<std::uint32_t>(a.parameters[0]),
                                    static_cast<std::uint32_t>(a.parameters[1]),
                                    static_cast<std::uint32_t>(a.parameters[2]),
                                    static_cast<std::uint32_t>(a.parameters[3])});
    }
    default:
      return 0;
  }
}

Result<> check_aggregation(const Program& program, const plan::Aggregation& a) {
  using plan::AggregationKind;
  const bool histogram = a.kind == AggregationKind::kQuantize ||
                         a.kind == AggregationKind::kLquantize ||
                         a.kind == AggregationKind::kLlquantize;
  const std::string name = "@" + a.name;
  std::uint32_t words = 1;  // of a table entry's value
  if (a.kind == AggregationKind::kAvg) words = 2;
  if (a.kind == AggregationKind::kStddev) words = 4;
  if (histogram) {
    if (bins_of(a) == 0 || bins_of(a) != a.bins) return malformed("the bins of " + name);
    if (!a.sparse && a.bins > plan::kMaxDenseBins) return malformed("too many bins in " + name);
    words = a.sparse ? 1 : a.bins;
  }
  if (a.sparse && (!histogram || a.direct)) return malformed("the kind of " + name);
  if (a.direct) {
    const bool additive =
        histogram || a.kind == AggregationKind::kCount || a.kind == AggregationKind::kSum;
    const std::uint32_t direct_words = a.kind == AggregationKind::kCount ? 1 : words + 1;
    if (!additive || a.direct_words != direct_words || a.direct_offset % 8 != 0 ||
        std::uint64_t{a.direct_offset} + std::uint64_t{direct_words} * 8 > program.direct_size) {
      return malformed("the cells of " + name);
    }
  } else if (a.value_words != words) {
    return malformed("the value of " + name);
  }
  return {};
}

Result<> check_layout(const Program& program, const wire::Layout& layout) {
  std::uint64_t strings = 0;
  for (const std::string& text : program.strings) strings += text.size() + 1;
  if (layout.size == 0 || strings > layout.strings_size ||
      program.globals_size > layout.globals_size || program.direct_size > layout.slot_direct_size ||
      program.self_size > layout.slot_self_size ||
      std::uint64_t{static_scratch_size(program)} + plan::kScratchGuard +
              plan::dynamic_scratch_size(program) >
          layout.scratch_size) {
    return Error(ErrorCode::kInternal, "the arena's layout was not made for this program");
  }
  return {};
}

// What the tracer alone can tell.
Result<> check_offered(const Clause& clause) {
  for (const Instruction& i : clause.code) {
    std::string_view what;
    if (i.op == Op::kRegister) what = "uregs[]";
    if (i.op == Op::kBuiltin) {
      const auto which = static_cast<plan::Builtin>(i.immediate);
      if (which == plan::Builtin::kUserStackDepth) what = "ustackdepth";
      if (which == plan::Builtin::kProcessGroup) what = "pr_pgid";
      if (which == plan::Builtin::kPriority) what = "pr_pri";
    }
    if (what.empty()) continue;
    return Error(ErrorCode::kUnsupported,
                 "line " + std::to_string(i.line) + ": " + std::string(what) +
                     " is not offered in pid probes yet (-x engine=outside has it)");
  }
  return {};
}

}  // namespace

std::uint32_t static_scratch_size(const Program& program) {
  std::uint32_t size = program.this_size;
  for (const Clause& clause : program.clauses) size = std::max(size, clause.scratch_size);
  return wire::round_up_to_word(size);
}

std::uint64_t longest_key(std::span<const plan::Operand> operands, std::uint32_t prefix_words) {
  std::uint64_t size = std::uint64_t{prefix_words} * 8;
  for (const plan::Operand& operand : operands) {
    switch (operand.type.kind) {
      case ValueKind::kString:
        size += wire::string_key_bytes(operand.type.size);
        break;
      case ValueKind::kBytes:
        size += wire::round_up_to_word(operand.type.size);
        break;
      case ValueKind::kInteger:
        size += wire::kIntegerKeyBytes;
        break;
    }
  }
  return size;
}

Result<> validate(const Program& program, const wire::Layout& layout,
                  std::span<const BodyRequest> bodies) {
  if (program.clauses.size() > kMaxClauses || program.aggregations.size() > kMaxAggregations) {
    return Error(ErrorCode::kUnsupported, "too many clauses or aggregations");
  }
  if (program.strsize < 2) return malformed("strsize");
  TL_TRY(check_layout(program, layout));
  for (const Variable& variable : program.variables) TL_TRY(check_variable(program, variable));
  for (const plan::Aggregation& aggregation : program.aggregations)
    TL_TRY(check_aggregation(program, aggregation));
  for (std::uint32_t i = 0; i < program.clauses.size(); ++i) {
    const Clause& clause = program.clauses[i];
    if (clause.register_count > kMaxRegisters || clause.code.size() > kMaxRegisters ||
        clause.scratch_size < program.this_size) {
      return malformed("the size of clause " + std::to_string(i));
    }
    TL_TRY(ClauseCheck(program, layout, i).run());
  }
  const std::uint64_t words = std::uint64_t{program.speculations} * 4;
  if (program.speculations > wire::kMaxSpeculations || program.speculations_offset % 4 != 0 ||
      words > program.globals_size || program.speculations_offset > program.globals_size - words) {
    return malformed("the speculations");
  }
  for (const BodyRequest& body : bodies) {
    for (const std::uint32_t index : body.clauses) {
      if (index >= program.clauses.size())
        return Error(ErrorCode::kInternal, "a body of a clause that is not there");
      TL_TRY(check_offered(program.clauses[index]));
    }
  }
  return {};
}

}  // namespace trapline::codegen
