// Scalar variables, associative arrays, and keys. See body_emitter.h.

#include <llvm/IR/Constants.h>

#include <cstddef>

#include "codegen/body_emitter.h"
#include "plan/layout.h"
#include "wire/dynvar.h"

namespace trapline::codegen {

using plan::Op;
using plan::Scope;
using plan::ValueKind;
using plan::Variable;

// Precondition: for scope this, the body has a level.
llvm::Value* BodyEmitter::scalar_address(const Variable& variable) {
  switch (variable.scope) {
    case Scope::kGlobal:
      return add(arena(), layout_.globals + variable.offset);
    case Scope::kSelf:
      return add(slot_, layout_.slot_self + variable.offset);
    case Scope::kThis:
      break;
  }
  return add(scratch_, variable.offset);
}

llvm::Value* BodyEmitter::load_scalar(const Variable& variable, std::uint32_t index) {
  if (this_[index] != nullptr) return read(this_[index]);
  if (variable.type.kind == ValueKind::kBytes) return scalar_address(variable);
  if (variable.type.kind == ValueKind::kString)
    return call("tl_stored_text", scalar_address(variable));
  return load(scalar_address(variable), variable.type.size, variable.type.is_signed);
}

void BodyEmitter::store_scalar(const Variable& variable, std::uint32_t index,
                               const Instruction& instruction) {
  switch (variable.type.kind) {
    case ValueKind::kInteger: {
      if (this_[index] != nullptr) {
        Value* value = extend(get(instruction.a), variable.type.size, variable.type.is_signed);
        write(this_[index], value);
      } else {
        store(scalar_address(variable), get(instruction.a), variable.type.size);
      }
      return;
    }
    case ValueKind::kString:
      call("tl_store_text", scalar_address(variable), get(instruction.a),
           constant(variable.type.size));
      return;
    case ValueKind::kBytes: {
      Value* from = text(instruction.a);
      call("tl_copy_bytes", scalar_address(variable), from, constant(variable.type.size));
      return;
    }
  }
}

// ---------------------------------------------------------------------------------------------------------
// keys

llvm::Value* BodyEmitter::key_integer(const plan::Operand& operand) {
  return extend(get(operand.reg), operand.type.size, operand.type.is_signed);
}

// Writes a key into the instruction's scratch: words `before`, the operands, and a word `after` (or
// nullptr).
BodyEmitter::Key BodyEmitter::write_key(const Instruction& instruction, std::vector<Value*> before,
                                        Value* after) {
  // A key of no words has no scratch of its own.
  Value* start = scratch_;
  if (instruction.scratch != plan::kNone) start = scratch(instruction.scratch);
  Value* next = start;
  const auto append = [&](Value* word) {
    store(next, word, 8);
    next = add(next, 8);
  };
  for (Value* word : before) append(word);
  for (const plan::Operand& operand : instruction.operands) {
    if (operand.type.kind == ValueKind::kInteger) {
      append(key_integer(operand));
    } else if (operand.type.kind == ValueKind::kBytes) {
      const std::uint64_t size = (std::uint64_t{operand.type.size} + 7) & ~std::uint64_t{7};
      call("tl_zero_bytes", add(next, size - 8), constant(8));
      call("tl_copy_bytes", next, get(operand.reg), constant(operand.type.size));
      next = add(next, size);
    } else {
      Value* value = text(operand.reg);
      Value* words = call("tl_key_text", next, value, constant(operand.type.size));
      next = add(next, builder_.CreateShl(words, constant(3)));
    }
  }
  if (after != nullptr) append(after);
  return {start, builder_.CreateLShr(builder_.CreateSub(next, start), constant(3))};
}

// -------------------------------------------------------------------------------------------
// associative arrays

llvm::Constant* BodyEmitter::array_shape(const Variable& variable) {
  const wire::DynvarShape shape{layout_.globals + variable.offset, variable.capacity,
                                variable.cell_size,
                                static_cast<std::uint32_t>(plan::stored_size(variable.type)),
                                variable.type.kind == ValueKind::kString ? 1U : 0U};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&shape);
  llvm::Constant* value = llvm::ConstantDataArray::get(
      module_.context(), llvm::ArrayRef<std::uint8_t>(bytes, sizeof(shape)));
  auto* global = new llvm::GlobalVariable(module_.ir(), value->getType(), true,
                                          llvm::GlobalValue::InternalLinkage, value, "array");
  global->setAlignment(llvm::Align(8));
  return global;
}

llvm::Value* BodyEmitter::array_request(const Variable& array, const Key& key, Value* value) {
  return call("tl_array_request", site_, level_, array_shape(array), key.address, key.words, value);
}

llvm::Value* BodyEmitter::load_element(const Instruction& instruction) {
  const Variable& array = program_.variables[instruction.variable];
  const bool is_self = array.scope == Scope::kSelf;
  const Key key = write_key(
      instruction, is_self ? std::vector<Value*>{thread()} : std::vector<Value*>{}, nullptr);
  if (array.type.kind == ValueKind::kInteger) {
    write(word_, constant(0));
    call("tl_array_load", slot_, array_request(array, key, word_));
    Value* value = read(word_);
    return extend(value, array.type.size, array.type.is_signed);
  }
  const bool is_text = array.type.kind == ValueKind::kString;
  Value* to = scratch(instruction.scratch + static_cast<std::uint32_t>(plan::key_area(array)));
  Value* cleared = constant(is_text ? 1 : array.type.size);
  call("tl_zero_bytes", to, cleared);
  Value* found = call("tl_array_load", slot_, array_request(array, key, to));
  // A load that was given up may have left a part of a value there.
  call("tl_zero_bytes", to,
       builder_.CreateSelect(builder_.CreateIsNull(found), cleared, constant(0)));
  return is_text ? call("tl_stored_text", to) : to;
}

void BodyEmitter::remove_element(const Instruction& instruction) {
  const Variable& array = program_.variables[instruction.variable];
  const bool is_self = array.scope == Scope::kSelf;
  const Key key = write_key(
      instruction, is_self ? std::vector<Value*>{thread()} : std::vector<Value*>{}, nullptr);
  call("tl_array_remove", slot_, array_request(array, key, word_));
}

void BodyEmitter::store_element(const Instruction& instruction) {
  const Variable& array = program_.variables[instruction.variable];
  const bool is_self = array.scope == Scope::kSelf;
  const Key key = write_key(
      instruction, is_self ? std::vector<Value*>{thread()} : std::vector<Value*>{}, nullptr);
  if (array.type.kind == ValueKind::kString) {
    Value* stored =
        scratch(instruction.scratch + static_cast<std::uint32_t>(plan::key_area(array)));
    call("tl_store_text", stored, get(instruction.a), constant(array.type.size));
    call("tl_array_store", slot_, array_request(array, key, stored));
    return;
  }
  if (array.type.kind == ValueKind::kBytes) {
    Value* value = text(instruction.a);
    call("tl_array_store", slot_, array_request(array, key, value));
    return;
  }
  Value* value = extend(get(instruction.a), array.type.size, array.type.is_signed);
  write(word_, value);
  Value* request = array_request(array, key, word_);
  Block* remove = new_block("remove");
  Block* keep = new_block("keep");
  Block* after = new_block("after");
  builder_.CreateCondBr(builder_.CreateIsNull(value), remove, keep);
  builder_.SetInsertPoint(remove);
  call("tl_array_remove", slot_, request);
  go_to(after);
  builder_.SetInsertPoint(keep);
  call("tl_array_store", slot_, request);
  go_to(after);
  builder_.SetInsertPoint(after);
}

}  // namespace trapline::codegen
