// The checker's part for statements: which actions may follow which, what they take, how
// aggregations quantize, and whether formats fit their arguments. It sees statements whose names
// and types are right already.

#include <algorithm>
#include <cmath>
#include <limits>

#include "dlang/checker.h"
#include "plan/layout.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeKind;

constexpr std::uint64_t kMaxUnsigned16 = std::numeric_limits<std::uint16_t>::max();
bool is_destructive(FunctionId id) {
  return id == FunctionId::kDestructive || id == FunctionId::kRaise || id == FunctionId::kSystem ||
         id == FunctionId::kFreopen || id == FunctionId::kStop || id == FunctionId::kChill;
}

std::string argument_name(const Node& call, std::size_t index) {
  return "argument #" + std::to_string(index) + " of " + std::string(call.function->name) + "()";
}

// base^exponent, saturating.
std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t value = 1;
  for (; exponent != 0; --exponent) {
    if (__builtin_mul_overflow(value, base, &value))
      return std::numeric_limits<std::uint64_t>::max();
  }
  return value;
}

}  // namespace

bool Checker::verify_statement(const NodePtr& statement) {
  Node& node = *statement;
  switch (node.kind) {
    case NodeKind::kAggregate:
      return verify_order(node) && verify_aggregate(node);
    case NodeKind::kAggregation:
      report("AGG_NULL", node.range, "this has no effect: @" + node.symbol->name);
      return false;
    case NodeKind::kCall:
      if (node.function->kind == FunctionKind::kAction)
        return verify_order(node) && verify_action(node);
      break;
    default:
      break;
  }
  return verify_expression(node, Place::kExpression);
}

bool Checker::verify_expression(const Node& node, Place place) {
  if (node.kind == NodeKind::kCall && node.function->kind != FunctionKind::kSubroutine) {
    const TypeKind kind = types_.kind(node.type);
    if (place != Place::kKey || (kind != TypeKind::kStack && kind != TypeKind::kSymbol)) {
      report("CG_EXPR", node.range,
             std::string(node.function->name) + "() cannot be used within an expression");
      return false;
    }
    if (kind == TypeKind::kStack && !verify_stack(node)) return false;
  }
  if (node.kind == NodeKind::kCall && !verify_subroutine(node)) return false;
  if (node.kind == NodeKind::kAggregation || node.kind == NodeKind::kAggregate) {
    report("UNKNOWN", node.range, "@" + node.symbol->name + " cannot be used within an expression");
    return false;
  }
  bool good = true;
  const Place inner = node.kind == NodeKind::kElement ? Place::kKey : Place::kExpression;
  for (const NodePtr& operand : node.operands) good = verify_expression(*operand, inner) && good;
  return good;
}

// What the prototypes of subroutines do not say.
bool Checker::verify_subroutine(const Node& node) {
  const std::string_view name = node.function->name;
  if (name == "alloca" || name == "copyin") {
    const Node& size = *node.operands.back();
    if (size.kind == NodeKind::kInteger && size.value > settings_.scratchsize) {
      report("ALLOCA_SIZE", size.range,
             std::string(name) + "() of " + std::to_string(size.value) +
                 " bytes exceeds the scratch space of " + std::to_string(settings_.scratchsize),
             "#pragma D option scratchsize=" + std::to_string(size.value));
      return false;
    }
  }
  // Strings are values: there is no place behind them to write to.
  const std::size_t destination = name == "bcopy" ? 1 : name == "copyinto" ? 2 : 0;
  if (destination != 0 && types_.is_string(node.operands[destination]->type)) {
    report("PROTO_ARG", node.operands[destination]->range,
           argument_name(node, destination + 1) +
               " must be memory of the program's own, as alloca() gives it; this is of type " +
               name_of(*node.operands[destination]));
    return false;
  }
  if (name == "inet_ntoa6" && node.operands.size() > 1 &&
      node.operands[1]->kind != NodeKind::kInteger) {
    report("PROTO_ARG", node.operands[1]->range,
           argument_name(node, 2) + " must be an integer constant");
    return false;
  }
  if ((name == "copyout" || name == "copyoutstr") && state_.speculates) {
    report("ACT_SPEC", node.range, "a destructive action cannot follow speculate()");
    return false;
  }
  return true;
}

