// The checker's part for assignments: =, op=, ++ and --, and aggregations.

#include "dlang/checker.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;

// A variable or an associative array that has no type yet: what is assigned to it first gives it
// one.
bool is_untyped(const Node& node) {
  return (node.kind == NodeKind::kVariable || node.kind == NodeKind::kElement) &&
         !node.symbol->type;
}

}  // namespace

bool Checker::is_modifiable(std::string_view op, const Node& target) {
  if (!target.lvalue) {
    report("OP_LVAL", target.range, std::string(op) + " needs something that can be changed");
    return false;
  }
  if (!target.writable) {
    report("OP_WRITE", target.range,
           std::string(op) + " cannot change this: only variables of the program can be");
    return false;
  }
  return true;
}

NodePtr Checker::check_assign(const Assign& assign) {
  NodePtr target = check_target(*assign.target);
  if (target != nullptr && target->kind == NodeKind::kAggregate) {  // (@a = count()) = count()
    check_expression(*assign.value);
    return fail("OP_LVAL", assign.target->range, "= needs something that can be changed");
  }
  if (target != nullptr && target->kind == NodeKind::kAggregation && !assign.op) {
    return check_aggregate(assign, std::move(target));
  }
  if (target != nullptr && assign.op && is_untyped(*target)) {
    check_expression(*assign.value);
    target->symbol->poisoned = true;
    return fail("VAR_UNDEF", assign.target->range,
                spelled(*target->symbol) + " has not been declared or assigned before");
  }
  NodePtr value = check_expression(*assign.value);
  if (value == nullptr && target != nullptr && is_untyped(*target)) target->symbol->poisoned = true;
  if (target == nullptr || value == nullptr) return nullptr;
  if (assign.op) return check_compound_assign(assign, std::move(target), std::move(value));
  return check_plain_assign(assign, std::move(target), std::move(value));
}

NodePtr Checker::check_plain_assign(const Assign& assign, NodePtr target, NodePtr value) {
  if (is_untyped(*target)) {
    const TypeKind kind = types_.kind(value->type);
    target->type = value->type;
    if (kind == TypeKind::kVoid || kind == TypeKind::kDynamic) {
      target->symbol->poisoned = true;
      return fail("OP_INCOMPAT", assign.range,
                  "a value of type " + name_of(*value) + " cannot be assigned");
    }
    // A value that cannot be kept leaves the variable without a type.
    if (kind == TypeKind::kArray || kind == TypeKind::kFunction) {
      target->symbol->poisoned = true;
    } else {
      target->symbol->type = value->type;
    }
  }
  const TypeKind kind = types_.kind(target->type);
  if (kind == TypeKind::kArray || kind == TypeKind::kFunction) {
    return fail("OP_ARRFUN", assign.range,
                "= cannot be applied to a value of type " + name_of(*target));
  }
  const bool is_variable =
      target->kind == NodeKind::kVariable || target->kind == NodeKind::kElement;
  const bool deletes =
      is_variable && value->is_zero() &&
      (target->kind == NodeKind::kElement || target->symbol->scope == VariableScope::kSelf);
  const bool unsupported = value->kind == NodeKind::kUnsupported;
  if (!argument_fits(*target, *value) && !deletes && !unsupported) {
    return incompatible("=", *target, *value, assign.range);
  }
  if (!is_modifiable("=", *target)) return nullptr;
  if (is_variable) target->symbol->assigned = true;
  NodePtr node = make(NodeKind::kAssign, target->type, assign.range);
  node->operands.push_back(std::move(target));
  node->operands.push_back(std::move(value));
  return node;
}

