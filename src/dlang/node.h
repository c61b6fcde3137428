// The typed tree: what a D program means, once names are resolved and types are known.
//
// The checker makes it from the syntax tree, lowering turns it into plan instructions. Indexing a C
// array, member access and enumerators are already reduced to addresses and constants here;
// constant integers are folded. A missing node (nullptr) stands for an expression whose mistake has
// been reported.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctypes/type.h"
#include "diag/source.h"
#include "dlang/ast.h"
#include "dlang/format.h"
#include "dlang/names.h"

namespace trapline::dlang {

struct Symbol;

enum class NodeKind : std::uint8_t {
  kInteger,      // value
  kString,       // text
  kVariable,     // symbol: a scalar
  kElement,      // symbol[operands]: of an associative array
  kAggregation,  // symbol[operands], named but not assigned
  kAggregate,    // symbol[operands] = function(arguments)
  kBuiltin,      // builtin
  kInline,       // symbol's value; operands are an array inline's arguments
  kParameter,    // symbol: an array inline's parameter
  kMinus,
  kComplement,
  kNot,          // of operands[0]
  kBinary,       // op: arithmetic, comparison, logic or comma, of two operands
  kConditional,  // three operands
  kCast,         // operands[0] to type
  kStringof,     // operands[0], a pointer or a string
  kDereference,  // what operands[0], a pointer, points to; of types held by reference: its address
  kMember,       // the member at bit_offset of the object that operands[0] is (by reference)
  kAddress,      // of operands[0]
  kAssign,       // operands[0] = operands[1]; with `op`: op=
  kIncrement,  // operands[0] += value (the step, scaled, as a signed number); is_postfix: the value
               // before
  kCall,       // function(operands): a subroutine, or an action
  kXlate,      // operands[0], translated to type `translated` by translator number `value`
  kUnsupported,  // D that is right and cannot be run yet; text says what
};

struct Node;
using NodePtr = std::shared_ptr<Node>;

struct Node {
  NodeKind kind = NodeKind::kInteger;
  ctypes::TypeId type = ctypes::kVoid;
  diag::Range range;
  bool lvalue = false;
  bool writable = false;
  bool is_postfix = false;
  std::uint64_t value = 0;
  ctypes::TypeId translated = ctypes::kVoid;  // kXlate
  std::uint64_t bit_offset = 0;
  std::uint32_t bit_width = 0;  // kMember: 0: not a bit-field
  std::optional<BinaryOperator> op;
  std::string text;
  Symbol* symbol = nullptr;
  const FunctionInfo* function = nullptr;
  const BuiltinVariable* builtin = nullptr;
  std::vector<NodePtr> operands;
  std::vector<NodePtr> arguments;                         // kAggregate: of the function
  std::shared_ptr<const std::vector<FormatPart>> format;  // printf, printa with a format: checked

  bool is_zero() const { return kind == NodeKind::kInteger && value == 0; }
  bool is_action() const {
    return kind == NodeKind::kCall && function->kind == FunctionKind::kAction;
  }
};

enum class SymbolKind : std::uint8_t {
  kScalar,
  kArray,
  kInline,
  kArrayInline,
  kParameter,
  kEnumerator,
  kAggregation
};

// A name of the program: a variable, an inline, an enumerator, an aggregation.
struct Symbol {
  SymbolKind kind = SymbolKind::kScalar;
  VariableScope scope = VariableScope::kGlobal;
  std::string name;
  diag::Range first;  // where it was declared or first assigned
  std::optional<ctypes::TypeId>
      type;  // of the variable, an array's elements, the inline; none: not known yet
  std::optional<std::vector<ctypes::TypeId>>
      keys;  // arrays, aggregations: set by the declaration or the first use
  bool declared = false;
  bool assigned = false;
  bool referenced = false;
  bool poisoned = false;  // a mistake left it without a type; no more is reported about it
  NodePtr value;          // inlines, enumerators
  std::vector<Symbol*> parameters;  // array inlines
  const FunctionInfo* aggregating = nullptr;
  std::optional<std::vector<std::int64_t>>
      quantizer;  // lquantize, llquantize: as plan::Aggregation::parameters

  bool is_variable() const { return kind == SymbolKind::kScalar || kind == SymbolKind::kArray; }
  // DTrace's "unreferenced": named for the first time, so that an assignment gives it its type.
  bool is_fresh() const { return !declared && !assigned && !referenced; }
};

// <, ==, ... ; &&, ||, ^^; << and >>.
constexpr bool is_comparison(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kLess:
    case BinaryOperator::kLessEqual:
    case BinaryOperator::kGreater:
    case BinaryOperator::kGreaterEqual:
    case BinaryOperator::kEqual:
    case BinaryOperator::kNotEqual:
      return true;
    default:
      return false;
  }
}
constexpr bool is_logical(BinaryOperator op) {
  return op == BinaryOperator::kLogicalAnd || op == BinaryOperator::kLogicalOr ||
         op == BinaryOperator::kLogicalXor;
}
constexpr bool is_shift(BinaryOperator op) {
  return op == BinaryOperator::kShiftLeft || op == BinaryOperator::kShiftRight;
}

// What kind of thing a symbol is, for messages.
std::string_view kind_name(const Symbol& symbol);

}  // namespace trapline::dlang
