// Control, integers, strings and effects of a clause. Memory and variables are in
// evaluator_memory.cc.

#include "interp/evaluator.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "interp/arithmetic.h"
#include "wire/speculation.h"

namespace trapline::interp {

using plan::Fault;
using plan::Instruction;
using plan::Op;
using plan::ValueKind;

Evaluator::Evaluator(const plan::Program& program, std::uint32_t clause, Environment& environment,
                     ThisArea& area)
    : program_(program),
      clause_(program.clauses[clause]),
      clause_index_(clause),
      environment_(environment),
      area_(area),
      registers_(std::span(area.registers_).first(clause_.register_count)),
      globals_(environment.globals()),
      self_(environment.self_area()) {
  std::fill(registers_.begin(), registers_.end(), 0);
  area_.results_.clear();
}

Outcome Evaluator::run() {
  // Jumps lead forward only, so this ends after at most code.size() steps.
  while (pc_ < clause_.code.size()) {
    next_ = pc_ + 1;
    if (!step(clause_.code[pc_])) return outcome_;
    pc_ = next_;
  }
  malformed();  // no kEnd
  return outcome_;
}

bool Evaluator::fault(Fault fault, std::uint64_t address) {
  environment_.fault(clause_index_, fault, pc_, address);
  outcome_ = Outcome::kFault;
  return false;
}

bool Evaluator::set(plan::Reg reg, std::uint64_t value) {
  if (!has_register(reg)) return malformed();
  registers_[reg] = value;
  return true;
}

bool Evaluator::step(const Instruction& in) {
  switch (in.op) {
    case Op::kJump:
    case Op::kJumpIfZero:
    case Op::kJumpIfNotZero:
      return jump(in);
    case Op::kLoad:
    case Op::kStore:
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
      return step_memory(in);
    case Op::kString:
    case Op::kCompareString:
    case Op::kStringLength:
    case Op::kStringJoin:
      return step_string(in);
    case Op::kCall:
      return call(in);
    case Op::kRaise:
    case Op::kStop:
    case Op::kChill:
      return step_process(in);
    case Op::kSpeculation:
    case Op::kSpeculate:
    case Op::kCommit:
    case Op::kDiscard:
      return step_speculation(in);
    case Op::kReserve:
    case Op::kField:
    case Op::kAggregate:
    case Op::kExit:
    case Op::kEnd:
      return step_effect(in);
    default:
      return step_value(in);
  }
}

bool Evaluator::jump(const Instruction& in) {
  if (in.target <= pc_ || in.target >= clause_.code.size()) return malformed();
  const bool taken = in.op == Op::kJump || (get(in.a) == 0) == (in.op == Op::kJumpIfZero);
  if (taken) next_ = in.target;
  return true;
}

bool Evaluator::step_value(const Instruction& in) {
  switch (in.op) {
    case Op::kConst:
      return set(in.dst, static_cast<std::uint64_t>(in.immediate));
    case Op::kMove:
      return set(in.dst, get(in.a));
    case Op::kExtend:
      return set(in.dst, extend(get(in.a), in.size, in.is_signed));
    case Op::kByteSwap: {
      if (in.size != 2 && in.size != 4 && in.size != 8) return malformed();
      return set(in.dst, __builtin_bswap64(get(in.a)) >> (64 - 8 * in.size));
    }
    case Op::kCheckIndex:
      if (get(in.a) < static_cast<std::uint64_t>(in.immediate)) return true;
      return fault(Fault::kBadIndex, get(in.a));
    case Op::kArgument: {
      if (in.immediate < 0 || in.immediate > 9) return malformed();
      const auto value = environment_.argument(static_cast<unsigned>(in.immediate));
      return value ? set(in.dst, *value) : fault(Fault::kBadAddress);
    }
    case Op::kBuiltin:
      return builtin(in);
    case Op::kRegister: {
      if (in.immediate < 0 || in.immediate >= plan::kUserRegisters) return malformed();
      const auto value = environment_.user_register(static_cast<plan::UserRegister>(in.immediate));
      return value ? set(in.dst, *value) : fault(Fault::kIllegalOperation);
    }
    default:
      break;
  }
  const auto result = arithmetic(in.op, get(in.a), get(in.b));
  if (!result) return malformed();
  if (result->divide_by_zero) return fault(Fault::kDivideByZero);
  return set(in.dst, result->value);
}

bool Evaluator::builtin(const Instruction& in) {
  if (in.immediate < 0 || in.immediate > static_cast<std::int64_t>(plan::Builtin::kProbeName)) {
    return malformed();
  }
  const auto which = static_cast<plan::Builtin>(in.immediate);
  if (which == plan::Builtin::kEpid) return set(in.dst, environment_.epid(clause_index_));
  if (which == plan::Builtin::kUserCaller || which == plan::Builtin::kUserStackDepth) {
    const auto value = environment_.user_stack(which);
    return value ? set(in.dst, *value) : fault(Fault::kBadStack);
  }
  if (which < plan::Builtin::kExecname) return set(in.dst, environment_.builtin(which));
  return set(in.dst, make_result(environment_.builtin_string(which)));
}

bool Evaluator::step_string(const Instruction& in) {
  if (in.op == Op::kString) {
    if (in.immediate < 0 ||
        static_cast<std::uint64_t>(in.immediate) >= area_.constant_offsets_.size()) {
      return malformed();
    }
    const auto index = static_cast<std::size_t>(in.immediate);
    return set(in.dst, address_of(Region::kConstants, area_.constant_offsets_[index]));
  }
  if (in.op == Op::kStringJoin) return string_join(in);
  if (in.op == Op::kStringLength) {
    const auto text = text_operand(in.a);
    return text && set(in.dst, text->size());
  }
  // NULL is less than any string.
  if (get(in.a) == 0 || get(in.b) == 0) {
    const int a_known = get(in.a) != 0;
    const int b_known = get(in.b) != 0;
    return set(in.dst, static_cast<std::uint64_t>(std::int64_t{a_known - b_known}));
  }
  const auto a = text_at(get(in.a));
  const auto b = text_at(get(in.b));
  if (!a || !b) return malformed();
  const int order = a->compare(*b);  // char_traits<char> compares unsigned
  return set(in.dst, static_cast<std::uint64_t>(std::int64_t{order < 0 ? -1 : order > 0 ? 1 : 0}));
}

bool Evaluator::step_effect(const Instruction& in) {
  switch (in.op) {
    case Op::kReserve:
      reserved_ = true;
      std::fill(area_.record_.begin(), area_.record_.end(), std::byte{0});
      if (!clause_.has_record || environment_.reserve(clause_index_)) return true;
      outcome_ = Outcome::kDropped;
      return false;
    case Op::kField:
      return store_field(in);
    case Op::kAggregate:
      return aggregate(in);
    case Op::kExit:
      exit_status_ = static_cast<std::int64_t>(get(in.a));
      return true;
    default:
      return end();
  }
}

bool Evaluator::end() {
  if (!reserved_) {
    outcome_ = Outcome::kPredicateFalse;
    return false;
  }
  if (clause_.has_record) {
    environment_.commit(clause_index_, std::span(area_.record_).first(clause_.record_size),
                        speculation_);
  }
  outcome_ = exit_status_ ? Outcome::kExit : Outcome::kDone;
  if (exit_status_) environment_.exit(*exit_status_);
  return false;
}

bool Evaluator::store_field(const Instruction& in) {
  if (in.immediate < 0 || static_cast<std::uint64_t>(in.immediate) >= clause_.fields.size()) {
    return malformed();
  }
  const plan::Field& field = clause_.fields[static_cast<std::size_t>(in.immediate)];
  if (!reserved_ || std::uint64_t{field.offset} + field.type.size > clause_.record_size) {
    return malformed();
  }
  const auto to = std::span(area_.record_).subspan(field.offset, field.type.size);
  const std::uint64_t value = get(in.a);
  switch (field.type.kind) {
    case ValueKind::kInteger:
      if (field.type.size > 8) return malformed();
      std::memcpy(to.data(), &value, field.type.size);
      return true;
    case ValueKind::kString: {
      const auto text = text_operand(in.a);
      if (!text) return false;
      if (to.empty()) return malformed();
      write_text(to, *text);
      return true;
    }
    default:
      return read_memory(value, to) || fault(Fault::kBadAddress, value);
  }
}

bool Evaluator::aggregate(const Instruction& in) {
  if (in.variable >= program_.aggregations.size()) return malformed();
  const KeyResult built = build_key(in, false);
  if (key_fault(built)) return false;
  if (built == KeyResult::kTooLong) {
    environment_.aggregation_drop();
    return true;
  }
  const std::uint64_t value = in.a == plan::kNoReg ? 1 : get(in.a);
  const std::uint64_t weight = in.b == plan::kNoReg ? 1 : get(in.b);
  environment_.aggregate(in.variable, area_.key_, static_cast<std::int64_t>(value),
                         static_cast<std::int64_t>(weight));
  return true;
}

bool Evaluator::string_join(const Instruction& in) {
  const auto a = text_operand(in.a);
  if (!a) return false;
  const auto b = text_operand(in.b);
  if (!b) return false;
  const std::string joined = *a + *b;
  const auto address = string_room(in);
  if (!address) return fault(Fault::kNoScratch);
  const auto to = resolve(*address, program_.strsize);
  if (!to) return malformed();
  write_text(*to, joined);
  return set(in.dst, *address);
}

bool Evaluator::step_process(const Instruction& in) {
  const std::uint64_t value = get(in.a);
  switch (in.op) {
    case Op::kRaise:
      return environment_.raise(static_cast<int>(value)) || fault(Fault::kUserPrivilege);
    case Op::kStop:
      return environment_.raise(SIGSTOP) || fault(Fault::kUserPrivilege);
    default:
      if (value > static_cast<std::uint64_t>(plan::kMaxChill))
        return fault(Fault::kIllegalOperation);
      environment_.chill(std::chrono::nanoseconds(static_cast<std::int64_t>(value)));
      return true;
  }
}

// ------------------------------------------------------------------------------------ speculations

std::optional<std::span<std::uint32_t>> Evaluator::speculations() {
  const std::uint64_t size = std::uint64_t{program_.speculations} * 4;
  if (size > globals_.size() || program_.speculations_offset > globals_.size() - size ||
      program_.speculations_offset % 4 != 0) {
    return std::nullopt;
  }
  auto* words = reinterpret_cast<std::uint32_t*>(globals_.data() + program_.speculations_offset);
  return std::span(words, program_.speculations);
}

bool Evaluator::step_speculation(const Instruction& in) {
  const auto words = speculations();
  if (!words) return malformed();
  const std::uint64_t number = get(in.a);
  switch (in.op) {
    case Op::kSpeculation: {
      const std::uint32_t begun = wire::speculation_begin(words->data(), program_.speculations);
      if (begun == 0) environment_.speculation_drop();
      return set(in.dst, begun);
    }
    case Op::kCommit:
    case Op::kDiscard:
      if (number > program_.speculations) return fault(Fault::kIllegalOperation);
      return set(in.dst, wire::speculation_end(words->data(), program_.speculations, number));
    case Op::kSpeculate:
      speculation_ = wire::speculation_active(words->data(), program_.speculations, number);
      if (speculation_ != 0) return true;
      outcome_ = Outcome::kDone;
      return false;
    default:
      return malformed();
  }
}

}  // namespace trapline::interp
