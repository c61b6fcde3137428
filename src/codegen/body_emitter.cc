// The frame of a body, its clauses one after another, jumps and faults. See body_emitter.h.

#include "codegen/body_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "codegen/validate.h"

namespace trapline::codegen {

using plan::Fault;
using plan::kNoReg;
using plan::Op;
using plan::Scope;
using plan::ValueKind;
using plan::Variable;

namespace {

constexpr unsigned kArgumentRegisters = 6;
constexpr unsigned kSiteParameter = 6;
constexpr std::uint32_t kOwnCells = 5;  // time, word, record, exiting, dynamic
// A body of more clauses is cut into parts of so many.
std::size_t clauses_of_a_part(Effort effort) { return effort == Effort::kQuick ? 2 : 8; }

// site, slot, depth, epoch, thread, level, return slot; the arguments.
constexpr std::uint32_t kFrameFields = 7;
constexpr std::uint32_t kFrameWords = kFrameFields + kArgumentRegisters;

}  // namespace

std::uint32_t record_bytes(const plan::Clause& clause) {
  return static_cast<std::uint32_t>(sizeof(wire::RecordHeader)) + ((clause.record_size + 7) & ~7U);
}

std::uint32_t register_home_size(const plan::Program& program) {
  std::size_t cells = 0;
  for (const plan::Clause& clause : program.clauses)
    cells = std::max<std::size_t>(cells, clause.register_count);
  return static_cast<std::uint32_t>((cells + program.variables.size() + kOwnCells + kFrameWords) *
                                    8);
}

BodyEmitter::BodyEmitter(Module& module, const plan::Program& program, const wire::Layout& layout,
                         const BodyRequest& request, RegisterHome home, Effort effort)
    : module_(module),
      program_(program),
      layout_(layout),
      request_(request),
      home_(home),
      effort_(effort),
      needs_(needs_of(program, request.clauses)),
      builder_(module.context()) {
  needs_.level |= home == RegisterHome::kScratch || is_in_parts();
}

llvm::Function* BodyEmitter::emit(const std::string& name) {
  begin(declare(name));
  emit_prologue();
  make_cells();
  clear_variables();
  if (is_in_parts()) {
    emit_parts(name);
  } else {
    for (const std::uint32_t index : request_.clauses) emit_clause(index);
  }
  go_to(leave_);
  builder_.SetInsertPoint(leave_);
  if (needs_.level) call("tl_leave", slot_, depth());
  go_to(return_);
  builder_.SetInsertPoint(return_);
  builder_.CreateRetVoid();
  return function_;
}

void BodyEmitter::begin(llvm::Function* function) {
  function_ = function;
  entry_ = llvm::BasicBlock::Create(module_.context(), "entry", function_);
  builder_.SetInsertPoint(entry_);
  leave_ = new_block("leave");
  return_ = new_block("return");
}

// -------------------------------------------------------------------------------------------------------
// parts

bool BodyEmitter::is_in_parts() const {
  return !is_part_ && request_.clauses.size() > clauses_of_a_part(effort_) &&
         scratch_size(program_) <= layout_.scratch_size;
}

void BodyEmitter::emit_parts(const std::string& name) {
  write_frame();
  const std::span<const std::uint32_t> all = request_.clauses;
  const std::size_t count = clauses_of_a_part(effort_);
  for (std::size_t at = 0; at < all.size(); at += count) {
    const auto some = all.subspan(at, std::min(count, all.size() - at));
    const BodyRequest request{request_.kind, {some.begin(), some.end()}};
    BodyEmitter part(module_, program_, layout_, request, home_, effort_);
    part.needs_ = needs_;
    part.is_part_ = true;
    llvm::Function* function = part.emit_part(name + "_part_" + std::to_string(at / count));
    Block* next = new_block("part");
    builder_.CreateCondBr(builder_.CreateCall(function, {scratch_}), leave_, next);
    builder_.SetInsertPoint(next);
  }
}

// A function of the level's scratch that tells whether the firing is over (exit()).
llvm::Function* BodyEmitter::emit_part(const std::string& name) {
  auto* type = llvm::FunctionType::get(builder_.getInt1Ty(), {builder_.getInt64Ty()}, false);
  auto* function =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, module_.ir());
  function->addFnAttr(llvm::Attribute::NoInline);
  function->setDSOLocal(true);
  begin(function);
  read_frame();
  make_cells();
  for (const std::uint32_t index : request_.clauses) emit_clause(index);
  go_to(return_);
  builder_.SetInsertPoint(leave_);
  builder_.CreateRet(builder_.getTrue());
  builder_.SetInsertPoint(return_);
  builder_.CreateRet(builder_.getFalse());
  return function;
}