// ---------------------------------------------------------------------------- what may follow what

bool Checker::verify_order(const Node& node) {
  if (state_.refused) return false;
  const auto refuse = [&](std::string_view tag, std::string_view text) {
    report(tag, node.range, std::string(text));
    state_.refused = true;
    return false;
  };
  if (node.kind == NodeKind::kAggregate) {
    if (state_.commits) return refuse("AGG_COMM", "an aggregation cannot follow commit()");
    if (state_.speculates) return refuse("AGG_SPEC", "an aggregation cannot follow speculate()");
    state_.aggregates = true;
    return true;
  }
  switch (node.function->id) {
    case FunctionId::kCommit:
      if (state_.records || state_.aggregates)
        return refuse("COMM_DREC", "commit() cannot follow what records data");
      state_.commits = true;
      return true;
    case FunctionId::kDiscard:
      return true;
    case FunctionId::kSpeculate:
      if (state_.speculates) return refuse("SPEC_SPEC", "speculate() cannot follow speculate()");
      if (state_.commits) return refuse("SPEC_COMM", "speculate() cannot follow commit()");
      if (state_.records || state_.aggregates)
        return refuse("SPEC_DREC", "speculate() cannot follow what records data");
      state_.speculates = true;
      return true;
    default:
      break;
  }
  if (state_.speculates && is_destructive(node.function->id)) {
    return refuse("ACT_SPEC", "a destructive action cannot follow speculate()");
  }
  if (state_.speculates && node.function->id == FunctionId::kExit) {
    return refuse("EXIT_SPEC", "exit() cannot follow speculate()");
  }
  if (state_.commits) return refuse("DREC_COMM", "what records data cannot follow commit()");
  state_.records = true;
  return true;
}

// ------------------------------------------------------------------------------------ aggregations

bool Checker::verify_aggregate(Node& node) {
  bool good = true;
  for (const NodePtr& key : node.operands) good = verify_expression(*key, Place::kKey) && good;
  for (const NodePtr& argument : node.arguments)
    good = verify_expression(*argument, Place::kExpression) && good;
  if (!good) return false;
  if (!node.arguments.empty() && !types_.is_scalar(node.arguments.front()->type)) {
    report("AGG_SCALAR", node.arguments.front()->range,
           argument_name(node, 1) + " must be a number or pointer; this is of type " +
               name_of(*node.arguments.front()));
    return false;
  }
  switch (node.function->id) {
    case FunctionId::kQuantize:
      return verify_weight(node, 1, 2);
    case FunctionId::kLquantize:
      return verify_lquantize(node);
    case FunctionId::kLlquantize:
      return verify_llquantize(node);
    default:
      return true;
  }
}

// The optional argument after the first `last`; `limit` is how many there may be.
bool Checker::verify_weight(const Node& node, std::size_t last, std::size_t limit) {
  if (node.arguments.size() <= last) return true;
  const Node& weight = *node.arguments[last];
  if (!types_.is_scalar(weight.type)) {
    report("PROTO_ARG", weight.range,
           argument_name(node, last + 1) + " must be a number; this is of type " + name_of(weight));
    return false;
  }
  if (node.arguments.size() > limit) {
    report("PROTO_LEN", node.range,
           std::string(node.function->name) + "() takes at most " + std::to_string(limit) +
               " arguments, not " + std::to_string(node.arguments.size()));
    return false;
  }
  return true;
}