NodePtr Checker::check_compound_assign(const Assign& assign, NodePtr target, NodePtr value) {
  const BinaryOperator op = *assign.op;
  const std::string name = std::string(spelling(op)) + "=";
  const bool divides = op == BinaryOperator::kDivide || op == BinaryOperator::kRemainder;
  if (divides && value->is_zero()) return fail("DIV_ZERO", assign.range, "division by zero");
  const bool integers = types_.is_integer(target->type) && types_.is_integer(value->type);
  if (op == BinaryOperator::kAdd || op == BinaryOperator::kSubtract) {
    if (types_.is_string(target->type) || types_.is_string(value->type)) {
      return incompatible(name, *target, *value, assign.range);
    }
    if (!integers) {
      if (!types_.is_pointer(target->type) || types_.is_void_or_function_pointer(target->type)) {
        return fail("OP_VFPTR", assign.range,
                    name + " needs a number, or a pointer to a type of known size");
      }
      if (!types_.is_integer(value->type)) return incompatible(name, *target, *value, assign.range);
    }
  } else if (!integers) {
    const bool multiplies = op == BinaryOperator::kMultiply || op == BinaryOperator::kDivide;
    return fail(multiplies ? "OP_ARITH" : "OP_INT", assign.range,
                name + " needs integers, not " + name_of(*target) + " and " + name_of(*value));
  }
  if (!is_modifiable(name, *target)) return nullptr;
  if (target->symbol != nullptr) target->symbol->assigned = true;
  NodePtr node = make(NodeKind::kAssign, target->type, assign.range);
  node->op = op;
  node->operands.push_back(std::move(target));
  node->operands.push_back(std::move(value));
  return node;
}

NodePtr Checker::check_increment(const Unary& unary) {
  const std::string name(spelling(unary.op));
  NodePtr target = check_target(*unary.operand);
  if (target == nullptr) return nullptr;
  if (is_untyped(*target)) {
    target->symbol->type = *types_.find_typedef("int64_t");
    target->type = *target->symbol->type;
  }
  if (!types_.is_scalar(target->type)) {
    return fail("OP_SCALAR", unary.range,
                name + " needs a number or pointer; this is of type " + name_of(*target));
  }
  if (types_.is_void_or_function_pointer(target->type)) {
    return fail("OP_VFPTR", unary.range, name + " needs a pointer to a type of known size");
  }
  if (!is_modifiable(name, *target)) return nullptr;
  if (target->symbol != nullptr) target->symbol->assigned = true;
  const bool adds =
      unary.op == UnaryOperator::kPreIncrement || unary.op == UnaryOperator::kPostIncrement;
  std::uint64_t step = 1;
  if (types_.is_pointer(target->type)) step = types_.size(types_.pointed_to(target->type));
  NodePtr node = make(NodeKind::kIncrement, target->type, unary.range);
  node->value = adds ? step : 0 - step;
  node->is_postfix =
      unary.op == UnaryOperator::kPostIncrement || unary.op == UnaryOperator::kPostDecrement;
  node->operands.push_back(std::move(target));
  return node;
}

NodePtr Checker::check_aggregate(const Assign& assign, NodePtr target) {
  Symbol& symbol = *target->symbol;
  const NodePtr value = check_expression(*assign.value);
  if (value == nullptr) return nullptr;
  if (value->kind != NodeKind::kCall || value->function->kind != FunctionKind::kAggregating) {
    return fail("AGG_FUNC", assign.value->range,
                spelled(symbol) +
                    " must be assigned an aggregating function: count(), sum(), quantize() ...");
  }
  if (symbol.aggregating != nullptr && symbol.aggregating != value->function) {
    report("AGG_REDEF", assign.range,
           spelled(symbol) + " = " + std::string(value->function->name) + "() redefines what was " +
               std::string(symbol.aggregating->name) + "()");
    return nullptr;
  }
  if (!check_keys(symbol, target->operands, target->range)) return nullptr;
  symbol.aggregating = value->function;
  symbol.assigned = true;
  NodePtr node = make(NodeKind::kAggregate, ctypes::kDynamic, assign.range);
  node->symbol = &symbol;
  node->function = value->function;
  node->operands = std::move(target->operands);
  node->arguments = value->operands;
  return node;
}

}  // namespace trapline::dlang
