// Subroutines (kCall), speculations, and what a program does to its process. See body_emitter.h.

#include <signal.h>

#include <cstddef>

#include "codegen/body_emitter.h"
#include "wire/text.h"

namespace trapline::codegen {

using plan::Fault;
using plan::kNoReg;
using plan::Op;
using plan::Routine;

// The operand that is a number's base: one that no number can have is a fault.
llvm::Value* BodyEmitter::base_of(const Instruction& i) {
  Value* base = get(i.operands[1].reg);
  Value* above = builder_.CreateSub(base, constant(wire::kMinTextBase));
  fault_if(builder_.CreateICmpUGT(above, constant(wire::kMaxTextBase - wire::kMinTextBase)),
           Fault::kIllegalOperation, constant(0));
  return base;
}

// What NULL operands are faults of is checked in the order of the operands, as the interpreter
// does.
llvm::Value* BodyEmitter::call_routine(const Instruction& i) {
  const auto routine = static_cast<Routine>(i.immediate);
  const plan::RoutineInfo& info = plan::routine_info(routine);
  if (routine == Routine::kStrtok) return token(i);
  if (routine == Routine::kProgenyof)
    return call("tl_is_progeny_of", site_, get(i.operands[0].reg));
  if (info.operands.find('a') != std::string_view::npos) return call_with_bytes(i);
  Value* size = constant(program_.strsize);
  Value* out = info.result == 't' ? scratch(i.scratch) : nullptr;
  Value* first = info.operands[0] == 't' ? text(i.operands[0].reg) : get(i.operands[0].reg);
  const auto second_text = [&] { return text(i.operands[1].reg); };
  const auto number = [&](std::size_t n, std::uint64_t missing) {
    return i.operands[n].reg == kNoReg ? constant(missing) : get(i.operands[n].reg);
  };
  switch (routine) {
    case Routine::kStrchr:
      return call("tl_find_byte", out, first, number(1, 0), constant(0), size);
    case Routine::kStrrchr:
      return call("tl_find_byte", out, first, number(1, 0), constant(1), size);
    case Routine::kStrstr:
      return call("tl_find_text", out, first, second_text(), size);
    case Routine::kJson:
      return call("tl_json", out, first, second_text(), size);
    case Routine::kSubstr:
      call("tl_substr", out, first, number(1, 0), number(2, 0),
           constant(i.operands[2].reg == kNoReg ? 0 : 1), size);
      return out;
    case Routine::kIndex: {
      Value* wanted = second_text();
      return call("tl_index", first, wanted, number(2, 0), size);
    }
    case Routine::kRindex: {
      Value* wanted = second_text();
      return call("tl_rindex", first, wanted, number(2, program_.strsize), size);
    }
    case Routine::kBasename:
      call("tl_basename", out, first, size);
      return out;
    case Routine::kDirname:
      call("tl_dirname", out, first, size);
      return out;
    case Routine::kCleanpath:
      call("tl_cleanpath", out, first, size);
      return out;
    case Routine::kLltostr: {
      Value* base = base_of(i);
      call("tl_lltostr", out, first, base, size);
      return out;
    }
    case Routine::kStrtoll: {
      Value* base = base_of(i);
      return call("tl_strtoll", first, base, size);
    }
    default:
      call("tl_change_case", out, first, constant(routine == Routine::kToUpper ? 1 : 0), size);
      return out;
  }
}

llvm::Value* BodyEmitter::call_with_bytes(const Instruction& i) {
  Value* size = constant(program_.strsize);
  Value* out = scratch(i.scratch);
  const auto operand = [&](std::size_t n) { return get(i.operands[n].reg); };
  switch (static_cast<Routine>(i.immediate)) {
    case Routine::kInetNtoa:
      call("tl_ipv4", out, operand(0), size);
      return out;
    case Routine::kInetNtoa6: {
      Value* address = operand(0);
      call("tl_ipv6", out, address, operand(1), size);
      return out;
    }
    default: {
      const bool is_link = static_cast<Routine>(i.immediate) == Routine::kLinkNtop;
      Value* kind = operand(0);
      Value* made = call(is_link ? "tl_link_ntop" : "tl_inet_ntop", out, kind, operand(1), size);
      fault_unless(made, Fault::kIllegalOperation, constant(0));
      return out;
    }
  }
}

llvm::Value* BodyEmitter::token(const Instruction& i) {
  Value* text_or_null = get(i.operands[0].reg);
  Value* state = get(i.operands[2].reg);
  Value* never_begun = builder_.CreateAnd(builder_.CreateIsNull(text_or_null),
                                          builder_.CreateIsNull(load(state, 8, false)));
  fault_if(never_begun, Fault::kBadAddress, constant(0));
  Value* delimiters = text(i.operands[1].reg);
  return call("tl_token", scratch(i.scratch), text_or_null, delimiters, state,
              constant(program_.strsize));
}

// ------------------------------------------------------------------------------------ speculations

llvm::Value* BodyEmitter::speculations() {
  return add(arena(), layout_.globals + program_.speculations_offset);
}

llvm::Value* BodyEmitter::speculation_number(const Instruction& i) {
  Value* number = get(i.a);
  fault_if(builder_.CreateICmpUGT(number, constant(program_.speculations)),
           Fault::kIllegalOperation, constant(0));
  return number;
}

// One that is not active ends the clause, whose record is given back.
void BodyEmitter::speculate(const Instruction& i) {
  Value* number = get(i.a);
  Value* token = call("tl_speculation_token", speculations(),
                      builder_.getInt32(program_.speculations), number);
  Block* inactive = new_block("inactive");
  Block* active = new_block("active");
  builder_.CreateCondBr(builder_.CreateIsNull(token), inactive, active);
  builder_.SetInsertPoint(inactive);
  if (clause_->has_record) {
    Block* give_back = new_block("abort");
    builder_.CreateCondBr(builder_.CreateIsNull(read(record_)), next_, give_back);
    builder_.SetInsertPoint(give_back);
    call("tl_abort", level_, builder_.getInt32(record_bytes(*clause_)));
  }
  go_to(next_);
  builder_.SetInsertPoint(active);
  if (!clause_->has_record) return;
  Block* write = new_block("speculative");
  Block* after = new_block("after");
  Value* record = read(record_);
  builder_.CreateCondBr(builder_.CreateIsNull(record), after, write);
  builder_.SetInsertPoint(write);
  store(add(record, offsetof(wire::RecordHeader, speculation)), token, 4);
  go_to(after);
  builder_.SetInsertPoint(after);
}

// false: the instruction is none of these.
bool BodyEmitter::emit_process(const Instruction& i) {
  Value* count = builder_.getInt32(program_.speculations);
  switch (i.op) {
    case Op::kSpeculation:
      set(i.dst, call("tl_speculation", slot_, speculations(), count));
      return true;
    case Op::kSpeculate:
      speculate(i);
      return true;
    case Op::kCommit:
    case Op::kDiscard:
      set(i.dst, call("tl_speculation_end", speculations(), count, speculation_number(i)));
      return true;
    case Op::kRaise:
      call("tl_raise", get(i.a));
      return true;
    case Op::kStop:
      call("tl_raise", constant(SIGSTOP));
      return true;
    case Op::kChill: {
      Value* time = get(i.a);
      fault_if(builder_.CreateICmpUGT(time, constant(static_cast<std::uint64_t>(plan::kMaxChill))),
               Fault::kIllegalOperation, constant(0));
      call("tl_chill", site_, time);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace trapline::codegen
