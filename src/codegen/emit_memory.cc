// Memory that a program names by address: the traced process's, and ours as far as D may use it.
// See body_emitter.h.

#include <llvm/IR/Intrinsics.h>

#include <cstddef>

#include "codegen/body_emitter.h"
#include "codegen/validate.h"
#include "plan/layout.h"

namespace trapline::codegen {

using plan::Fault;
using plan::kNone;
using plan::kNoReg;
using plan::Op;

// false: the instruction is none of these.
bool BodyEmitter::emit_memory(const Instruction& i) {
  switch (i.op) {
    case Op::kLoadMemory:
      set(i.dst, load_memory(i));
      return true;
    case Op::kStoreMemory:
      store_memory(i);
      return true;
    case Op::kStoreString:
      store_string(i);
      return true;
    case Op::kCopyMemory:
      copy_memory(i);
      return true;
    case Op::kCopyOut:
    case Op::kCopyOutString:
      copy_out(i);
      return true;
    case Op::kAlloca:
      set(i.dst, allocate(i));
      return true;
    case Op::kCopyIn:
      set(i.dst, copy_in(i));
      return true;
    case Op::kCopyInString:
      set(i.dst, copy_in_text(i));
      return true;
    default:
      return false;
  }
}

llvm::Value* BodyEmitter::readable(Value* address, Value* size) {
  const std::uint64_t fixed = static_scratch_size(program_);
  return call("tl_readable", site_, address, size, scratch_, constant(fixed),
              constant(fixed + plan::kScratchGuard), read(dynamic_));
}

llvm::Value* BodyEmitter::writable(Value* address, Value* size) {
  const std::uint64_t fixed = static_scratch_size(program_);
  return call("tl_writable", site_, slot_, address, size, scratch_, constant(fixed),
              constant(fixed + plan::kScratchGuard), read(dynamic_),
              constant(plan::scalar_globals_size(program_)));
}

void BodyEmitter::check_readable(Value* address, Value* size) {
  fault_unless(readable(address, size), Fault::kBadAddress, address);
}

llvm::Value* BodyEmitter::load_memory(const Instruction& i) {
  Value* address = get(i.a);
  check_readable(address, constant(i.size));
  Value* found = call("tl_load", site_, slot_, level_, word_, address, builder_.getInt32(i.size));
  fault_unless(found, Fault::kBadAddress, address);
  return extend(read(word_), i.size, i.is_signed);
}

void BodyEmitter::store_memory(const Instruction& i) {
  Value* address = get(i.a);
  fault_unless(writable(address, constant(i.size)), Fault::kBadAddress, address);
  store(address, get(i.b), i.size);
}

void BodyEmitter::store_string(const Instruction& i) {
  Value* address = get(i.a);
  Value* size = constant(static_cast<std::uint64_t>(i.immediate));
  fault_unless(writable(address, size), Fault::kBadAddress, address);
  call("tl_copy_text", address, text(i.b), size);
}

// Nothing is looked at where the size is 0.
void BodyEmitter::copy_memory(const Instruction& i) {
  Value* from = get(i.a);
  Value* size = get(i.b);
  Value* to = get(i.operands.front().reg);
  Block* copy = new_block("copy");
  Block* after = new_block("copied");
  builder_.CreateCondBr(builder_.CreateIsNull(size), after, copy);
  builder_.SetInsertPoint(copy);
  Value* begins_well = writable(to, constant(1));
  fault_unless(begins_well, Fault::kBadAddress, to);
  fault_unless(writable(to, size), Fault::kBadSize, size);
  Value* none = constant(0);
  Value* outside = builder_.CreateICmpEQ(readable(from, size), none);
  Value* begins = builder_.CreateICmpNE(readable(from, constant(1)), none);
  fault_if(builder_.CreateAnd(outside, begins), Fault::kBadSize, size);
  fault_if(outside, Fault::kBadAddress, from);
  fault_unless(call("tl_copy_in", site_, slot_, level_, to, from, size), Fault::kBadAddress, from);
  go_to(after);
  builder_.SetInsertPoint(after);
}

void BodyEmitter::copy_out(const Instruction& i) {
  Value* from = i.op == Op::kCopyOutString ? text(i.a) : get(i.a);
  Value* size = get(i.b);
  Value* to = get(i.operands.front().reg);
  if (i.op == Op::kCopyOutString) {
    Value* length = add(call("tl_text_length", from, constant(program_.strsize - 1)), 1);
    size = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, size, length);
  } else {
    fault_if(builder_.CreateICmpUGT(size, constant(plan::kMaxCopyOut)), Fault::kBadSize, size);
    check_readable(from, size);
  }
  Block* write = new_block("write");
  Block* after = new_block("written");
  builder_.CreateCondBr(builder_.CreateIsNull(size), after, write);
  builder_.SetInsertPoint(write);
  Value* foreign = builder_.CreateICmpEQ(readable(to, size), constant(2));
  fault_if(builder_.CreateNot(foreign), Fault::kBadAddress, to);
  fault_unless(call("tl_copy_out", slot_, level_, to, from, size), Fault::kBadAddress, to);
  go_to(after);
  builder_.SetInsertPoint(after);
}

// The address of `size` fresh bytes behind the static scratch.
llvm::Value* BodyEmitter::dynamic_scratch(Value* size) {
  const std::uint64_t start = static_scratch_size(program_) + plan::kScratchGuard;
  const std::uint64_t total = plan::dynamic_scratch_size(program_);
  Value* used = read(dynamic_);
  fault_if(builder_.CreateICmpUGT(size, builder_.CreateSub(constant(total), used)),
           Fault::kNoScratch, constant(0));
  Value* rounded = builder_.CreateAnd(add(size, 7), constant(~std::uint64_t{7}));
  write(dynamic_, add(used, rounded));
  return add(scratch(static_cast<std::uint32_t>(start)), used);
}

llvm::Value* BodyEmitter::allocate(const Instruction& i) {
  Value* size = get(i.a);
  Value* address = dynamic_scratch(size);
  call("tl_zero_bytes", address, size);
  return address;
}

llvm::Value* BodyEmitter::copy_in(const Instruction& i) {
  Value* from = get(i.a);
  Value* size = get(i.b);
  Value* to = nullptr;
  if (i.scratch != kNone) {
    Value* limit = constant(static_cast<std::uint64_t>(i.immediate));
    fault_if(builder_.CreateICmpUGT(size, limit), Fault::kBadSize, size);
    to = scratch(i.scratch);
  } else {
    to = dynamic_scratch(size);
  }
  check_readable(from, size);
  fault_unless(call("tl_copy_in", site_, slot_, level_, to, from, size), Fault::kBadAddress, from);
  return to;
}

llvm::Value* BodyEmitter::copy_in_text(const Instruction& i) {
  Value* from = get(i.a);
  Value* size = constant(program_.strsize);
  if (i.b != kNoReg) {
    size = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, get(i.b), size);
    fault_if(builder_.CreateIsNull(size), Fault::kBadAddress, from);
  }
  Value* to = i.scratch != kNone ? scratch(i.scratch) : dynamic_scratch(constant(program_.strsize));
  check_readable(from, constant(1));
  fault_unless(call("tl_copy_in_text", site_, slot_, level_, to, from, size), Fault::kBadAddress,
               from);
  return to;
}

}  // namespace trapline::codegen
