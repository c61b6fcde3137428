// The checker: names, types and the rules of D, from syntax tree to typed tree.
//
// It follows DTrace in what is a mistake and in which order a clause's names come to life:
// statements before the predicate, unless the statements need a name that the predicate makes.
// Unlike DTrace it goes on after a mistake: an expression that has one is nullptr, its neighbours
// are still checked, and a variable that got no type because of it is not complained about again.
//
// The pieces: checker.cc (the program and its clauses), check_type.cc and check_declaration.cc
// (types; variables, inlines), check_translator.cc, check_name.cc (identifiers, indexing,
// prototypes), check_operand.cc and check_operator.cc, check_assignment.cc; then what statements
// may be: check_statement.cc (actions, aggregations) and check_format.cc.

#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctypes/type.h"
#include "diag/diagnostic.h"
#include "dlang/ast.h"
#include "dlang/compile.h"
#include "dlang/node.h"
#include "plan/provider.h"

namespace trapline::dlang {

struct CheckedClause {
  const Clause* clause = nullptr;
  NodePtr predicate;
  std::vector<NodePtr> statements;
};

// Whether a name that is not there may be one that could not be read: then it is no mistake of its
// own.
enum class NamesMissing : std::uint8_t { kNo, kMaybe };

// Whether children of the traced processes are traced too. $target stands for each of them then, so
// what a process fires does not take it for a constant.
enum class Follow : std::uint8_t { kNo, kYes };

struct CheckSettings {
  HasTarget has_target = HasTarget::kNo;
  TypeProvider* types = nullptr;  // may be null
  std::uint32_t scratchsize = 256;
  NamesMissing names_missing = NamesMissing::kNo;
  Follow follow = Follow::kNo;
};

class Checker {
 public:
  Checker(ctypes::TypeTable& types, diag::Diagnostics& diagnostics, CheckSettings settings);

  void configure(CheckSettings settings) { settings_ = settings; }

  // Checks one source; `program` must stay alive as long as what clauses() returns. Names go from
  // one source to the next, but for those of scope `this`.
  void check(const Program& program);

  const std::vector<CheckedClause>& clauses() const { return clauses_; }
  void forget_clauses() { clauses_.clear(); }

  // The providers that were described, each once, in the order of their names.
  std::vector<plan::Provider> providers() const;

 private:
  using TypeId = ctypes::TypeId;
  using SymbolMap = std::map<std::string, Symbol*, std::less<>>;

  // ---- checker.cc
  void check_clause(const Clause& clause);
  std::vector<NodePtr> check_statements(const Clause& clause);
  NodePtr check_predicate(const Expression& predicate);
  void check_pragma(const Pragma& pragma);
  void report(std::string_view tag, diag::Range range, std::string text, std::string hint = {});
  NodePtr fail(std::string_view tag, diag::Range range, std::string text, std::string hint = {});
  static NodePtr make(NodeKind kind, TypeId type, diag::Range range);
  static NodePtr make_integer(std::uint64_t value, TypeId type, diag::Range range);
  std::string name_of(TypeId type) const { return types_.name(type); }
  std::string name_of(const Node& node) const;  // its type, for messages

