// The state of lowering, shared by lower.cc (clauses and actions), lower_expression.cc and
// lower_operator.cc.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlang/lower.h"

namespace trapline::dlang {

class Lowerer {
 public:
  Lowerer(const LowerRequest& request, diag::Diagnostics& diagnostics);
  plan::Program run();

 private:
  using TypeId = ctypes::TypeId;
  using Reg = plan::Reg;

  // ---- lower.cc
  void lower_clause(const CheckedClause& checked);
  void lower_statement(const Node& statement);
  void lower_aggregate(const Node& node);
  void lower_action(const Node& node);
  void lower_printf(const Node& node);
  void lower_printa(const Node& node);
  void lower_format_action(const Node& node, plan::ActionKind kind);
  void lower_trace(const Node& node);
  void lower_tracemem(const Node& node);
  void lower_print(const Node& node);
  void lower_setopt(const Node& node);
  void lower_speculation(const Node& node);
  bool lower_process_action(const Node& node);
  void lower_aggregation_action(const Node& node, plan::ActionKind kind);
  std::optional<std::uint32_t> add_field(const Node& value);
  std::optional<std::uint32_t> add_bytes(Reg address, std::uint64_t size, diag::Range range);
  std::uint32_t add_field(Reg value, plan::ValueType type);
  std::uint32_t aggregation_index(const Symbol& symbol);
  static bool has_record(const CheckedClause& checked);

  // ---- lower_expression.cc, lower_operator.cc. kNoReg: a diagnostic was given.
  Reg lower(const Node& node);
  Reg lower_discarding(const Node& node);  // for its effects; may give kNoReg for a void value
  Reg lower_string(const Node& node);  // of a string-like type, or a constant 0: a string of ours
  Reg lower_as(const Node& node, TypeId type);  // converted as by assignment
  Reg lower_variable(const Node& node);
  Reg lower_builtin(const Node& node);
  Reg lower_inline(const Node& node);
  Reg lower_binary(const Node& node);
  Reg lower_arithmetic(BinaryOperator op, Reg left, Reg right, TypeId type);
  Reg lower_pointer_arithmetic(BinaryOperator op, const Node& left, Reg l, const Node& right,
                               Reg r);
  Reg lower_logical(const Node& node);
  Reg lower_comparison(const Node& node);
  Reg lower_string_comparison(const Node& node);
  Reg compare(BinaryOperator op, Reg left, Reg right, bool is_signed);
  Reg lower_conditional(const Node& node);
  Reg lower_cast(const Node& node);
  Reg lower_stringof(const Node& node);
  Reg lower_member(const Node& node);
  // ---- lower_memory.cc: what lies at an address, and places that are written.
  bool is_by_address(TypeId type) const;  // its value is an address: structures, arrays, floats
  Reg lower_address(const Node& lvalue);
  Reg lower_pointer(const Node& node);  // of a pointer, an array, or the bytes of a string
  Reg member_address(const Node& member);
  Reg load(Reg address, TypeId type, diag::Range range);
  Reg load_bit_field(const Node& member, Reg object);
  // Bytes of ours, for what is held by address; copied where they may be anybody's.
  Reg own_bytes(const Node& node, Reg address, std::uint64_t size);
  Reg copy_in(Reg address, std::uint64_t size);
  Reg copy_in(Reg address, Reg size, std::uint64_t most);
  void copy_memory(Reg to, Reg from, std::uint64_t size);

  // The place that an assignment writes, its keys already evaluated.
  struct Target {
    std::uint32_t variable = plan::kNone;  // kNone: memory at `address`
    bool is_element = false;
    std::vector<plan::Operand> keys;
    TypeId type = ctypes::kVoid;
    Reg address = plan::kNoReg;       // of a bit-field: of its unit
    const Node* bit_field = nullptr;  // the member
    // Within an element of an array: a copy of the element, which is stored again.
    std::shared_ptr<Target> element;
    Reg element_copy = plan::kNoReg;
  };
  std::optional<Target> lower_target(const Node& node);
  std::optional<Target> lower_memory_target(const Node& node);
  Reg load_target(const Target& target);
  void store_target(const Target& target, Reg value);
  void store_memory(const Target& target, Reg value);
  void store_bit_field(const Target& target, Reg value);
  void remove_target(const Target& target);
  Reg lower_assign(const Node& node);
  Reg lower_increment(const Node& node);

  // ---- lower_call.cc: subroutines
  Reg lower_call(const Node& node);
  Reg lower_text_call(const Node& node);
  Reg lower_memory_call(const Node& node);
  Reg lower_token(const Node& node);
  Reg call_routine(plan::Routine routine, std::vector<Reg> operands);
  std::uint32_t token_state();

  Reg processor_info();
  std::optional<std::vector<plan::Operand>> lower_keys(const Symbol& symbol,
                                                       const std::vector<NodePtr>& keys);
  std::optional<std::uint32_t> variable_index(const Symbol& symbol, diag::Range range);
  std::optional<plan::ValueType> value_type(TypeId type) const;  // none: structures, floats
  bool cast_cuts(TypeId from, TypeId to) const;
  Reg extended(Reg value, const plan::ValueType& type);
  bool fits(const Node& node, const plan::ValueType& type) const;

  Reg unsupported(diag::Range range, std::string_view what);
  Reg new_register() { return clause_.register_count++; }
  plan::Instruction& emit(plan::Op op);
  Reg emit_value(plan::Op op, Reg a = plan::kNoReg, Reg b = plan::kNoReg);
  Reg constant(std::uint64_t value);
  Reg string_constant(const std::string& text);
  Reg copy_string(Reg address, std::optional<std::uint64_t> limit);
  std::size_t emit_jump(plan::Op op, Reg condition = plan::kNoReg);  // its target is set by land()
  void land(std::size_t jump);
  std::uint32_t allocate_scratch(std::uint64_t size);
  std::uint32_t line_of(diag::Range range) const;

  const LowerRequest& request_;
  ctypes::TypeTable& types_;
  diag::Diagnostics& diagnostics_;
  plan::Program program_;
  std::map<std::string, std::uint32_t> strings_;
  std::map<const Symbol*, std::uint32_t> variables_;
  std::map<const Symbol*, std::uint32_t> aggregations_;
  std::map<const Symbol*, Reg> parameters_;  // of the array inline being expanded
  std::map<const Node*, Reg> placed_;        // elements whose copy is being written to
  std::uint32_t token_state_ = plan::kNone;  // the variable that strtok() keeps its place in
  plan::Clause clause_;
  std::uint64_t scratch_used_ = 0;  // by the statement being lowered
  std::uint32_t line_ = 0;
  bool too_long_ = false;
};

}  // namespace trapline::dlang
