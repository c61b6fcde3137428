// The state of lowering, shared by lower.cc (clauses and actions), lower_expression.cc and
// lower_operator.cc.

#pragma once

#include <map>
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
  void lower_aggregation_action(const Node& node, plan::ActionKind kind);
  std::optional<std::uint32_t> add_field(const Node& value);
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
  Reg lower_bit_field(const Node& node, Reg object);
  Reg lower_address(const Node& lvalue);
  Reg load(Reg address, TypeId type, diag::Range range);
  Reg lower_call(const Node& node);
  Reg lower_assign(const Node& node);
  Reg lower_increment(const Node& node);

  // The place that an assignment writes, its keys already evaluated.
  struct Target {
    std::uint32_t variable = plan::kNone;
    bool is_element = false;
    std::vector<plan::Operand> keys;
    TypeId type = ctypes::kVoid;
  };
  std::optional<Target> lower_target(const Node& node);
  Reg load_target(const Target& target);
  void store_target(const Target& target, Reg value);

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
  plan::Clause clause_;
  std::uint64_t scratch_used_ = 0;  // by the statement being lowered
  std::uint32_t line_ = 0;
  bool too_long_ = false;
};

}  // namespace trapline::dlang
