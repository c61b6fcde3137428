// Emits one probe body as LLVM IR: prologue, clauses in order, epilogue.
//
// A plan's registers become stack variables of the IR, which LLVM turns into machine registers; so
// do integer `this` variables, the firing's time and the like. Addresses are 64-bit integers
// throughout, as in the plan.
//
// The work is split by concept: body_emitter.cc (frame and control flow), emit_values.cc
// (arithmetic, arguments, builtins, strings), emit_memory.cc, emit_routines.cc, emit_variables.cc
// (variables, arrays, keys), emit_aggregate.cc. Precondition of all: validate() accepted the plan.
//
// A body of many clauses is cut into parts, functions of their own, as LLVM's time grows faster
// than a function's size. What they share lies in the level's scratch: the frame (where the firing
// is, its arguments), the firing's time and the integer `this` variables.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "codegen/module.h"
#include "codegen/needs.h"
#include "plan/plan.h"

namespace trapline::codegen {

// Where a plan's registers and the body's own variables live.
enum class RegisterHome : std::uint8_t {
  kMachine,  // wherever LLVM likes: machine registers, then the stack
  kScratch,  // in the level's scratch, for bodies that would need too much of the target's stack
};

// Bytes at the end of a level's scratch that bodies with RegisterHome::kScratch and those in parts
// use.
std::uint32_t register_home_size(const plan::Program& program);

// Of a clause's record, header included.
std::uint32_t record_bytes(const plan::Clause& clause);

class BodyEmitter {
 public:
  BodyEmitter(Module& module, const plan::Program& program, const wire::Layout& layout,
              const BodyRequest& request, RegisterHome home, Effort effort);

  llvm::Function* emit(const std::string& name);

 private:
  using Value = llvm::Value;
  using Block = llvm::BasicBlock;
  using Instruction = plan::Instruction;

  // body_emitter.cc
  llvm::Function* declare(const std::string& name);
  void begin(llvm::Function* function);
  void emit_prologue();
  void make_cells();
  void clear_variables();
  bool is_in_parts() const;
  void emit_parts(const std::string& name);
  llvm::Function* emit_part(const std::string& name);
  void write_frame();
  void read_frame();
  void emit_clause(std::uint32_t index);
  void start_clause(std::uint32_t index);
  void finish_clause(Block* end, Block* faulted, Block* next);
  void emit_instruction(const Instruction& instruction);
  void emit_jump(const Instruction& instruction);
  void emit_reserve();
  void fault_if(Value* condition, plan::Fault fault, Value* address);
  void fault_unless(Value* status, plan::Fault fault, Value* address);
  Block* new_block(const char* name);
  void go_to(Block* block);

  // emit_values.cc
  bool emit_arithmetic(const Instruction& instruction);
  bool emit_text(const Instruction& instruction);
  bool emit_memory(const Instruction& instruction);
  Value* divide(const Instruction& instruction);
  Value* argument(std::int64_t number);
  Value* builtin(plan::Builtin which);
  Value* user_caller();
  Value* firing_time();
  Value* load_memory(const Instruction& instruction);
  void store_memory(const Instruction& instruction);
  void store_string(const Instruction& instruction);
  void copy_memory(const Instruction& instruction);
  void copy_out(const Instruction& instruction);
  Value* allocate(const Instruction& instruction);
  Value* readable(Value* address, Value* size);  // as tl_readable gives it
  Value* writable(Value* address, Value* size);
  void check_readable(Value* address, Value* size);
  Value* copy_in(const Instruction& instruction);
  Value* copy_in_text(const Instruction& instruction);
  Value* dynamic_scratch(Value* size);
  void emit_field(const Instruction& instruction);

  // emit_routines.cc
  bool emit_process(const Instruction& instruction);
  Value* call_routine(const Instruction& instruction);
  Value* call_with_bytes(const Instruction& instruction);
  Value* token(const Instruction& instruction);
  Value* base_of(const Instruction& instruction);
  Value* speculation_number(const Instruction& instruction);
  void speculate(const Instruction& instruction);
  Value* speculations();

  // emit_variables.cc
  Value* scalar_address(const plan::Variable& variable);
  Value* load_scalar(const plan::Variable& variable, std::uint32_t index);
  void store_scalar(const plan::Variable& variable, std::uint32_t index,
                    const Instruction& instruction);
  Value* load_element(const Instruction& instruction);
  void store_element(const Instruction& instruction);
  void remove_element(const Instruction& instruction);
  struct Key {
    Value* address;
    Value* words;
  };
  Key write_key(const Instruction& instruction, std::vector<Value*> before, Value* after);
  Value* key_integer(const plan::Operand& operand);
  llvm::Constant* array_shape(const plan::Variable& variable);
  Value* array_request(const plan::Variable& array, const Key& key, Value* value);

