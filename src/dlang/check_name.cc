// The checker's part for names: identifiers, elements of arrays, aggregations, calls and their
// prototypes.

#include <algorithm>

#include "dlang/checker.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;

std::string plural(std::size_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

// A function's parameters, taken apart.
struct Parameters {
  std::vector<std::string_view> types;
  std::size_t required = 0;
  bool variadic = false;
};

Parameters split_parameters(std::string_view text) {
  Parameters out;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view type = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (type.starts_with(' ')) type.remove_prefix(1);
    if (type == "...") {
      out.variadic = true;
    } else if (type.starts_with('[')) {
      out.types.push_back(type.substr(1, type.size() - 2));
    } else {
      out.types.push_back(type);
      out.required = out.types.size();
    }
  }
  return out;
}

// BEGIN, END and ERROR have arg0 and its like, but no typed arguments.
bool is_probe_without_arguments(const ProbeDescription& probe) {
  if (!probe.module.empty() || !probe.function.empty() || probe.id) return false;
  if (!probe.provider.empty() && probe.provider != "dtrace") return false;
  return probe.name == "BEGIN" || probe.name == "END" || probe.name == "ERROR";
}

}  // namespace

// ----------------------------------------------------------------------------------------- symbols

Checker::SymbolMap& Checker::scope_map(VariableScope scope) {
  switch (scope) {
    case VariableScope::kSelf:
      return selves_;
    case VariableScope::kThis:
      return locals_;
    case VariableScope::kGlobal:
      break;
  }
  return globals_;
}

Symbol& Checker::create_symbol(SymbolKind kind, VariableScope scope, std::string_view name,
                               diag::Range range) {
  symbols_.emplace_back();
  Symbol& symbol = symbols_.back();
  symbol.kind = kind;
  symbol.scope = scope;
  symbol.name = name;
  symbol.first = range;
  scope_map(scope)[symbol.name] = &symbol;
  return symbol;
}

Symbol* Checker::find_symbol(VariableScope scope, std::string_view name) {
  if (scope == VariableScope::kGlobal) {
    if (const auto found = parameters_.find(name); found != parameters_.end()) return found->second;
  }
  SymbolMap& map = scope_map(scope);
  const auto found = map.find(name);
  return found == map.end() ? nullptr : found->second;
}

std::string Checker::spelled(const Symbol& symbol) {
  if (symbol.kind == SymbolKind::kAggregation) return "@" + symbol.name;
  switch (symbol.scope) {
    case VariableScope::kSelf:
      return "self->" + symbol.name;
    case VariableScope::kThis:
      return "this->" + symbol.name;
    case VariableScope::kGlobal:
      break;
  }
  return symbol.name;
}

// ------------------------------------------------------------------------------------- identifiers

NodePtr Checker::check_identifier(const Identifier& identifier) {
  if (identifier.symbol) {
    return fail(
        "IDENT_UNDEF", identifier.range,
        "symbols of programs are not offered yet: " + identifier.module + "`" + identifier.name);
  }
  if (identifier.scope == VariableScope::kGlobal) return check_global(identifier);
  Symbol* symbol = find_symbol(identifier.scope, identifier.name);
  if (symbol != nullptr && symbol->poisoned) return nullptr;
  if (symbol == nullptr || symbol->is_fresh()) {
    Symbol& made = symbol != nullptr ? *symbol
                                     : create_symbol(SymbolKind::kScalar, identifier.scope,
                                                     identifier.name, identifier.range);
    fail("VAR_UNDEF", identifier.range,
         spelled(made) + " has not been declared or assigned before");
    made.poisoned = true;
    return nullptr;
  }
  return symbol_node(*symbol, identifier.range);
}