llvm::Value* BodyEmitter::frame_word(std::uint32_t index) {
  return pointer(scratch(layout_.scratch_size - register_home_size(program_) + 8 * index));
}

void BodyEmitter::write_frame() {
  Value* const none = constant(0);
  std::vector<Value*> words = {builder_.CreatePtrToInt(site_, builder_.getInt64Ty()),
                               slot_,
                               builder_.CreateZExt(depth_, builder_.getInt64Ty()),
                               epoch_,
                               thread_ != nullptr ? thread_ : none,
                               level_,
                               return_slot()};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  for (std::uint32_t i = 0; i < words.size(); ++i) builder_.CreateStore(words[i], frame_word(i));
}

void BodyEmitter::read_frame() {
  scratch_ = function_->getArg(0);
  std::vector<Value*> words;
  for (std::uint32_t i = 0; i < kFrameWords; ++i)
    words.push_back(builder_.CreateLoad(builder_.getInt64Ty(), frame_word(i)));
  site_ = pointer(words[0]);
  slot_ = words[1];
  depth_ = builder_.CreateTrunc(words[2], builder_.getInt32Ty());
  epoch_ = words[3];
  if (needs_.thread) thread_ = words[4];
  level_ = words[5];
  return_slot_ = words[6];
  arguments_.assign(words.begin() + kFrameFields, words.end());
  arena_ = site_field(offsetof(wire::ProbeSite, arena), 8);
}

// -------------------------------------------------------------------------------------------------------
// the frame

llvm::Function* BodyEmitter::declare(const std::string& name) {
  std::vector<llvm::Type*> parameters(kArgumentRegisters, builder_.getInt64Ty());
  parameters.push_back(builder_.getPtrTy());
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(), parameters, false);
  auto* function =
      llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, name, module_.ir());
  function->setCallingConv(llvm::CallingConv::PreserveMost);
  function->addParamAttr(kSiteParameter, llvm::Attribute::Nest);
  function->setDSOLocal(true);
  return function;
}

void BodyEmitter::emit_prologue() {
  for (unsigned i = 0; i < kArgumentRegisters; ++i) arguments_.push_back(function_->getArg(i));
  site_ = function_->getArg(kSiteParameter);
  Value* slot = call("tl_enter", site_);
  Block* run = new_block("run");
  builder_.CreateCondBr(builder_.CreateIsNull(slot), return_, run);
  builder_.SetInsertPoint(run);
  slot_ = builder_.CreatePtrToInt(slot, builder_.getInt64Ty());
  arena_ = site_field(offsetof(wire::ProbeSite, arena), 8);
  if (needs_.thread)
    thread_ = builder_.CreateZExt(call("tl_thread", site_, slot_), builder_.getInt64Ty());
  if (!needs_.level) return;
  llvm::IRBuilder<> at_entry(entry_, entry_->begin());
  llvm::AllocaInst* epoch = at_entry.CreateAlloca(builder_.getInt64Ty(), nullptr, "epoch");
  Value* depth = call("tl_take_level", site_, slot_, epoch);
  Block* taken = new_block("level");
  builder_.CreateCondBr(builder_.CreateICmpEQ(depth, builder_.getInt32(wire::kLevels)), return_,
                        taken);
  builder_.SetInsertPoint(taken);
  depth_ = depth;
  epoch_ = builder_.CreateLoad(builder_.getInt64Ty(), epoch);
  level_ = builder_.CreatePtrToInt(call("tl_level", slot_, depth_), builder_.getInt64Ty());
  scratch_ = builder_.CreatePtrToInt(call("tl_scratch", slot_, depth_), builder_.getInt64Ty());
}