  // emit_aggregate.cc
  void emit_aggregate(const Instruction& instruction);
  void emit_direct(const plan::Aggregation& aggregation, const Instruction& instruction);
  Value* find_entry(const plan::Aggregation& aggregation, const Instruction& instruction,
                    Value* bin);
  Value* bin_of(const plan::Aggregation& aggregation, Value* value);

  // Small helpers.
  Value* constant(std::uint64_t value) { return builder_.getInt64(value); }
  Value* get(plan::Reg reg);
  // Of a string register: an address that can be read. NULL is a fault.
  Value* text(plan::Reg reg);
  void set(plan::Reg reg, Value* value);
  Value* add(Value* a, Value* b) { return builder_.CreateAdd(a, b); }
  Value* add(Value* a, std::uint64_t b) { return builder_.CreateAdd(a, constant(b)); }
  Value* extend(Value* value, std::uint32_t size, bool is_signed);
  Value* load(Value* address, std::uint32_t size, bool is_signed);
  void store(Value* address, Value* value, std::uint32_t size);
  Value* pointer(Value* address) { return builder_.CreateIntToPtr(address, builder_.getPtrTy()); }
  Value* header_field(std::size_t offset, std::uint32_t size);
  Value* site_field(std::size_t offset, std::uint32_t size);
  Value* scratch(std::uint32_t offset) { return add(scratch_, offset); }
  Value* reread(Value* address, std::uint32_t size);
  Value* arena();
  Value* thread();
  Value* epoch();
  Value* depth();
  Value* return_slot();  // where the body's return address lies

  // A variable of the body: a pointer to the IR's stack, or an integer, its address in scratch.
  using Cell = llvm::Value*;
  Cell cell(const char* name);
  Cell shared_cell(const char* name);  // of all clauses
  Value* frame_word(std::uint32_t index);
  Value* read(Cell cell);
  void write(Cell cell, Value* value);
  template <typename... Arguments>
  Value* call(std::string_view name, Arguments... arguments) {
    return module_.call(builder_, name, {arguments...});
  }

  Module& module_;
  const plan::Program& program_;
  const wire::Layout& layout_;
  const BodyRequest& request_;
  RegisterHome home_;
  Effort effort_;
  Needs needs_;
  llvm::IRBuilder<> builder_;

  // The body.
  llvm::Function* function_ = nullptr;
  Block* entry_ = nullptr;
  Block* leave_ = nullptr;  // gives the level back
  Block* return_ = nullptr;
  bool is_part_ = false;
  std::vector<Value*> arguments_;  // the firing's registers; the site's kind tells what they are
  Value* site_ = nullptr;          // pointer
  Value* slot_ = nullptr;          // integers from here on
  Value* arena_ = nullptr;
  Value* thread_ = nullptr;  // the id; nullptr: not needed
  Value* depth_ = nullptr;   // nullptr: no level
  Value* epoch_ = nullptr;
  Value* level_ = nullptr;
  Value* scratch_ = nullptr;
  Value* return_slot_ = nullptr;  // of a part: its body's
  std::uint32_t cells_ = 0;       // in scratch
  Cell time_ = nullptr;           // raw clock; 0: not read yet
  Cell word_ = nullptr;           // where the runtime puts a word that it found
  Cell record_ = nullptr;         // address of the clause's record; 0: none
  Cell exiting_ = nullptr;        // whether the clause ran exit()
  Cell dynamic_ = nullptr;        // bytes of dynamic scratch that the clause used
  std::vector<Cell> this_;        // by variable: integers of scope this; nullptr for others

  // The clause being emitted.
  std::uint32_t clause_index_ = 0;
  const plan::Clause* clause_ = nullptr;
  std::uint32_t at_ = 0;  // instruction
  std::vector<Cell> registers_;
  std::vector<bool> nonzero_;   // by register: it is never 0
  Block* next_ = nullptr;       // where the clause's end leads
  std::vector<Block*> blocks_;  // by instruction that is a jump's target
  Block* end_ = nullptr;
  Block* fault_ = nullptr;
  llvm::PHINode* fault_where_ = nullptr;
  llvm::PHINode* fault_address_ = nullptr;
};

}  // namespace trapline::codegen