// An aggregation keeps the parameters of its first use.
bool Checker::verify_quantizer(Node& node, std::span<const std::int64_t> values) {
  Symbol& symbol = *node.symbol;
  if (!symbol.quantizer) {
    symbol.quantizer.emplace(values.begin(), values.end());
    return true;
  }
  const std::vector<std::int64_t>& old = *symbol.quantizer;
  const auto differs = [&](std::string_view tag, std::string_view what, std::int64_t was,
                           std::int64_t is) {
    report(tag, node.range,
           std::string(node.function->name) + "(): the " + std::string(what) + " of @" +
               symbol.name + " was " + std::to_string(was) + " before, not " + std::to_string(is));
    return false;
  };
  if (node.function->id == FunctionId::kLquantize) {  // base, step, levels
    if (old[0] != values[0]) return differs("LQUANT_MATCHBASE", "base", old[0], values[0]);
    if (old[1] * old[2] != values[1] * values[2]) {
      return differs("LQUANT_MATCHLIM", "limit", old[0] + old[1] * old[2],
                     values[0] + values[1] * values[2]);
    }
    if (old[1] != values[1]) return differs("LQUANT_MATCHSTEP", "step", old[1], values[1]);
    return true;
  }
  if (old[0] != values[0]) return differs("LLQUANT_MATCHFACTOR", "factor", old[0], values[0]);
  if (old[1] != values[1]) return differs("LLQUANT_MATCHLMAG", "low magnitude", old[1], values[1]);
  if (old[2] != values[2]) return differs("LLQUANT_MATCHHMAG", "high magnitude", old[2], values[2]);
  if (old[3] != values[3])
    return differs("LLQUANT_MATCHSTEPS", "number of steps", old[3], values[3]);
  return true;
}

bool Checker::verify_lquantize(Node& node) {
  const auto refuse = [&](std::size_t argument, std::string_view tag, std::string text) {
    report(tag, node.arguments[argument]->range, std::move(text));
    return false;
  };
  const auto constant = [&](std::size_t i) {
    return node.arguments[i]->kind == NodeKind::kInteger;
  };
  const auto value = [&](std::size_t i) {
    return static_cast<std::int64_t>(node.arguments[i]->value);
  };
  const auto fits = [&](std::size_t i) { return value(i) == static_cast<std::int32_t>(value(i)); };
  if (!constant(1))
    return refuse(1, "LQUANT_BASETYPE", "the base of lquantize() must be an integer constant");
  if (!fits(1)) return refuse(1, "LQUANT_BASEVAL", "the base of lquantize() must fit 32 bits");
  if (!constant(2))
    return refuse(2, "LQUANT_LIMTYPE", "the limit of lquantize() must be an integer constant");
  if (!fits(2)) return refuse(2, "LQUANT_LIMVAL", "the limit of lquantize() must fit 32 bits");
  if (value(2) <= value(1))
    return refuse(2, "LQUANT_MISMATCH", "lquantize() needs a limit above its base");
  std::int64_t step = 1;
  if (node.arguments.size() > 3) {
    const bool is_signed = types_.is_signed(node.arguments[3]->type);
    if (!constant(3) || value(3) == 0 || (is_signed && value(3) < 0)) {
      return refuse(3, "LQUANT_STEPTYPE",
                    "the step of lquantize() must be a positive integer constant");
    }
    if (node.arguments[3]->value > kMaxUnsigned16) {
      return refuse(3, "LQUANT_STEPVAL", "the step of lquantize() must fit 16 bits");
    }
    step = value(3);
  }
  const std::int64_t levels = (value(2) - value(1)) / step;
  const std::size_t blamed = node.arguments.size() > 3 ? 3 : 2;
  if (levels == 0)
    return refuse(blamed, "LQUANT_STEPLARGE", "the step of lquantize() leaves no level");
  if (levels > static_cast<std::int64_t>(kMaxUnsigned16)) {
    return refuse(blamed, "LQUANT_STEPSMALL", "lquantize() would have more than 65535 levels");
  }
  const std::int64_t values[] = {value(1), step, levels, 0};
  return verify_quantizer(node, values) && verify_weight(node, 4, 5);
}