void BodyEmitter::make_cells() {
  time_ = shared_cell("time");
  word_ = cell("word");
  record_ = cell("record");
  exiting_ = cell("exiting");
  dynamic_ = cell("dynamic");
  this_.assign(program_.variables.size(), nullptr);
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    const Variable& declared = program_.variables[i];
    const bool is_scalar = declared.scope == Scope::kThis && !declared.is_array;
    if (is_scalar && declared.type.kind == ValueKind::kInteger) this_[i] = shared_cell("this");
  }
}

void BodyEmitter::clear_variables() {
  write(time_, constant(0));
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    const Variable& declared = program_.variables[i];
    if (declared.scope != Scope::kThis || declared.is_array) continue;
    if (this_[i] != nullptr) {
      write(this_[i], constant(0));
    } else if (scratch_ != nullptr) {
      const std::uint32_t size = declared.type.kind == ValueKind::kString ? 1 : declared.type.size;
      call("tl_zero_bytes", scalar_address(declared), constant(size));
    }
  }
}

// -------------------------------------------------------------------------------------------------------
// clauses

void BodyEmitter::emit_clause(std::uint32_t index) {
  start_clause(index);
  Block* next = new_block("next");
  next_ = next;
  for (at_ = 0; at_ < clause_->code.size(); ++at_) {
    if (blocks_[at_] != nullptr) {
      go_to(blocks_[at_]);
      builder_.SetInsertPoint(blocks_[at_]);
    }
    emit_instruction(clause_->code[at_]);
  }
  go_to(end_);
  finish_clause(end_, fault_, next);
  builder_.SetInsertPoint(next);
}

void BodyEmitter::start_clause(std::uint32_t index) {
  clause_index_ = index;
  clause_ = &program_.clauses[index];
  registers_.clear();
  nonzero_ = nonzero_registers(*clause_);
  const std::uint32_t cells_of_body = cells_;  // each clause uses the same ones anew
  for (std::uint32_t i = 0; i < clause_->register_count; ++i) {
    registers_.push_back(cell("r"));
    write(registers_.back(), constant(0));
  }
  cells_ = cells_of_body;
  write(record_, constant(0));
  write(exiting_, constant(0));
  write(dynamic_, constant(0));

  blocks_.assign(clause_->code.size(), nullptr);
  for (const Instruction& instruction : clause_->code) {
    const bool jumps = instruction.op == Op::kJump || instruction.op == Op::kJumpIfZero ||
                       instruction.op == Op::kJumpIfNotZero;
    if (jumps && blocks_[instruction.target] == nullptr)
      blocks_[instruction.target] = new_block("at");
  }
  end_ = new_block("end");
  fault_ = new_block("fault");
  llvm::IRBuilder<> at_fault(fault_);
  fault_where_ = at_fault.CreatePHI(builder_.getInt64Ty(), 2, "where");
  fault_address_ = at_fault.CreatePHI(builder_.getInt64Ty(), 2, "address");
}

// The record of a clause that ended well is committed; that of one that faulted is given back, and
// a fault is recorded.
void BodyEmitter::finish_clause(Block* end, Block* faulted, Block* next) {
  builder_.SetInsertPoint(end);
  if (clause_->has_record) {
    Block* commit = new_block("commit");
    Block* after = new_block("committed");
    Value* record = read(record_);
    builder_.CreateCondBr(builder_.CreateIsNull(record), after, commit);
    builder_.SetInsertPoint(commit);
    call("tl_commit", site_, level_);
    go_to(after);
    builder_.SetInsertPoint(after);
  }
  Block* exits = new_block("exit");
  builder_.CreateCondBr(builder_.CreateIsNotNull(read(exiting_)), exits, next);
  builder_.SetInsertPoint(exits);
  call("tl_exit", site_);
  go_to(leave_);

  builder_.SetInsertPoint(faulted);
  if (fault_where_->getNumIncomingValues() == 0) {
    fault_where_->eraseFromParent();
    fault_address_->eraseFromParent();
    builder_.CreateUnreachable();
    return;
  }
  // Without a level there is no instruction that can fault (see needs.h).
  if (level_ != nullptr) {
    if (clause_->has_record) {
      Block* give_back = new_block("abort");
      Block* report = new_block("report");
      Value* record = read(record_);
      builder_.CreateCondBr(builder_.CreateIsNull(record), report, give_back);
      builder_.SetInsertPoint(give_back);
      call("tl_abort", level_, builder_.getInt32(record_bytes(*clause_)));
      go_to(report);
      builder_.SetInsertPoint(report);
    }
    call("tl_fault", site_, slot_, level_, fault_where_, fault_address_);
  }
  go_to(next);
}