NodePtr Checker::check_global(const Identifier& identifier) {
  const std::string& name = identifier.name;
  if (Symbol* symbol = find_symbol(VariableScope::kGlobal, name)) {
    if (symbol->poisoned) return nullptr;
    if (symbol->is_fresh()) {
      symbol->poisoned = true;
      return fail("IDENT_UNDEF", identifier.range, "there is no variable " + name);
    }
    return symbol_node(*symbol, identifier.range);
  }
  if (const BuiltinVariable* builtin = find_builtin(name)) {
    NodePtr node =
        make(NodeKind::kBuiltin, parse_prototype_type(types_, builtin->type), identifier.range);
    node->builtin = builtin;
    node->lvalue = true;
    return node;
  }
  if (const FunctionInfo* function = find_function(name)) {
    return fail("IDENT_BADREF", identifier.range,
                "the function " + std::string(function->name) + " is used as a variable",
                "call it: " + std::string(function->name) + "()");
  }
  if (name == "args" || name == "uregs") {
    return fail("IDENT_BADREF", identifier.range,
                "the array " + name + " is used without an index");
  }
  if (name == "self" || name == "this") {
    return fail("IDENT_BADREF", identifier.range, name + " is followed by -> and a name");
  }
  if (name == "curpsinfo" || name == "curlwpsinfo") {
    return fail("UNKNOWN", identifier.range, name + " is not offered yet");
  }
  if (const NamedConstant* constant = find_constant(name)) {
    return make_integer(static_cast<std::uint64_t>(std::int64_t{constant->value}), ctypes::kInt,
                        identifier.range);
  }
  return fail("IDENT_UNDEF", identifier.range, "there is no variable " + name);
}

NodePtr Checker::symbol_node(Symbol& symbol, diag::Range range) {
  symbol.referenced = true;
  switch (symbol.kind) {
    case SymbolKind::kEnumerator:
      return make_integer(symbol.value->value, *symbol.type, range);
    case SymbolKind::kInline:
      if (symbol.value->kind == NodeKind::kXlate) {
        auto node = std::make_shared<Node>(*symbol.value);
        node->range = range;  // mistakes are made where it is used
        return node;
      }
      if (symbol.value->kind == NodeKind::kInteger && types_.is_integer(*symbol.type)) {
        return make_integer(symbol.value->value, symbol.value->type, range);
      } else {
        NodePtr node = make(NodeKind::kInline, *symbol.type, range);
        node->symbol = &symbol;
        return node;
      }
    case SymbolKind::kParameter: {
      if (!symbol.type) return nullptr;  // the key types were refused
      NodePtr node = make(NodeKind::kParameter, *symbol.type, range);
      node->symbol = &symbol;
      return node;
    }
    case SymbolKind::kArray:
    case SymbolKind::kArrayInline:
    case SymbolKind::kAggregation:
      return fail("IDENT_BADREF", range,
                  "the " + std::string(kind_name(symbol)) + " " + spelled(symbol) +
                      " is used without an index");
    case SymbolKind::kScalar:
      break;
  }
  if (!symbol.type) return nullptr;
  NodePtr node = make(NodeKind::kVariable, *symbol.type, range);
  node->symbol = &symbol;
  node->lvalue = true;
  node->writable = true;
  return node;
}

// ---------------------------------------------------------------------------------------- indexing

NodePtr Checker::check_index(const Index& index, Create create) {
  const Expression& base = *index.base;
  if (base.kind == ExpressionKind::kAggregation) return check_aggregation(index, create);
  if (const auto* inner = base.get_if<Index>();
      inner != nullptr && inner->base->kind == ExpressionKind::kAggregation) {
    return fail("AGG_MDIM", index.range,
                "@" + inner->base->as<AggregationReference>().name + " is indexed twice; write @" +
                    inner->base->as<AggregationReference>().name + "[a, b]");
  }
  const auto* identifier = base.get_if<Identifier>();
  if (identifier == nullptr || identifier->symbol)
    return check_pointer_index(check_expression(base), index);

  if (identifier->scope == VariableScope::kGlobal &&
      find_symbol(VariableScope::kGlobal, identifier->name) == nullptr) {
    if (identifier->name == "args" || identifier->name == "uregs")
      return check_builtin_array(*identifier, index);
    if (is_global_name(identifier->name) || find_constant(identifier->name) != nullptr) {
      return check_pointer_index(check_expression(base), index);
    }
  }
  Symbol* symbol = find_symbol(identifier->scope, identifier->name);
  if (symbol != nullptr && symbol->poisoned) return nullptr;
  if (symbol == nullptr || symbol->is_fresh()) {
    if (symbol == nullptr) {
      symbol = &create_symbol(SymbolKind::kArray, identifier->scope, identifier->name,
                              identifier->range);
    }
    symbol->kind = SymbolKind::kArray;
    if (identifier->scope == VariableScope::kThis) {
      symbol->poisoned = true;
      return fail("ARR_LOCAL", index.range,
                  "an associative array cannot be of scope this: " + symbol->name);
    }
    if (create == Create::kNo) {
      symbol->poisoned = true;
      return fail("VAR_UNDEF", identifier->range,
                  spelled(*symbol) + "[] has not been declared or assigned before");
    }
    return check_element(*symbol, index);
  }
  if (symbol->kind == SymbolKind::kArray) return check_element(*symbol, index);
  if (symbol->kind == SymbolKind::kArrayInline) return check_array_inline(*symbol, index);
  return check_pointer_index(symbol_node(*symbol, base.range), index);
}

