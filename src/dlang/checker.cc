// See checker.h. Here: the items of a program, one after another; a clause's statements and
// predicate.

#include "dlang/checker.h"

#include <algorithm>

namespace trapline::dlang {

std::string_view kind_name(const Symbol& symbol) {
  switch (symbol.kind) {
    case SymbolKind::kScalar:
      return "scalar";
    case SymbolKind::kArray:
      return "associative array";
    case SymbolKind::kInline:
    case SymbolKind::kParameter:
      return "inline";
    case SymbolKind::kArrayInline:
      return "inline array";
    case SymbolKind::kEnumerator:
      return "enumerator";
    case SymbolKind::kAggregation:
      return "aggregation";
  }
  return "name";
}

Checker::Checker(ctypes::TypeTable& types, diag::Diagnostics& diagnostics, CheckSettings settings)
    : types_(types), diagnostics_(&diagnostics), settings_(settings) {
  // What D libraries define in DTrace: NULL, and the structure that curcpu points to.
  Symbol& null = create_symbol(SymbolKind::kInline, VariableScope::kGlobal, "NULL", {});
  null.declared = true;
  null.type = ctypes::kInt;
  null.value = make_integer(0, ctypes::kInt, {});
  const TypeId cpuinfo = types_.declare_tag(ctypes::TypeKind::kStruct, "cpuinfo");
  types_.complete(cpuinfo, {{"cpu_id", ctypes::kInt, 0, 0},
                            {"cpu_pset", ctypes::kInt, 0, 0},
                            {"cpu_chip", ctypes::kInt, 0, 0},
                            {"cpu_lgrp", ctypes::kInt, 0, 0},
                            {"cpu_info", types_.pointer_to(ctypes::kVoid), 0, 0}});
  types_.declare_typedef("cpuinfo_t", cpuinfo);
}

void Checker::check(const Program& program) {
  locals_.clear();
  for (const auto& item : program.items) {
    region_.clear();
    switch (item->kind) {
      case ItemKind::kClause:
        check_clause(item->as<Clause>());
        break;
      case ItemKind::kDeclaration:
        check_declaration(item->as<Declaration>());
        break;
      case ItemKind::kInline:
        check_inline(item->as<InlineDefinition>());
        break;
      case ItemKind::kProvider:
        check_provider(item->as<ProviderDefinition>(), program.source);
        break;
      case ItemKind::kPragma:
        break;  // once all names are known
      case ItemKind::kTranslator:
        check_translator(item->as<TranslatorDefinition>());
        break;
    }
  }
  for (const auto& item : program.items) {
    if (const auto* pragma = item->get_if<Pragma>()) check_pragma(*pragma);
  }
}

void Checker::check_clause(const Clause& clause) {
  clause_ = &clause;
  state_ = {};
  CheckedClause checked;
  checked.clause = &clause;

  for (const ProbeDescription& probe : clause.probes) {
    if (probe.id == 0U) report("PDESC_INVAL", probe.range, "there is no probe with identifier 0");
  }
  // Statements first. If they use a name that is not there, the predicate may be what makes it:
  // then it goes first.
  diag::Diagnostics* const outer = diagnostics_;
  diag::Diagnostics first_try(diag::Diagnostics::kDefaultCap);
  diagnostics_ = &first_try;
  checked.statements = check_statements(clause);
  diagnostics_ = outer;
  const auto found = first_try.sorted();
  const bool retry =
      clause.predicate != nullptr && std::ranges::any_of(found, [](const diag::Diagnostic& d) {
        return d.tag == "IDENT_UNDEF" || d.tag == "VAR_UNDEF";
      });
  if (!retry) {
    for (const diag::Diagnostic& d : found) diagnostics_->add(d);
  }
  if (clause.predicate != nullptr) checked.predicate = check_predicate(*clause.predicate);
  if (retry) {
    for (auto* map : {&globals_, &selves_, &locals_}) {
      for (auto& [name, symbol] : *map) {
        if (symbol->is_variable()) symbol->poisoned = false;
      }
    }
    state_ = {};
    checked.statements = check_statements(clause);
  }
  region_.clear();
  clause_ = nullptr;
  clauses_.push_back(std::move(checked));
}

std::vector<NodePtr> Checker::check_statements(const Clause& clause) {
  region_ = "action list";
  std::vector<NodePtr> statements;
  for (const ExpressionPtr& statement : clause.statements) {
    NodePtr node = check_expression(*statement);
    if (node != nullptr && verify_statement(node)) statements.push_back(std::move(node));
  }
  return statements;
}

NodePtr Checker::check_predicate(const Expression& predicate) {
  region_ = "predicate";
  NodePtr node = check_expression(predicate);
  if (node == nullptr) return nullptr;
  if (!types_.is_scalar(node->type)) {
    return fail("PRED_SCALAR", predicate.range,
                "a predicate must be a number or a pointer; this is of type " + name_of(*node));
  }
  return verify_expression(*node, Place::kExpression) ? node : nullptr;
}

void Checker::check_pragma(const Pragma& pragma) {
  if (pragma.pragma != PragmaKind::kBinding && pragma.pragma != PragmaKind::kAttributes) return;
  // Stability and versions are accepted and have no effect; the name must exist all the same.
  if (pragma.name.empty() || pragma.name == "provider") return;
  const bool is_aggregation =
      pragma.name.front() == '@' && aggregations_.contains(pragma.name.substr(1));
  if (is_aggregation || is_global_name(pragma.name)) return;
  report("PRAGMA_UNUSED", pragma.range, "the #pragma has no use: there is no " + pragma.name);
}

void Checker::report(std::string_view tag, diag::Range range, std::string text, std::string hint) {
  const bool is_name = tag == "IDENT_UNDEF" || tag == "VAR_UNDEF" || tag == "FUNC_UNDEF";
  if (is_name && settings_.names_missing == NamesMissing::kMaybe) return;
  diagnostics_->error(tag, range, std::move(text), std::move(hint)).region = region_;
}

NodePtr Checker::fail(std::string_view tag, diag::Range range, std::string text, std::string hint) {
  report(tag, range, std::move(text), std::move(hint));
  return nullptr;
}

NodePtr Checker::make(NodeKind kind, TypeId type, diag::Range range) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->type = type;
  node->range = range;
  return node;
}

NodePtr Checker::make_integer(std::uint64_t value, TypeId type, diag::Range range) {
  NodePtr node = make(NodeKind::kInteger, type, range);
  node->value = value;
  return node;
}

std::string Checker::name_of(const Node& node) const {
  if (types_.kind(node.type) == ctypes::TypeKind::kDynamic) {
    if (node.symbol != nullptr) return std::string(kind_name(*node.symbol));
    if (node.kind == NodeKind::kXlate) return "translated data";
    return "aggregating function";
  }
  return types_.name(node.type);
}

bool is_bit_field(ctypes::TypeId type, const ctypes::TypeTable& types) {
  const ctypes::Type& t = types.get(types.resolve(type));
  if (t.kind != ctypes::TypeKind::kInteger) return false;
  return t.bits % 8 != 0 || ((t.bits / 8) & (t.bits / 8 - 1)) != 0;
}

}  // namespace trapline::dlang