  // ---- check_type.cc, check_declaration.cc
  struct Declared {
    TypeId type = ctypes::kVoid;
    bool associative = false;
    std::vector<TypeId> keys;
    std::vector<const Parameter*> parameters;  // of an associative array
  };
  enum class Prototype : std::uint8_t { kFunction, kArray, kProvider };
  void check_declaration(const Declaration& declaration);
  void poison(const Declaration& declaration);
  void poison_tags(const Specifiers& specifiers);
  void declare(const Declaration& declaration, const Declarator& declarator, TypeId base);
  void declare_variable(VariableScope scope, const Declarator& declarator,
                        const Declared& declared);
  void declare_extern(const Declarator& declarator, TypeId type);
  void declare_typedef(const Declarator& declarator, const Declared& declared);
  void check_redeclaration(const Symbol& symbol, const Declared& declared,
                           const Declarator& declarator);
  void check_inline(const InlineDefinition& definition);
  void check_provider(const ProviderDefinition& provider, diag::SourceId source);
  void check_provider_probe(const ProviderProbe& probe, plan::Provider& provider);
  plan::ProbeArgument probe_argument(TypeId type) const;
  std::optional<TypeId> specifiers_type(const Specifiers& specifiers);
  std::optional<TypeId> base_type(const Specifiers& specifiers);
  std::optional<TypeId> tagged_type(const TypeSpecifier& specifier);
  bool define_members(TypeId tag, const TypeSpecifier& specifier);
  bool check_member(const MemberDeclaration& group, const Declarator& declarator, TypeId base,
                    std::vector<ctypes::Member>& members);
  std::optional<std::uint32_t> bit_width(const Declarator& declarator, TypeId type);
  bool define_enumerators(TypeId tag, const TypeSpecifier& specifier);
  std::optional<Declared> declarator_type(TypeId base, const Declarator& declarator);
  std::optional<TypeId> array_type(TypeId element, const DeclaratorPart& part);
  std::optional<std::vector<TypeId>> parameter_types(const std::vector<Parameter>& parameters,
                                                     Prototype prototype, bool variadic,
                                                     diag::Range range);
  std::optional<TypeId> type_name(const TypeName& name);
  bool is_global_name(std::string_view name) const;

  // ---- check_translator.cc
  struct Translator {
    TypeId output;
    TypeId input;
    std::map<std::string, Symbol*, std::less<>> members;  // inlines with one parameter
  };
  void check_translator(const TranslatorDefinition& definition);
  void check_translated(Translator& translator, const TranslatorMember& member, Symbol& parameter);
  NodePtr check_xlate(const Xlate& xlate);
  NodePtr check_translated_member(const Member& member, const Node& xlate);

  // ---- check_name.cc
  enum class Create : std::uint8_t { kNo, kYes };
  NodePtr check_identifier(const Identifier& identifier);
  NodePtr check_global(const Identifier& identifier);
  NodePtr symbol_node(Symbol& symbol, diag::Range range);
  NodePtr check_index(const Index& index, Create create);
  NodePtr check_element(Symbol& symbol, const Index& index);
  NodePtr check_array_inline(Symbol& symbol, const Index& index);
  NodePtr check_builtin_array(const Identifier& identifier, const Index& index);
  NodePtr check_pointer_index(NodePtr base, const Index& index);
  NodePtr check_aggregation(const Expression& expression, Create create);
  NodePtr check_call(const Call& call);
  std::optional<std::vector<NodePtr>> check_all(const std::vector<ExpressionPtr>& expressions);
  bool check_keys(Symbol& symbol, std::span<const NodePtr> keys, diag::Range range);
  bool check_arguments(const FunctionInfo& function, std::span<const NodePtr> arguments,
                       diag::Range range);
  // The target of an assignment, ++ or --: a name that does not exist is made.
  NodePtr check_target(const Expression& expression);
  Symbol& create_symbol(SymbolKind kind, VariableScope scope, std::string_view name,
                        diag::Range range);
  SymbolMap& scope_map(VariableScope scope);
  Symbol* find_symbol(VariableScope scope, std::string_view name);
  static std::string spelled(const Symbol& symbol);

