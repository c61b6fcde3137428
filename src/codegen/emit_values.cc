// Arithmetic, arguments, builtins, strings and fields of records. See body_emitter.h.

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstddef>

#include "codegen/body_emitter.h"
#include "codegen/validate.h"

namespace trapline::codegen {

using plan::Builtin;
using plan::Fault;
using plan::Op;
using plan::ValueKind;

namespace {

constexpr std::uint64_t kShiftMask = 63;
constexpr std::int64_t kArgumentRegisters = 6;

}  // namespace

// false: the instruction is none of these.
bool BodyEmitter::emit_arithmetic(const Instruction& i) {
  const auto flag = [&](llvm::CmpInst::Predicate predicate) {
    set(i.dst, builder_.CreateICmp(predicate, get(i.a), get(i.b)));
    return true;
  };
  const auto result = [&](Value* value) {
    set(i.dst, value);
    return true;
  };
  const auto shift = [&] { return builder_.CreateAnd(get(i.b), constant(kShiftMask)); };
  switch (i.op) {
    case Op::kConst:
      return result(constant(static_cast<std::uint64_t>(i.immediate)));
    case Op::kMove:
      return result(get(i.a));
    case Op::kAdd:
      return result(builder_.CreateAdd(get(i.a), get(i.b)));
    case Op::kSub:
      return result(builder_.CreateSub(get(i.a), get(i.b)));
    case Op::kMul:
      return result(builder_.CreateMul(get(i.a), get(i.b)));
    case Op::kDivSigned:
    case Op::kDivUnsigned:
    case Op::kRemSigned:
    case Op::kRemUnsigned:
      return result(divide(i));
    case Op::kAnd:
      return result(builder_.CreateAnd(get(i.a), get(i.b)));
    case Op::kOr:
      return result(builder_.CreateOr(get(i.a), get(i.b)));
    case Op::kXor:
      return result(builder_.CreateXor(get(i.a), get(i.b)));
    case Op::kShiftLeft:
      return result(builder_.CreateShl(get(i.a), shift()));
    case Op::kShiftRight:
      return result(builder_.CreateLShr(get(i.a), shift()));
    case Op::kShiftRightSigned:
      return result(builder_.CreateAShr(get(i.a), shift()));
    case Op::kEqual:
      return flag(llvm::CmpInst::ICMP_EQ);
    case Op::kNotEqual:
      return flag(llvm::CmpInst::ICMP_NE);
    case Op::kLess:
      return flag(llvm::CmpInst::ICMP_SLT);
    case Op::kLessEqual:
      return flag(llvm::CmpInst::ICMP_SLE);
    case Op::kLessUnsigned:
      return flag(llvm::CmpInst::ICMP_ULT);
    case Op::kLessEqualUnsigned:
      return flag(llvm::CmpInst::ICMP_ULE);
    case Op::kNegate:
      return result(builder_.CreateNeg(get(i.a)));
    case Op::kComplement:
      return result(builder_.CreateNot(get(i.a)));
    case Op::kExtend:
      return result(extend(get(i.a), i.size, i.is_signed));
    case Op::kByteSwap: {
      llvm::Type* type = builder_.getIntNTy(i.size * 8U);
      Value* low = builder_.CreateTrunc(get(i.a), type);
      return result(builder_.CreateUnaryIntrinsic(llvm::Intrinsic::bswap, low));
    }
    case Op::kCheckIndex: {
      Value* index = get(i.a);
      Value* count = constant(static_cast<std::uint64_t>(i.immediate));
      fault_if(builder_.CreateICmpUGE(index, count), Fault::kBadIndex, index);
      return true;
    }
    default:
      return false;
  }
}

// The processor faults on division by zero and on INT64_MIN / -1: neither may reach it.
llvm::Value* BodyEmitter::divide(const Instruction& i) {
  Value* a = get(i.a);
  Value* b = get(i.b);
  fault_if(builder_.CreateIsNull(b), Fault::kDivideByZero, constant(0));
  if (i.op == Op::kDivUnsigned) return builder_.CreateUDiv(a, b);
  if (i.op == Op::kRemUnsigned) return builder_.CreateURem(a, b);
  Value* minus_one = builder_.CreateICmpEQ(b, constant(~std::uint64_t{0}));
  Value* safe = builder_.CreateSelect(minus_one, constant(1), b);
  if (i.op == Op::kDivSigned) {
    return builder_.CreateSelect(minus_one, builder_.CreateNeg(a), builder_.CreateSDiv(a, safe));
  }
  return builder_.CreateSelect(minus_one, constant(0), builder_.CreateSRem(a, safe));
}

bool BodyEmitter::emit_text(const Instruction& i) {
  Value* strsize = constant(program_.strsize);
  switch (i.op) {
    case Op::kString: {
      std::uint64_t offset = layout_.strings;
      for (std::int64_t s = 0; s < i.immediate; ++s)
        offset += program_.strings[static_cast<std::size_t>(s)].size() + 1;
      set(i.dst, add(arena(), offset));
      return true;
    }
    case Op::kCompareString: {
      Value* a = get(i.a);
      Value* b = get(i.b);
      set(i.dst, call("tl_compare_text", a, b, strsize));
      return true;
    }
    case Op::kStringLength:
      // At most strsize - 1: what ends a string that is not terminated.
      set(i.dst, call("tl_text_length", text(i.a), constant(program_.strsize - 1)));
      return true;
    case Op::kStringJoin: {
      Value* a = text(i.a);
      Value* b = text(i.b);
      call("tl_join_text", scratch(i.scratch), a, b, strsize);
      set(i.dst, scratch(i.scratch));
      return true;
    }
    case Op::kCall:
      set(i.dst, call_routine(i));
      return true;
    default:
      return false;
  }
}

// -------------------------------------------------------------------------------------------
// arguments, builtins

llvm::Value* BodyEmitter::argument(std::int64_t number) {
  if (request_.kind == SiteKind::kReturn) {
    if (number == 0) return site_field(offsetof(wire::ProbeSite, offset), 8);
    return number == 1 ? arguments_[0] : constant(0);
  }
  if (number < kArgumentRegisters) return arguments_[static_cast<std::size_t>(number)];
  Value* found = call("tl_stack_argument", site_, slot_, level_, word_, return_slot(),
                      constant(static_cast<std::uint64_t>(number)));
  fault_unless(found, Fault::kBadAddress, constant(0));
  return read(word_);
}

// On top of the stack where a function has just been entered, or is about to return. Elsewhere in
// it that is something else.
llvm::Value* BodyEmitter::user_caller() {
  if (request_.kind == SiteKind::kEntry) {
    Value* offset = site_field(offsetof(wire::ProbeSite, offset), 8);
    fault_if(builder_.CreateIsNotNull(offset), Fault::kBadStack, constant(0));
  }
  return call("tl_user_caller", site_, return_slot());
}

// One firing has one time: the clock is read when it is first needed.
llvm::Value* BodyEmitter::firing_time() {
  Block* ask = new_block("clock");
  Block* known = new_block("timed");
  builder_.CreateCondBr(builder_.CreateIsNull(read(time_)), ask, known);
  builder_.SetInsertPoint(ask);
  write(time_, call("tl_clock", site_));
  go_to(known);
  builder_.SetInsertPoint(known);
  return read(time_);
}

llvm::Value* BodyEmitter::builtin(Builtin which) {
  using wire::Header;
  using wire::ProbeSite;
  const auto site_text = [&](std::size_t offset) { return add(arena(), site_field(offset, 4)); };
  switch (which) {
    case Builtin::kPid:
      return header_field(offsetof(Header, pid), 4);
    case Builtin::kPpid:
      return header_field(offsetof(Header, ppid), 4);
    case Builtin::kTid:
      return thread();
    case Builtin::kUid:
      return header_field(offsetof(Header, uid), 4);
    case Builtin::kGid:
      return header_field(offsetof(Header, gid), 4);
    case Builtin::kCpu:
      return call("tl_processor", site_, slot_);
    case Builtin::kProbeId:
      return site_field(offsetof(ProbeSite, id), 8);
    case Builtin::kTimestamp:
      return call("tl_timestamp", site_, firing_time());
    case Builtin::kWallTimestamp:
      return call("tl_wall_timestamp", site_, firing_time());
    case Builtin::kVirtualTimestamp:
      return call("tl_virtual_timestamp");
    case Builtin::kErrno:
      return constant(0);  // no probe of ours is in a system call
    case Builtin::kRandom:
      return call("tl_random", site_);
    case Builtin::kEpid:
      return add(
          builder_.CreateShl(add(site_field(offsetof(ProbeSite, probe), 4), 1), constant(16)),
          clause_index_ + std::uint64_t{1});
    case Builtin::kUserCaller:
      return user_caller();
    case Builtin::kUserStackDepth:
    case Builtin::kProcessGroup:
    case Builtin::kPriority:
      break;  // validate() has refused them
    case Builtin::kExecname:
      return add(arena(), header_field(offsetof(Header, execname), 4));
    case Builtin::kProbeProvider:
      return site_text(offsetof(ProbeSite, provider));
    case Builtin::kProbeModule:
      return site_text(offsetof(ProbeSite, module));
    case Builtin::kProbeFunction:
      return site_text(offsetof(ProbeSite, function));
    case Builtin::kProbeName:
      return site_text(offsetof(ProbeSite, name));
  }
  return constant(0);
}

// -------------------------------------------------------------------------------------------------------
// records

void BodyEmitter::emit_field(const Instruction& i) {
  const plan::Field& field = clause_->fields[static_cast<std::size_t>(i.immediate)];
  Value* value = field.type.kind == ValueKind::kInteger ? get(i.a) : text(i.a);
  Value* record = read(record_);
  // A field before kReserve was reached would have no record to go to.
  Block* write = new_block("field");
  Block* after = new_block("after");
  builder_.CreateCondBr(builder_.CreateIsNull(record), after, write);
  builder_.SetInsertPoint(write);
  Value* to = add(record, sizeof(wire::RecordHeader) + field.offset);
  switch (field.type.kind) {
    case ValueKind::kInteger:
      store(to, value, field.type.size);
      break;
    case ValueKind::kString:
      call("tl_copy_text", to, value, constant(field.type.size));
      break;
    case ValueKind::kBytes:
      call("tl_copy_bytes", to, value, constant(field.type.size));
      break;
  }
  go_to(after);
  builder_.SetInsertPoint(after);
}

}  // namespace trapline::codegen