NodePtr Checker::check_element(Symbol& symbol, const Index& index) {
  auto keys = check_all(index.indices);
  if (!keys) {
    if (!symbol.type) symbol.poisoned = true;
    return nullptr;
  }
  if (!check_keys(symbol, *keys, index.range)) {
    if (!symbol.type) symbol.poisoned = true;
    return nullptr;
  }
  NodePtr node = make(NodeKind::kElement, symbol.type.value_or(ctypes::kDynamic), index.range);
  node->symbol = &symbol;
  node->operands = std::move(*keys);
  node->lvalue = true;
  node->writable = true;
  return node;
}

NodePtr Checker::check_array_inline(Symbol& symbol, const Index& index) {
  auto keys = check_all(index.indices);
  if (!keys || symbol.poisoned || !check_keys(symbol, *keys, index.range)) return nullptr;
  NodePtr node = make(NodeKind::kInline, *symbol.type, index.range);
  node->symbol = &symbol;
  node->operands = std::move(*keys);
  return node;
}

NodePtr Checker::check_builtin_array(const Identifier& identifier, const Index& index) {
  const auto keys = check_all(index.indices);
  if (!keys) return nullptr;
  const std::string& name = identifier.name;
  if (keys->size() != 1) {
    return fail("PROTO_LEN", index.range,
                name + "[] takes 1 index, not " + std::to_string(keys->size()));
  }
  const Node& key = *keys->front();
  if (key.kind != NodeKind::kInteger) {
    return fail(
        "PROTO_ARG", index.range,
        "the index of " + name + "[] must be an integer constant; this is of type " + name_of(key));
  }
  const auto number = static_cast<std::int64_t>(key.value);
  const auto not_offered = [&] {
    return fail("UNKNOWN", index.range, name + "[] is not offered yet");
  };
  if (name == "uregs") {
    if (number < 0)
      return fail("REGS_IDX", index.range, "uregs[] has no register " + std::to_string(number));
    return not_offered();
  }
  if (clause_ == nullptr)
    return fail("ARGS_NONE", index.range, "args[] has a meaning in clauses only");
  if (std::ranges::all_of(clause_->probes, is_probe_without_arguments)) {
    return fail("ARGS_IDX", index.range, "this probe has no arguments");
  }
  if (settings_.types == nullptr) return not_offered();
  // The types of all probes of the clause must agree on what is asked for.
  std::optional<TypeId> type;
  for (const ProbeDescription& probe : clause_->probes) {
    plan::ProbeDescription description;
    description.provider = probe.provider;
    description.module = probe.module;
    description.function = probe.function;
    description.name = probe.name;
    description.text = probe.text;
    const auto arguments = settings_.types->probe_arguments(types_, description);
    if (!arguments) return not_offered();
    if (number < 0 || static_cast<std::size_t>(number) >= arguments->size()) {
      return fail("ARGS_IDX", index.range,
                  "args[" + std::to_string(number) + "] does not exist: " + probe.text + " has " +
                      plural(arguments->size(), "argument"));
    }
    const TypeId found = (*arguments)[static_cast<std::size_t>(number)].type;
    if (type && !types_.compatible(*type, found)) {
      return fail("ARGS_MULTI", index.range, "args[] differs between the probes of this clause");
    }
    type = found;
  }
  if (number > 9 || !type) return not_offered();
  if (!types_.is_scalar(*type)) {
    return fail("UNKNOWN", index.range,
                "an argument of type " + name_of(*type) + " is not offered yet");
  }
  NodePtr argument = make(NodeKind::kBuiltin, ctypes::kLong, index.range);
  argument->builtin = find_builtin("arg" + std::to_string(number));
  NodePtr cast = make(NodeKind::kCast, *type, index.range);
  cast->operands.push_back(std::move(argument));
  return cast;
}

