// See lower.h. Here: clauses, their statements and actions.

#include "dlang/lower.h"

#include <algorithm>

#include "dlang/lowerer.h"
#include "plan/layout.h"

namespace trapline::dlang {

using plan::Op;

namespace {

constexpr std::uint64_t kMaxRecorded = 32 * 1024;  // bytes of one trace(), tracemem() or print()

}  // namespace

plan::Program lower(const LowerRequest& request, diag::Diagnostics& diagnostics) {
  return Lowerer(request, diagnostics).run();
}

Lowerer::Lowerer(const LowerRequest& request, diag::Diagnostics& diagnostics)
    : request_(request), types_(*request.types), diagnostics_(diagnostics) {
  program_.strsize = request.strsize;
  program_.scratchsize = request.scratchsize;
  program_.processors = request.processors;
}

plan::Program Lowerer::run() {
  for (const CheckedClause& checked : *request_.clauses) lower_clause(checked);
  program_.types = std::make_shared<const ctypes::TypeTable>(types_);
  return std::move(program_);
}

std::uint32_t Lowerer::line_of(diag::Range range) const {
  return range.known() ? request_.sources->position(range.start()).line : 0;
}

namespace {

// Actions that the body does by itself: they leave nothing for the tracer to do.
bool is_done_in_body(FunctionId id) {
  return id == FunctionId::kRaise || id == FunctionId::kStop || id == FunctionId::kChill;
}

}  // namespace

bool Lowerer::has_record(const CheckedClause& checked) {
  return checked.statements.empty() ||
         std::ranges::any_of(checked.statements, [](const NodePtr& node) {
           return node->kind == NodeKind::kCall && node->function->kind == FunctionKind::kAction &&
                  !is_done_in_body(node->function->id);
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
  std::vector<std::size_t> refused;
  if (request_.cpu) {
    const Reg cpu = emit_value(Op::kBuiltin);
    clause_.code.back().immediate = static_cast<std::int64_t>(plan::Builtin::kCpu);
    const Reg wanted = constant(static_cast<std::uint64_t>(*request_.cpu));
    refused.push_back(emit_jump(Op::kJumpIfZero, emit_value(Op::kEqual, cpu, wanted)));
  }
  if (checked.predicate != nullptr) {
    line_ = line_of(checked.predicate->range);
    const Reg condition = lower(*checked.predicate);
    if (condition != plan::kNoReg) refused.push_back(emit_jump(Op::kJumpIfZero, condition));
  }
  clause_.has_record = has_record(checked);
  if (clause_.has_record) emit(Op::kReserve);
  for (const NodePtr& statement : checked.statements) {
    line_ = line_of(statement->range);
    scratch_used_ = 0;  // nothing of a statement is needed by the next
    lower_statement(*statement);
  }
  line_ = clause_.line;
  for (const std::size_t jump : refused) land(jump);
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

plan::ValueType processor_key() {
  plan::ValueType type;
  type.size = 4;
  return type;
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
  if (request_.per_processor) {
    aggregation.per_processor = true;
    aggregation.keys.push_back(processor_key());
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
  if (request_.per_processor) {
    keys->push_back({emit_value(Op::kBuiltin), processor_key()});
    clause_.code.back().immediate = static_cast<std::int64_t>(plan::Builtin::kCpu);
  }
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
  Reg reg = is_text ? lower_string(value) : lower(value);
  if (reg != plan::kNoReg && type->kind == plan::ValueKind::kBytes)
    reg = own_bytes(value, reg, type->size);
  if (reg == plan::kNoReg) return std::nullopt;
  return add_field(reg, *type);
}

// `size` bytes from an address in the traced process or of ours.
std::optional<std::uint32_t> Lowerer::add_bytes(Reg address, std::uint64_t size,
                                                diag::Range range) {
  if (size == 0 || size > kMaxRecorded) {
    unsupported(range, "recording " + std::to_string(size) + " bytes");
    return std::nullopt;
  }
  plan::ValueType type;
  type.kind = plan::ValueKind::kBytes;
  type.is_signed = false;
  type.size = static_cast<std::uint32_t>(size);
  return add_field(copy_in(address, size), type);
}

void Lowerer::lower_action(const Node& node) {
  switch (node.function->id) {
    case FunctionId::kPrintf:
      lower_format_action(node, plan::ActionKind::kPrintf);
      return;
    case FunctionId::kSystem:
      lower_format_action(node, plan::ActionKind::kSystem);
      return;
    case FunctionId::kFreopen:
      lower_format_action(node, plan::ActionKind::kFreopen);
      return;
    case FunctionId::kFtruncate:
      clause_.actions.emplace_back().kind = plan::ActionKind::kFtruncate;
      return;
    case FunctionId::kSetopt:
      lower_setopt(node);
      return;
    case FunctionId::kTracemem:
      lower_tracemem(node);
      return;
    case FunctionId::kPrint:
      lower_print(node);
      return;
    case FunctionId::kSpeculate:
    case FunctionId::kCommit:
    case FunctionId::kDiscard:
      lower_speculation(node);
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
    case FunctionId::kTrace:
      lower_trace(node);
      return;
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
      if (!lower_process_action(node))
        unsupported(node.range, std::string(node.function->name) + "()");
  }
}

void Lowerer::lower_trace(const Node& node) {
  const Node& value = *node.operands.front();
  plan::Action action;
  action.kind = plan::ActionKind::kTrace;
  std::optional<std::uint32_t> field;
  if (is_by_address(value.type)) {
    const Reg address = lower(value);
    if (address == plan::kNoReg) return;
    field = add_bytes(address, types_.size(value.type), value.range);
  } else {
    field = add_field(value);
  }
  if (!field) return;
  action.fields.push_back(*field);
  clause_.actions.push_back(std::move(action));
}

void Lowerer::lower_tracemem(const Node& node) {
  plan::Action action;
  action.kind = plan::ActionKind::kTracemem;
  const Reg address = lower(*node.operands[0]);
  if (address == plan::kNoReg) return;
  const auto bytes = add_bytes(address, node.operands[1]->value, node.range);
  if (!bytes) return;
  action.fields.push_back(*bytes);
  if (node.operands.size() > 2) {
    const auto shown = add_field(*node.operands[2]);
    if (!shown) return;
    action.fields.push_back(*shown);
  }
  clause_.actions.push_back(std::move(action));
}

void Lowerer::lower_print(const Node& node) {
  const Node& pointer = *node.operands.front();
  plan::Action action;
  action.kind = plan::ActionKind::kPrint;
  action.type = types_.pointed_to(pointer.type);
  const Reg address = lower(pointer);
  if (address == plan::kNoReg) return;
  action.fields.push_back(add_field(address, *value_type(types_.pointer_to(ctypes::kVoid))));
  const std::uint64_t size = types_.size(action.type);
  const auto bytes =
      add_bytes(address, std::min<std::uint64_t>(size, request_.printsize), pointer.range);
  if (!bytes) return;
  action.fields.push_back(*bytes);
  clause_.actions.push_back(std::move(action));
}

void Lowerer::lower_setopt(const Node& node) {
  plan::Action action;
  action.kind = plan::ActionKind::kSetopt;
  for (const NodePtr& operand : node.operands) {
    const Reg text = lower_string(*operand);
    if (text == plan::kNoReg) return;
    action.fields.push_back(add_field(text, *value_type(ctypes::kString)));
  }
  clause_.actions.push_back(std::move(action));
}

void Lowerer::lower_speculation(const Node& node) {
  const Reg number = lower(*node.operands.front());
  if (number == plan::kNoReg) return;
  program_.speculations = request_.speculations;
  if (node.function->id == FunctionId::kSpeculate) {
    emit(Op::kSpeculate).a = number;
    return;
  }
  const bool commits = node.function->id == FunctionId::kCommit;
  const Reg token = emit_value(commits ? Op::kCommit : Op::kDiscard, number);
  plan::Action action;
  action.kind = commits ? plan::ActionKind::kCommit : plan::ActionKind::kDiscard;
  action.fields.push_back(add_field(token, *value_type(ctypes::kUnsignedInt)));
  clause_.actions.push_back(std::move(action));
}

bool Lowerer::lower_process_action(const Node& node) {
  Op op = Op::kStop;
  if (node.function->id == FunctionId::kRaise) op = Op::kRaise;
  if (node.function->id == FunctionId::kChill) op = Op::kChill;
  if (op == Op::kStop && node.function->id != FunctionId::kStop) return false;
  program_.destructive = true;
  Reg operand = plan::kNoReg;
  if (op != Op::kStop) {
    operand = lower(*node.operands.front());
    if (operand == plan::kNoReg) return true;
  }
  emit(op).a = operand;
  return true;
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

void Lowerer::lower_format_action(const Node& node, plan::ActionKind kind) {
  plan::Action action;
  action.kind = kind;
  action.has_format = true;
  if (kind != plan::ActionKind::kPrintf) program_.destructive = true;
  if (node.format == nullptr) {  // freopen("")
    clause_.actions.push_back(std::move(action));
    return;
  }
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