void BodyEmitter::emit_instruction(const Instruction& instruction) {
  if (emit_arithmetic(instruction) || emit_text(instruction) || emit_memory(instruction) ||
      emit_process(instruction)) {
    return;
  }
  const std::uint32_t index = instruction.variable;
  switch (instruction.op) {
    case Op::kJump:
    case Op::kJumpIfZero:
    case Op::kJumpIfNotZero:
      return emit_jump(instruction);
    case Op::kArgument:
      return set(instruction.dst, argument(instruction.immediate));
    case Op::kBuiltin:
      return set(instruction.dst, builtin(static_cast<plan::Builtin>(instruction.immediate)));
    case Op::kLoad:
      return set(instruction.dst, load_scalar(program_.variables[index], index));
    case Op::kStore:
      return store_scalar(program_.variables[index], index, instruction);
    case Op::kLoadElement:
      return set(instruction.dst, load_element(instruction));
    case Op::kStoreElement:
      return store_element(instruction);
    case Op::kRemoveElement:
      return remove_element(instruction);
    case Op::kReserve:
      return emit_reserve();
    case Op::kField:
      return emit_field(instruction);
    case Op::kAggregate:
      return emit_aggregate(instruction);
    case Op::kExit:
      write(exiting_, constant(1));
      return;
    case Op::kEnd: {
      go_to(end_);
      builder_.SetInsertPoint(new_block("unreached"));
      return;
    }
    default:
      return;
  }
}

void BodyEmitter::emit_jump(const Instruction& instruction) {
  Block* target = blocks_[instruction.target];
  Block* after = new_block("after");
  if (instruction.op == Op::kJump) {
    go_to(target);
  } else {
    Value* zero = builder_.CreateIsNull(get(instruction.a));
    const bool if_zero = instruction.op == Op::kJumpIfZero;
    builder_.CreateCondBr(zero, if_zero ? target : after, if_zero ? after : target);
  }
  builder_.SetInsertPoint(after);
}

void BodyEmitter::emit_reserve() {
  if (!clause_->has_record) return;
  Value* size = builder_.getInt32(record_bytes(*clause_));
  Value* record = call("tl_reserve", site_, slot_, level_, size);
  Block* reserved = new_block("reserved");
  builder_.CreateCondBr(builder_.CreateIsNull(record), end_, reserved);
  builder_.SetInsertPoint(reserved);
  write(record_, builder_.CreatePtrToInt(record, builder_.getInt64Ty()));
  call("tl_fill_header", record, site_, slot_, size, builder_.getInt32(clause_index_),
       builder_.getInt32(wire::kRecordData), thread(), firing_time());
}

void BodyEmitter::fault_if(Value* condition, Fault fault, Value* address) {
  Block* after = new_block("fine");
  const std::uint64_t where = static_cast<std::uint64_t>(fault) << 48 |
                              static_cast<std::uint64_t>(clause_index_) << 32 | at_;
  fault_where_->addIncoming(constant(where), builder_.GetInsertBlock());
  fault_address_->addIncoming(address, builder_.GetInsertBlock());
  builder_.CreateCondBr(condition, fault_, after);
  builder_.SetInsertPoint(after);
}

void BodyEmitter::fault_unless(Value* status, Fault fault, Value* address) {
  fault_if(builder_.CreateIsNull(status), fault, address);
}

// -------------------------------------------------------------------------------------------------------
// helpers

llvm::BasicBlock* BodyEmitter::new_block(const char* name) {
  return llvm::BasicBlock::Create(module_.context(), name, function_);
}

void BodyEmitter::go_to(Block* block) { builder_.CreateBr(block); }

// In scratch a cell is read and written as often as the plan does: LLVM is not to keep it anywhere
// else.
BodyEmitter::Cell BodyEmitter::cell(const char* name) {
  if (home_ == RegisterHome::kScratch) return scratch(layout_.scratch_size - 8 * ++cells_);
  llvm::IRBuilder<> at_entry(entry_, entry_->begin());
  return at_entry.CreateAlloca(builder_.getInt64Ty(), nullptr, name);
}