bool Checker::verify_llquantize(Node& node) {
  const auto refuse = [&](std::size_t argument, std::string_view tag, std::string text) {
    report(tag, node.arguments[argument]->range, std::move(text));
    return false;
  };
  const auto constant = [&](std::size_t i) {
    return node.arguments[i]->kind == NodeKind::kInteger;
  };
  const auto value = [&](std::size_t i) { return node.arguments[i]->value; };
  if (!constant(1))
    return refuse(1, "LLQUANT_FACTORTYPE",
                  "the factor of llquantize() must be an integer constant");
  const std::uint64_t factor = value(1);
  if (factor < 2 || factor > kMaxUnsigned16) {
    return refuse(1, "LLQUANT_FACTORVAL", "the factor of llquantize() must be from 2 to 65535");
  }
  if (!constant(2))
    return refuse(2, "LLQUANT_LMAGTYPE",
                  "the low magnitude of llquantize() must be an integer constant");
  const std::uint64_t low = value(2);
  if (low > kMaxUnsigned16)
    return refuse(2, "LLQUANT_LMAGVAL", "the low magnitude of llquantize() must fit 16 bits");
  if (!constant(3))
    return refuse(3, "LLQUANT_HMAGTYPE",
                  "the high magnitude of llquantize() must be an integer constant");
  const std::uint64_t high = value(3);
  if (high > kMaxUnsigned16)
    return refuse(3, "LLQUANT_HMAGVAL", "the high magnitude of llquantize() must fit 16 bits");
  if (high < low)
    return refuse(3, "LLQUANT_HMAGVAL",
                  "llquantize() needs a high magnitude that is not below the low one");
  if (std::pow(static_cast<long double>(factor), static_cast<long double>(high + 1)) >
      static_cast<long double>(std::numeric_limits<std::uint64_t>::max())) {
    return refuse(3, "LLQUANT_HMAGVAL", "the high magnitude of llquantize() does not fit 64 bits");
  }
  if (!constant(4) || value(4) == 0 ||
      (types_.is_signed(node.arguments[4]->type) && static_cast<std::int64_t>(value(4)) < 0)) {
    return refuse(4, "LLQUANT_STEPTYPE",
                  "the steps of llquantize() must be a positive integer constant");
  }
  const std::uint64_t steps = value(4);
  if (steps > kMaxUnsigned16)
    return refuse(4, "LLQUANT_STEPVAL", "the steps of llquantize() must fit 16 bits");
  if (steps < factor && factor % steps != 0) {
    return refuse(4, "LLQUANT_STEPVAL",
                  "the steps of llquantize() must divide its factor, or be a multiple of it");
  }
  if (steps > factor) {
    if (steps % factor != 0) {
      return refuse(4, "LLQUANT_STEPVAL",
                    "the steps of llquantize() must divide its factor, or be a multiple of it");
    }
    const std::uint64_t whole = low == 0 ? factor * factor : power(factor, low + 1);
    if (whole % steps != 0) {
      return refuse(4, "LLQUANT_STEPVAL",
                    "the steps of llquantize() must divide " + std::to_string(whole) + ", the " +
                        (low == 0 ? "square of its factor" : "end of its lowest magnitude"));
    }
  }
  const std::int64_t values[] = {static_cast<std::int64_t>(factor), static_cast<std::int64_t>(low),
                                 static_cast<std::int64_t>(high), static_cast<std::int64_t>(steps)};
  return verify_quantizer(node, values) && verify_weight(node, 5, 6);
}

// ----------------------------------------------------------------------------------------- actions