NodePtr Checker::check_pointer_index(NodePtr base, const Index& index) {
  auto keys = check_all(index.indices);
  if (base == nullptr || !keys) return nullptr;
  if (keys->size() != 1) {
    return fail("ARR_BADREF", index.range, "this is not an associative array; it takes one index");
  }
  NodePtr sum =
      check_additive(BinaryOperator::kAdd, std::move(base), std::move(keys->front()), index.range);
  return sum == nullptr ? nullptr : check_dereference(std::move(sum), index.range);
}

NodePtr Checker::check_aggregation(const Expression& expression, Create create) {
  const auto* index = expression.get_if<Index>();
  const auto& reference = (index != nullptr ? *index->base : expression).as<AggregationReference>();
  const auto found = aggregations_.find(reference.name);
  Symbol* symbol = found == aggregations_.end() ? nullptr : found->second;
  if (symbol == nullptr) {
    if (create == Create::kNo && index == nullptr) {
      return fail("IDENT_UNDEF", reference.range,
                  "there is no aggregation @" + reference.name + " before this");
    }
    symbols_.emplace_back();
    symbol = &symbols_.back();
    symbol->kind = SymbolKind::kAggregation;
    symbol->name = reference.name;
    symbol->first = reference.range;
    aggregations_[symbol->name] = symbol;
  }
  NodePtr node = make(NodeKind::kAggregation, ctypes::kDynamic, expression.range);
  node->symbol = symbol;
  node->lvalue = true;
  node->writable = true;
  if (index != nullptr) {
    auto keys = check_all(index->indices);
    if (!keys) return nullptr;
    node->operands = std::move(*keys);
  }
  return node;
}

std::optional<std::vector<NodePtr>> Checker::check_all(
    const std::vector<ExpressionPtr>& expressions) {
  std::vector<NodePtr> nodes;
  bool good = true;
  for (const ExpressionPtr& expression : expressions) {
    nodes.push_back(check_expression(*expression));
    good = good && nodes.back() != nullptr;
  }
  if (!good) return std::nullopt;
  return nodes;
}