BodyEmitter::Cell BodyEmitter::shared_cell(const char* name) {
  if (!is_part_ && !is_in_parts()) return cell(name);
  return scratch(layout_.scratch_size - 8 * ++cells_);
}

llvm::Value* BodyEmitter::read(Cell cell) {
  if (cell->getType()->isPointerTy()) return builder_.CreateLoad(builder_.getInt64Ty(), cell);
  return builder_.CreateLoad(builder_.getInt64Ty(), pointer(cell), true);
}

void BodyEmitter::write(Cell cell, Value* value) {
  if (cell->getType()->isPointerTy()) {
    builder_.CreateStore(value, cell);
  } else {
    builder_.CreateStore(value, pointer(cell), true);
  }
}

llvm::Value* BodyEmitter::get(plan::Reg reg) { return read(registers_[reg]); }

void BodyEmitter::set(plan::Reg reg, Value* value) {
  write(registers_[reg], builder_.CreateZExtOrTrunc(value, builder_.getInt64Ty()));
}

// What can be found again is not kept where registers are short.
llvm::Value* BodyEmitter::arena() {
  if (home_ == RegisterHome::kMachine) return arena_;
  Value* address = builder_.CreatePtrToInt(site_, builder_.getInt64Ty());
  return reread(add(address, offsetof(wire::ProbeSite, arena)), 8);
}
llvm::Value* BodyEmitter::thread() {
  return home_ == RegisterHome::kMachine ? thread_
                                         : reread(add(slot_, offsetof(wire::Slot, tid)), 4);
}
llvm::Value* BodyEmitter::epoch() {
  return home_ == RegisterHome::kMachine ? epoch_
                                         : reread(add(level_, offsetof(wire::Level, entered)), 8);
}
llvm::Value* BodyEmitter::depth() {
  if (home_ == RegisterHome::kMachine) return depth_;
  return builder_.CreateSub(reread(add(slot_, offsetof(wire::Slot, depth)), 4), constant(1));
}

// Valid until the body returns, whatever the body pushes.
llvm::Value* BodyEmitter::return_slot() {
  if (return_slot_ != nullptr) return return_slot_;
  Value* slot =
      builder_.CreateIntrinsic(llvm::Intrinsic::addressofreturnaddress, {builder_.getPtrTy()}, {});
  return builder_.CreatePtrToInt(slot, builder_.getInt64Ty());
}

llvm::Value* BodyEmitter::reread(Value* address, std::uint32_t size) {
  Value* value = builder_.CreateLoad(builder_.getIntNTy(size * 8), pointer(address), true);
  return builder_.CreateZExt(value, builder_.getInt64Ty());
}

llvm::Value* BodyEmitter::text(plan::Reg reg) {
  Value* address = get(reg);
  if (!nonzero_[reg]) fault_if(builder_.CreateIsNull(address), Fault::kBadAddress, constant(0));
  return address;
}

llvm::Value* BodyEmitter::extend(Value* value, std::uint32_t size, bool is_signed) {
  if (size >= 8) return value;
  Value* low = builder_.CreateTrunc(value, builder_.getIntNTy(size * 8));
  return is_signed ? builder_.CreateSExt(low, builder_.getInt64Ty())
                   : builder_.CreateZExt(low, builder_.getInt64Ty());
}

llvm::Value* BodyEmitter::load(Value* address, std::uint32_t size, bool is_signed) {
  Value* value =
      builder_.CreateAlignedLoad(builder_.getIntNTy(size * 8), pointer(address), llvm::Align(1));
  return is_signed ? builder_.CreateSExt(value, builder_.getInt64Ty())
                   : builder_.CreateZExt(value, builder_.getInt64Ty());
}

void BodyEmitter::store(Value* address, Value* value, std::uint32_t size) {
  Value* low = builder_.CreateTrunc(value, builder_.getIntNTy(size * 8));
  builder_.CreateAlignedStore(low, pointer(address), llvm::Align(1));
}

llvm::Value* BodyEmitter::header_field(std::size_t offset, std::uint32_t size) {
  return load(add(arena(), offset), size, false);
}

llvm::Value* BodyEmitter::site_field(std::size_t offset, std::uint32_t size) {
  Value* address = add(builder_.CreatePtrToInt(site_, builder_.getInt64Ty()), offset);
  return load(address, size, false);
}

}  // namespace trapline::codegen