bool Checker::verify_action(Node& node) {
  bool good = true;
  for (const NodePtr& argument : node.operands) {
    const bool is_aggregation =
        argument->kind == NodeKind::kAggregation || argument->kind == NodeKind::kAggregate;
    if (!is_aggregation && types_.kind(argument->type) != TypeKind::kVoid &&
        types_.kind(argument->type) != TypeKind::kDynamic) {
      good = verify_expression(*argument, Place::kKey) && good;
    }
  }
  if (!good) return false;
  switch (node.function->id) {
    case FunctionId::kPrintf:
    case FunctionId::kSystem:
    case FunctionId::kFreopen:
      return verify_printf(node);
    case FunctionId::kPrinta:
      return verify_printa(node);
    case FunctionId::kTrace:
      return verify_trace(node);
    case FunctionId::kTracemem:
      return verify_tracemem(node);
    case FunctionId::kStack:
    case FunctionId::kUstack:
      return verify_stack(node);
    case FunctionId::kClear:
      return verify_aggregation_argument(node, "CLEAR");
    case FunctionId::kTrunc:
      return verify_aggregation_argument(node, "TRUNC");
    case FunctionId::kDenormalize:
      return verify_aggregation_argument(node, "NORMALIZE");
    case FunctionId::kNormalize:
      if (!verify_aggregation_argument(node, "NORMALIZE")) return false;
      if (types_.is_scalar(node.operands[1]->type)) return true;
      report("NORMALIZE_SCALAR", node.operands[1]->range,
             argument_name(node, 2) + " must be a number");
      return false;
    default:
      return true;
  }
}

bool Checker::verify_aggregation_argument(const Node& node, std::string_view tag) {
  const Node& argument = *node.operands.front();
  if (argument.kind != NodeKind::kAggregation) {
    report(
        std::string(tag) + "_AGGARG", argument.range,
        argument_name(node, 1) + " must be an aggregation; this is of type " + name_of(argument));
    return false;
  }
  if (argument.symbol->aggregating == nullptr) {
    report(std::string(tag) + "_AGGBAD", argument.range,
           "there is no aggregation @" + argument.symbol->name + " before this");
    return false;
  }
  return true;
}

bool Checker::verify_trace(const Node& node) {
  const Node& argument = *node.operands.front();
  switch (types_.kind(argument.type)) {
    case TypeKind::kVoid:
      report("TRACE_VOID", argument.range, "trace() cannot be applied to a void expression");
      return false;
    case TypeKind::kDynamic:
      report("TRACE_DYN", argument.range,
             "trace() cannot be applied to an aggregation or an associative array",
             argument.kind == NodeKind::kAggregation
                 ? "printa(@" + argument.symbol->name + ") prints it"
                 : "");
      return false;
    case TypeKind::kFunction:
    case TypeKind::kStack:
    case TypeKind::kSymbol:
      report("PROTO_ARG", argument.range,
             "argument #1 of trace() must be a number, string or structure; this is of type " +
                 name_of(argument));
      return false;
    default:
      return true;
  }
}

bool Checker::verify_tracemem(const Node& node) {
  const Node& address = *node.operands[0];
  const Node& size = *node.operands[1];
  if (!types_.is_integer(address.type) && !types_.is_pointer(address.type)) {
    report("TRACEMEM_ADDR", address.range,
           "argument #1 of tracemem() must be an address; this is of type " + name_of(address));
    return false;
  }
  if (size.kind != NodeKind::kInteger || size.value == 0 ||
      (types_.is_signed(size.type) && static_cast<std::int64_t>(size.value) < 0)) {
    report("TRACEMEM_SIZE", size.range,
           "argument #2 of tracemem() must be a positive integer constant");
    return false;
  }
  return true;
}

bool Checker::verify_stack(const Node& node) {
  const bool user = node.function->id == FunctionId::kUstack;
  if (!user && node.function->id != FunctionId::kStack) return true;
  if (!node.operands.empty()) {
    const Node& frames = *node.operands[0];
    if (frames.kind != NodeKind::kInteger || frames.value == 0 ||
        (types_.is_signed(frames.type) && static_cast<std::int64_t>(frames.value) < 0)) {
      report(user ? "USTACK_FRAMES" : "STACK_SIZE", frames.range,
             argument_name(node, 1) + " must be a positive integer constant");
      return false;
    }
  }
  if (user && node.operands.size() > 1) {
    const Node& size = *node.operands[1];
    if (size.kind != NodeKind::kInteger ||
        (types_.is_signed(size.type) && static_cast<std::int64_t>(size.value) < 0)) {
      report("USTACK_STRSIZE", size.range,
             argument_name(node, 2) + " must be an integer constant that is not negative");
      return false;
    }
  }
  return true;
}

}  // namespace trapline::dlang