bool Checker::check_keys(Symbol& symbol, std::span<const NodePtr> keys, diag::Range range) {
  if (!symbol.keys) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const ctypes::TypeKind kind = types_.kind(keys[i]->type);
      if (kind != ctypes::TypeKind::kDynamic && kind != ctypes::TypeKind::kVoid) continue;
      report("KEY_TYPE", keys[i]->range,
             "a value of type " + name_of(*keys[i]) + " cannot be a key: key #" +
                 std::to_string(i + 1) + " of " + spelled(symbol));
      return false;
    }
    std::vector<TypeId> types;
    for (const NodePtr& key : keys) types.push_back(key->type);
    symbol.keys = std::move(types);
    return true;
  }
  if (symbol.keys->size() != keys.size()) {
    report("PROTO_LEN", range,
           spelled(symbol) + "[] has " + plural(symbol.keys->size(), "key") + ", not " +
               std::to_string(keys.size()));
    return false;
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (argument_fits((*symbol.keys)[i], *keys[i])) continue;
    report("PROTO_ARG", keys[i]->range,
           "key #" + std::to_string(i + 1) + " of " + spelled(symbol) + "[] is of type " +
               name_of((*symbol.keys)[i]) + "; this is of type " + name_of(*keys[i]));
    return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------------- calls

NodePtr Checker::check_call(const Call& call) {
  const auto* callee = &call.callee->as<Identifier>();
  const FunctionInfo* function = callee->symbol ? nullptr : find_function(callee->name);
  if (function == nullptr) {
    if (!callee->symbol && is_global_name(callee->name)) {
      return fail("FUNC_IDKIND", callee->range, callee->name + " is not a function");
    }
    return fail("FUNC_UNDEF", callee->range, "there is no function " + callee->name);
  }
  auto arguments = check_all(call.arguments);
  if (!arguments) return nullptr;
  if (!check_arguments(*function, *arguments, call.range)) return nullptr;
  TypeId type = parse_prototype_type(types_, function->result);
  if (function->kind == FunctionKind::kAggregating) type = ctypes::kDynamic;
  NodePtr node = make(NodeKind::kCall, type, call.range);
  node->function = function;
  node->operands = std::move(*arguments);
  return node;
}

bool Checker::check_arguments(const FunctionInfo& function, std::span<const NodePtr> arguments,
                              diag::Range range) {
  const Parameters parameters = split_parameters(function.parameters);
  const std::string name(function.name);
  if (arguments.size() < parameters.required) {
    const bool exact = !parameters.variadic && parameters.required == parameters.types.size();
    report("PROTO_LEN", range,
           name + "() takes " + (exact ? "" : "at least ") +
               plural(parameters.required, "argument") + ", not " +
               std::to_string(arguments.size()));
    return false;
  }
  if (!parameters.variadic && arguments.size() > parameters.types.size()) {
    const bool exact = parameters.required == parameters.types.size();
    report("PROTO_LEN", range,
           name + "() takes " + (exact ? "" : "at most ") +
               plural(parameters.types.size(), "argument") + ", not " +
               std::to_string(arguments.size()));
    return false;
  }
  for (std::size_t i = 0; i < std::min(arguments.size(), parameters.types.size()); ++i) {
    if (parameters.types[i] == "@") continue;
    const TypeId type = parse_prototype_type(types_, parameters.types[i]);
    if (argument_fits(type, *arguments[i])) continue;
    report("PROTO_ARG", arguments[i]->range,
           "argument #" + std::to_string(i + 1) + " of " + name + "() must be of type " +
               name_of(type) + "; this is of type " + name_of(*arguments[i]));
    return false;
  }
  return true;
}

// ----------------------------------------------------------------------------------------- targets

NodePtr Checker::check_target(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kAggregation:
      return check_aggregation(expression, Create::kYes);
    case ExpressionKind::kIndex:
      return check_index(expression.as<Index>(), Create::kYes);
    case ExpressionKind::kIdentifier:
      break;
    default:
      return check_expression(expression);
  }
  const auto& identifier = expression.as<Identifier>();
  if (identifier.symbol) return check_identifier(identifier);
  Symbol* symbol = find_symbol(identifier.scope, identifier.name);
  if (symbol == nullptr && identifier.scope == VariableScope::kGlobal &&
      (is_global_name(identifier.name) || find_constant(identifier.name) != nullptr)) {
    return check_global(identifier);
  }
  if (symbol == nullptr) {
    symbol =
        &create_symbol(SymbolKind::kScalar, identifier.scope, identifier.name, identifier.range);
  }
  if (!symbol->is_variable()) {
    return symbol->poisoned ? nullptr : symbol_node(*symbol, identifier.range);
  }
  if (symbol->poisoned || symbol->is_fresh()) {
    symbol->poisoned = false;
    if (symbol->is_fresh()) symbol->kind = SymbolKind::kScalar;
    if (!symbol->type && symbol->kind == SymbolKind::kScalar) {
      // Its type is that of what it is assigned.
      NodePtr node = make(NodeKind::kVariable, ctypes::kDynamic, identifier.range);
      node->symbol = symbol;
      node->lvalue = true;
      node->writable = true;
      return node;
    }
  }
  return symbol_node(*symbol, identifier.range);
}

}  // namespace trapline::dlang
