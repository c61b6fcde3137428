// See lower.h. Here: clauses, their statements and actions.

#include "dlang/lower.h"

#include <algorithm>

#include "dlang/lowerer.h"
#include "plan/layout.h"

namespace trapline::dlang {

using plan::Op;

plan::Program lower(const LowerRequest& request, diag::Diagnostics& diagnostics) {
  return Lowerer(request, diagnostics).run();
}

Lowerer::Lowerer(const LowerRequest& request, diag::Diagnostics& diagnostics)
    : request_(request), types_(*request.types), diagnostics_(diagnostics) {
  program_.strsize = request.strsize;
  program_.scratchsize = request.scratchsize;
}

plan::Program Lowerer::run() {
  for (const CheckedClause& checked : *request_.clauses) lower_clause(checked);
  return std::move(program_);
}

std::uint32_t Lowerer::line_of(diag::Range range) const {
  return range.known() ? request_.sources->position(range.start()).line : 0;
}

bool Lowerer::has_record(const CheckedClause& checked) {
  return checked.statements.empty() ||
         std::ranges::any_of(checked.statements, [](const NodePtr& node) {
           return node->kind == NodeKind::kCall && node->function->kind == FunctionKind::kAction;
         });
}

void Lowerer::lower_clause(const CheckedClause& checked) {
  clause_ = {};
  too_long_ = false;
  clause_.line = line_of(checked.clause->range);
  clause_.source = checked.clause->range.known() ? checked.clause->range.source : 0;
  for (const ProbeDescription& probe : checked.clause->probes) {
    plan::ProbeDescription description;
    description.provider = probe.provider;
    description.module = probe.module;
    description.function = probe.function;
    description.name = probe.name;
    description.text = probe.text;
    description.line = line_of(probe.range);
    description.id = probe.id.value_or(0);
    description.quoted = probe.quoted;
    clause_.probes.push_back(std::move(description));
  }
  line_ = clause_.line;
  scratch_used_ = 0;
  std::optional<std::size_t> refused;
  if (checked.predicate != nullptr) {
    line_ = line_of(checked.predicate->range);
    const Reg condition = lower(*checked.predicate);
    if (condition != plan::kNoReg) refused = emit_jump(Op::kJumpIfZero, condition);
  }
  clause_.has_record = has_record(checked);
  if (clause_.has_record) emit(Op::kReserve);
  for (const NodePtr& statement : checked.statements) {
    line_ = line_of(statement->range);
    scratch_used_ = 0;  // nothing of a statement is needed by the next
    lower_statement(*statement);
  }
  line_ = clause_.line;
  if (refused) land(*refused);
  emit(Op::kEnd);
  if (too_long_) {
    diagnostics_.error(
        "UNKNOWN", checked.clause->range,
        "the clause makes more than " + std::to_string(kMaxClauseCode) + " instructions");
  }
  program_.clauses.push_back(std::move(clause_));
}

void Lowerer::lower_statement(const Node& statement) {
  if (statement.kind == NodeKind::kAggregate) {
    lower_aggregate(statement);
  } else if (statement.kind == NodeKind::kCall &&
             statement.function->kind == FunctionKind::kAction) {
    lower_action(statement);
  } else {
    lower_discarding(statement);
  }
}

// ------------------------------------------------------------------------------------ aggregations

namespace {

plan::AggregationKind aggregation_kind(FunctionId id) {
  switch (id) {
    case FunctionId::kSum:
      return plan::AggregationKind::kSum;
    case FunctionId::kMin:
      return plan::AggregationKind::kMin;
    case FunctionId::kMax:
      return plan::AggregationKind::kMax;
    case FunctionId::kAvg:
      return plan::AggregationKind::kAvg;
    case FunctionId::kStddev:
      return plan::AggregationKind::kStddev;
    case FunctionId::kQuantize:
      return plan::AggregationKind::kQuantize;
    case FunctionId::kLquantize:
      return plan::AggregationKind::kLquantize;
    case FunctionId::kLlquantize:
      return plan::AggregationKind::kLlquantize;
    default:
      return plan::AggregationKind::kCount;
  }
}

// Which argument of an aggregating function is its weight.
std::size_t weight_position(FunctionId id) {
  switch (id) {
    case FunctionId::kQuantize:
      return 1;
    case FunctionId::kLquantize:
      return 4;
    case FunctionId::kLlquantize:
      return 5;
    default:
      return ~std::size_t{0};
  }
}

}  // namespace

std::uint32_t Lowerer::aggregation_index(const Symbol& symbol) {
  const auto [known, added] =
      aggregations_.try_emplace(&symbol, static_cast<std::uint32_t>(program_.aggregations.size()));
  if (!added) return known->second;
  plan::Aggregation aggregation;
  aggregation.name = symbol.name == "_" ? "" : symbol.name;
  aggregation.kind = aggregation_kind(symbol.aggregating->id);
  for (TypeId key : *symbol.keys) {
    if (const auto type = value_type(key)) {
      aggregation.keys.push_back(*type);
    } else {
      unsupported(symbol.first, "a key of type " + types_.name(key));
    }
  }
  if (symbol.quantizer) std::ranges::copy(*symbol.quantizer, aggregation.parameters);
  plan::choose_storage(aggregation);
  program_.aggregations.push_back(std::move(aggregation));
  return known->second;
}

void Lowerer::lower_aggregate(const Node& node) {
  const Symbol& symbol = *node.symbol;
  auto keys = lower_keys(symbol, node.operands);
  if (!keys) return;
  const std::uint32_t index = aggregation_index(symbol);
  Reg value = plan::kNoReg;
  if (!node.arguments.empty()) {
    value = lower(*node.arguments.front());
    if (value == plan::kNoReg) return;
  }
  Reg weight = plan::kNoReg;
  const std::size_t position = weight_position(node.function->id);
  if (position < node.arguments.size()) {
    weight = lower(*node.arguments[position]);
    if (weight == plan::kNoReg) return;
  }
  const plan::Aggregation& aggregation = program_.aggregations[index];
  const std::uint64_t area = plan::key_area(aggregation);
  plan::Instruction& update = emit(Op::kAggregate);
  update.variable = index;
  update.a = value;
  update.b = weight;
  update.operands = std::move(*keys);
  if (area != 0) update.scratch = allocate_scratch(area);
}

// ----------------------------------------------------------------------------------------- actions

std::uint32_t Lowerer::add_field(Reg value, plan::ValueType type) {
  const auto index = static_cast<std::uint32_t>(clause_.fields.size());
  clause_.fields.push_back({0, type});
  plan::Instruction& store = emit(Op::kField);
  store.a = value;
  store.immediate = index;
  return index;
}

// A string, also one of a char array, or a number.
std::optional<std::uint32_t> Lowerer::add_field(const Node& value) {
  const bool is_char_array =
      types_.kind(value.type) == ctypes::TypeKind::kArray && types_.is_string_like(value.type);
  const bool is_text = types_.is_string(value.type) || is_char_array;
  const auto type = value_type(is_text ? ctypes::kString : value.type);
  if (!type) {
    unsupported(value.range, "printing a value of type " + types_.name(value.type));
    return std::nullopt;
  }
  const Reg reg = is_text ? lower_string(value) : lower(value);
  if (reg == plan::kNoReg) return std::nullopt;
  return add_field(reg, *type);
}

void Lowerer::lower_action(const Node& node) {
  switch (node.function->id) {
    case FunctionId::kPrintf:
      lower_printf(node);
      return;
    case FunctionId::kPrinta:
      lower_printa(node);
      return;
    case FunctionId::kClear:
      lower_aggregation_action(node, plan::ActionKind::kClear);
      return;
    case FunctionId::kDenormalize:
      lower_aggregation_action(node, plan::ActionKind::kDenormalize);
      return;
    case FunctionId::kNormalize:
      lower_aggregation_action(node, plan::ActionKind::kNormalize);
      return;
    case FunctionId::kTrunc:
      lower_aggregation_action(node, plan::ActionKind::kTruncate);
      return;
    case FunctionId::kTrace: {
      const Node& value = *node.operands.front();
      if (types_.is_by_reference(value.type)) {
        unsupported(value.range, "trace() of a value of type " + types_.name(value.type));
        return;
      }
      const auto field = add_field(value);
      if (!field) return;
      plan::Action action;
      action.kind = plan::ActionKind::kTrace;
      action.fields.push_back(*field);
      clause_.actions.push_back(std::move(action));
      return;
    }
    case FunctionId::kExit: {
      const Reg status = lower(*node.operands.front());
      if (status == plan::kNoReg) return;
      plan::Action action;
      action.kind = plan::ActionKind::kExit;
      action.fields.push_back(add_field(status, *value_type(ctypes::kInt)));
      clause_.actions.push_back(std::move(action));
      emit(Op::kExit).a = status;
      return;
    }
    default:
      unsupported(node.range, std::string(node.function->name) + "()");
  }
}

namespace {

plan::FormatItem format_item(const FormatPart& part) {
  plan::FormatItem item;
  item.text = part.text;
  item.conversion = part.conversion;
  item.length = part.length;
  item.flags = part.flags;
  item.width = part.dynamic_width ? -2 : part.width;
  item.precision = part.dynamic_precision ? -2 : part.precision;
  item.is_aggregation = part.is_aggregation;
  return item;
}

}  // namespace

void Lowerer::lower_printf(const Node& node) {
  plan::Action action;
  action.kind = plan::ActionKind::kPrintf;
  action.has_format = true;
  std::size_t next = 1;
  const auto take = [&]() -> std::optional<std::uint32_t> {
    const auto field = add_field(*node.operands[next++]);
    if (field) action.fields.push_back(*field);
    return field;
  };
  for (const FormatPart& part : *node.format) {
    plan::FormatItem item = format_item(part);
    if (part.dynamic_width) item.width_field = take().value_or(plan::kNone);
    if (part.dynamic_precision) item.precision_field = take().value_or(plan::kNone);
    if (part.conversion != 0) item.value = take().value_or(plan::kNone);
    action.format.push_back(std::move(item));
  }
  clause_.actions.push_back(std::move(action));
}

void Lowerer::lower_printa(const Node& node) {
  plan::Action action;
  action.kind = plan::ActionKind::kPrinta;
  action.has_format = node.format != nullptr;
  for (const NodePtr& operand : node.operands) {
    if (operand->kind == NodeKind::kAggregation)
      action.aggregations.push_back(aggregation_index(*operand->symbol));
  }
  if (action.has_format) {
    std::uint32_t key = 0;
    std::uint32_t value = 0;
    const auto last = static_cast<std::uint32_t>(action.aggregations.size() - 1);
    for (const FormatPart& part : *node.format) {
      plan::FormatItem item = format_item(part);
      if (part.dynamic_width) item.width_field = key++;
      if (part.dynamic_precision) item.precision_field = key++;
      if (part.is_aggregation) {
        item.value = std::min(value++, last);
      } else if (part.conversion != 0) {
        item.value = key++;
      }
      action.format.push_back(std::move(item));
    }
  }
  clause_.actions.push_back(std::move(action));
}

void Lowerer::lower_aggregation_action(const Node& node, plan::ActionKind kind) {
  plan::Action action;
  action.kind = kind;
  action.aggregations.push_back(aggregation_index(*node.operands.front()->symbol));
  if (node.operands.size() > 1) {
    const bool is_divisor = kind == plan::ActionKind::kNormalize;
    const Reg value = lower(*node.operands[1]);
    if (value == plan::kNoReg) return;
    action.fields.push_back(
        add_field(value, *value_type(is_divisor ? ctypes::kUnsignedLong : ctypes::kLong)));
  }
  clause_.actions.push_back(std::move(action));
}

}  // namespace trapline::dlang