  // ---- check_operand.cc, check_operator.cc
  NodePtr check_expression(const Expression& expression);
  bool stands_for_each_process() const;
  NodePtr check_integer(const IntegerLiteral& literal);
  NodePtr check_member(const Member& member);
  NodePtr check_unary(const Unary& unary);
  NodePtr check_dereference(NodePtr operand, diag::Range range);
  NodePtr check_address(NodePtr operand, diag::Range range);
  NodePtr check_sizeof(const Unary& unary);
  NodePtr check_stringof(NodePtr operand, diag::Range range);
  NodePtr check_binary(const Binary& binary);
  NodePtr check_comparison(const Binary& binary, NodePtr left, NodePtr right);
  NodePtr check_additive(BinaryOperator op, NodePtr left, NodePtr right, diag::Range range);
  NodePtr enumerator_operand(const Binary& binary, const NodePtr& left);
  NodePtr fold(BinaryOperator op, const Node& left, const Node& right, diag::Range range);
  NodePtr check_conditional(const Conditional& conditional);
  NodePtr check_cast(const Cast& cast);
  NodePtr check_offsetof(const Offsetof& expression);
  NodePtr incompatible(std::string_view op, const Node& left, const Node& right, diag::Range range);
  // The type of two pointers (or a pointer and a constant 0) that may meet; nullopt: they may not.
  std::optional<TypeId> pointer_meeting(const Node& left, const Node& right) const;
  bool argument_fits(const Node& parameter, const Node& argument) const;
  bool argument_fits(TypeId parameter, const Node& argument) const;

  // ---- check_assignment.cc
  NodePtr check_assign(const Assign& assign);
  NodePtr check_plain_assign(const Assign& assign, NodePtr target, NodePtr value);
  NodePtr check_compound_assign(const Assign& assign, NodePtr target, NodePtr value);
  NodePtr check_aggregate(const Assign& assign, NodePtr target);
  NodePtr check_increment(const Unary& unary);
  bool is_modifiable(std::string_view op, const Node& target);

  // ---- check_statement.cc, check_format.cc
  enum class Place : std::uint8_t { kStatement, kExpression, kKey };
  struct ClauseState {  // which kinds of actions came before
    bool commits = false;
    bool speculates = false;
    bool records = false;
    bool aggregates = false;
    bool refused = false;  // a mistake in their order was told: one a clause is enough
  };
  bool verify_statement(const NodePtr& statement);
  bool verify_expression(const Node& node, Place place);
  bool verify_subroutine(const Node& node);
  bool verify_aggregate(Node& node);
  bool verify_quantizer(Node& node, std::span<const std::int64_t> values);
  bool verify_lquantize(Node& node);
  bool verify_llquantize(Node& node);
  bool verify_weight(const Node& node, std::size_t last, std::size_t limit);
  bool verify_action(Node& node);
  bool verify_order(const Node& node);
  bool verify_aggregation_argument(const Node& node, std::string_view tag);
  bool verify_printf(Node& node);
  bool verify_printa(Node& node);
  bool verify_printa_keys(const Node& first, const Node& other);
  bool verify_format(Node& node, std::span<const Node* const> arguments, const Symbol* aggregation);
  bool verify_trace(const Node& node);
  bool verify_tracemem(const Node& node);
  bool verify_stack(const Node& node);

  ctypes::TypeTable& types_;
  diag::Diagnostics* diagnostics_;
  CheckSettings settings_;
  std::deque<Symbol> symbols_;
  SymbolMap globals_;
  SymbolMap selves_;
  SymbolMap locals_;
  SymbolMap aggregations_;
  SymbolMap parameters_;  // of the array inline, or the translator, being defined
  std::vector<Translator> translators_;
  std::map<std::string, TypeId, std::less<>> externs_;
  std::set<std::string, std::less<>> typedefs_;  // of the program
  std::set<TypeId> broken_;  // tags whose definition has a mistake: they stay incomplete
  std::map<std::string, plan::Provider, std::less<>> providers_;
  std::string region_;
  ClauseState state_;
  const Clause* clause_ = nullptr;  // being checked
  std::vector<CheckedClause> clauses_;
};

// The low `bytes` bytes of a value, extended.
std::uint64_t keep_bits(std::uint64_t value, std::uint64_t bytes, bool is_signed);

// Whether a value of type `type` has the shape of a bit-field: no whole power of two of bytes.
bool is_bit_field(ctypes::TypeId type, const ctypes::TypeTable& types);

}  // namespace trapline::dlang
