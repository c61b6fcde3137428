// The syntax tree of a D program, as written: names are not resolved, types not computed.
//
// Nodes are owned by their parents. Depth is bounded (kMaxTreeDepth), so passes may recurse. Every
// expression has a number, dense from 0 to Program::expression_count, for passes that keep what
// they learn in tables beside the tree. Ranges are in the source as written: where a macro argument
// stands, the range is that of `$1`.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "diag/source.h"

namespace trapline::dlang {

inline constexpr std::uint32_t kMaxTreeDepth = 512;  // nodes from a statement down to a leaf

struct Expression;
struct MemberDeclaration;
struct Parameter;
using ExpressionPtr = std::unique_ptr<Expression>;

// --------------------------------------------------------------------- expressions: what is common

enum class ExpressionKind : std::uint8_t {
  kInteger,
  kString,
  kIdentifier,
  kAggregation,
  kIndex,
  kCall,
  kMember,
  kUnary,
  kBinary,
  kAssign,
  kConditional,
  kCast,
  kSizeofType,
  kOffsetof,
  kXlate,
};

struct Expression {
  ExpressionKind kind;
  std::uint32_t id = 0;
  std::uint32_t depth = 1;  // of the tree below and including this node
  bool parenthesized = false;
  diag::Range range;

  virtual ~Expression() = default;
  // Precondition: `kind` is T's.
  template <typename T>
  T& as() {
    TL_CHECK(kind == T::kKind);
    return static_cast<T&>(*this);
  }
  template <typename T>
  const T& as() const {
    TL_CHECK(kind == T::kKind);
    return static_cast<const T&>(*this);
  }
  // nullptr: of another kind.
  template <typename T>
  T* get_if() {
    return kind == T::kKind ? static_cast<T*>(this) : nullptr;
  }
  template <typename T>
  const T* get_if() const {
    return kind == T::kKind ? static_cast<const T*>(this) : nullptr;
  }

 protected:
  explicit Expression(ExpressionKind k) : kind(k) {}
};

// ------------------------------------------------------------------------ declarations, type names

enum class StorageClass : std::uint8_t {
  kAuto,
  kRegister,
  kStatic,
  kExtern,
  kTypedef,
  kSelf,
  kThis
};

struct StorageClassSpecifier {
  StorageClass storage = StorageClass::kAuto;
  diag::Range range;
};

enum class SpecifierKind : std::uint8_t {
  kVoid,
  kChar,
  kShort,
  kInt,
  kLong,
  kFloat,
  kDouble,
  kSigned,
  kUnsigned,
  kString,
  kConst,
  kVolatile,
  kRestrict,
  kTypedefName,  // name; mod`name: a type of that module
  kStruct,
  kUnion,
  kEnum,  // name (may be empty) and, with has_body, members or enumerators
};

struct Enumerator {
  std::string name;
  diag::Range range;
  ExpressionPtr value;  // nullptr: one more than the one before
};

struct TypeSpecifier {
  SpecifierKind kind = SpecifierKind::kInt;
  diag::Range range;
  std::string name;
  bool has_body = false;
  std::vector<MemberDeclaration> members;
  std::vector<Enumerator> enumerators;

  TypeSpecifier();
  TypeSpecifier(TypeSpecifier&&) noexcept;
  TypeSpecifier& operator=(TypeSpecifier&&) noexcept;
  ~TypeSpecifier();
};

// The words before the declarators, in the order written. Which go together is the checker's
// business.
struct Specifiers {
  std::vector<StorageClassSpecifier> storage;
  std::vector<TypeSpecifier> types;
  diag::Range range;
};

enum class DeclaratorPartKind : std::uint8_t { kPointer, kArray, kFunction };

// `*`, `[...]` or `(...)`.
struct DeclaratorPart {
  DeclaratorPartKind kind = DeclaratorPartKind::kPointer;
  diag::Range range;
  std::vector<SpecifierKind> qualifiers;  // kPointer: const, volatile, restrict
  ExpressionPtr size;                     // kArray: [size]; nullptr with no keys: []
  bool associative = false;               // kArray: [int, string]: `parameters` are the key types
  std::vector<Parameter> parameters;      // kFunction, and kArray if associative
  bool variadic = false;                  // ends with `...`

  DeclaratorPart();
  DeclaratorPart(DeclaratorPart&&) noexcept;
  DeclaratorPart& operator=(DeclaratorPart&&) noexcept;
  ~DeclaratorPart();
};

// A name and what surrounds it. `parts` read from the name outwards: `int *a[3]` is {array 3,
// pointer}, `int (*a)[3]` is {pointer, array 3}; a type is built from the specifiers by applying
// them from the last to the first.
struct Declarator {
  std::string name;  // empty: abstract. May hold backticks: refused by the checker (D_DECL_SCOPE)
  diag::Range name_range;
  diag::Range range;
  std::vector<DeclaratorPart> parts;
  ExpressionPtr bit_width;  // members only: `: width`
};

struct MemberDeclaration {
  Specifiers specifiers;
  std::vector<Declarator> declarators;  // at least one
  diag::Range range;
};

struct Parameter {
  Specifiers specifiers;
  Declarator declarator;  // its name may be empty
  diag::Range range;
};

// int *, struct s, my_t [3]: the declarator has no name.
struct TypeName {
  Specifiers specifiers;
  Declarator declarator;
  diag::Range range;
  std::string text;  // as written, blanks reduced to one
};
using TypeNamePtr = std::unique_ptr<TypeName>;

// ------------------------------------------------------------------------------------- expressions

template <ExpressionKind K>
struct ExpressionOf : Expression {
  static constexpr ExpressionKind kKind = K;
  ExpressionOf() : Expression(K) {}
};

// Integer and character constants, and macros that are numbers. D's type of it follows C's rules
// from the value, the suffix and the base.
struct IntegerLiteral : ExpressionOf<ExpressionKind::kInteger> {
  std::uint64_t value = 0;
  bool negative = false;  // a macro argument that begins with '-': the value is its magnitude
  bool decimal = true;    // base 10: does not become unsigned by itself
  bool unsigned_suffix = false;
  std::uint8_t long_suffixes = 0;  // 0, 1 (l) or 2 (ll)
  bool character = false;          // 'a': type int
  bool is_target = false;          // $target
};

struct StringLiteral : ExpressionOf<ExpressionKind::kString> {
  std::string value;  // escapes resolved; ends before the first NUL, as in D
};

enum class VariableScope : std::uint8_t { kGlobal, kSelf, kThis };

// x, self->x, this->x, `x, mod`x. A bare `self` is kGlobal with that name.
struct Identifier : ExpressionOf<ExpressionKind::kIdentifier> {
  VariableScope scope = VariableScope::kGlobal;
  std::string name;     // without scope and module
  bool symbol = false;  // written with a backtick: a symbol of a program, not a D variable
  std::string module;   // before the last backtick; "" : any
};

// @name or @. Its keys, if any, are those of the Index above it.
struct AggregationReference : ExpressionOf<ExpressionKind::kAggregation> {
  std::string name;  // without '@'; "_" for the unnamed one, as in DTrace
};

// base[k1, k2]: array, associative array, aggregation. At least one index.
struct Index : ExpressionOf<ExpressionKind::kIndex> {
  ExpressionPtr base;
  std::vector<ExpressionPtr> indices;
};

struct Call : ExpressionOf<ExpressionKind::kCall> {
  ExpressionPtr callee;  // anything: that it must be a name is the checker's business
  std::vector<ExpressionPtr> arguments;
};

enum class Access : std::uint8_t { kDot, kArrow };

// base.name, base->name (self-> and this-> are Identifiers).
struct Member : ExpressionOf<ExpressionKind::kMember> {
  ExpressionPtr base;
  Access access = Access::kDot;
  std::string name;
  diag::Range name_range;
};

enum class UnaryOperator : std::uint8_t {
  kPlus,
  kMinus,
  kComplement,
  kNot,
  kDereference,
  kAddress,
  kPreIncrement,
  kPreDecrement,
  kPostIncrement,
  kPostDecrement,
  kSizeof,
  kStringof,
};

struct Unary : ExpressionOf<ExpressionKind::kUnary> {
  UnaryOperator op = UnaryOperator::kPlus;
  ExpressionPtr operand;
};

enum class BinaryOperator : std::uint8_t {
  kMultiply,
  kDivide,
  kRemainder,
  kAdd,
  kSubtract,
  kShiftLeft,
  kShiftRight,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kBitAnd,
  kBitXor,
  kBitOr,
  kLogicalAnd,
  kLogicalXor,
  kLogicalOr,
  kComma,
};

struct Binary : ExpressionOf<ExpressionKind::kBinary> {
  BinaryOperator op = BinaryOperator::kAdd;
  diag::Range operator_range;
  ExpressionPtr left;
  ExpressionPtr right;
};

// target = value, or target op= value. Assignment to an aggregation (`@a[k] = count()`) is one as
// well.
struct Assign : ExpressionOf<ExpressionKind::kAssign> {
  std::optional<BinaryOperator> op;  // none: plain
  diag::Range operator_range;
  ExpressionPtr target;
  ExpressionPtr value;
};

struct Conditional : ExpressionOf<ExpressionKind::kConditional> {
  ExpressionPtr condition;
  ExpressionPtr if_true;
  ExpressionPtr if_false;
};

struct Cast : ExpressionOf<ExpressionKind::kCast> {
  TypeNamePtr type;
  ExpressionPtr operand;
};

// sizeof (type); sizeof expression is a Unary.
struct SizeofType : ExpressionOf<ExpressionKind::kSizeofType> {
  TypeNamePtr type;
};

struct Offsetof : ExpressionOf<ExpressionKind::kOffsetof> {
  TypeNamePtr type;
  std::string member;
  diag::Range member_range;
};

// xlate <type> (expression)
struct Xlate : ExpressionOf<ExpressionKind::kXlate> {
  TypeNamePtr type;
  ExpressionPtr operand;
};

// ----------------------------------------------------------------------------------- program items

enum class ItemKind : std::uint8_t {
  kClause,
  kDeclaration,
  kInline,
  kTranslator,
  kProvider,
  kPragma
};

struct Item {
  ItemKind kind;
  diag::Range range;

  virtual ~Item() = default;
  template <typename T>
  T& as() {
    TL_CHECK(kind == T::kKind);
    return static_cast<T&>(*this);
  }
  template <typename T>
  const T& as() const {
    TL_CHECK(kind == T::kKind);
    return static_cast<const T&>(*this);
  }
  template <typename T>
  const T* get_if() const {
    return kind == T::kKind ? static_cast<const T*>(this) : nullptr;
  }

 protected:
  explicit Item(ItemKind k) : kind(k) {}
};

template <ItemKind K>
struct ItemOf : Item {
  static constexpr ItemKind kKind = K;
  ItemOf() : Item(K) {}
};

// provider:module:function:name with macros expanded, or a probe's number. Empty parts match
// anything.
struct ProbeDescription {
  std::string provider;
  std::string module;
  std::string function;
  std::string name;
  std::optional<std::uint32_t> id;
  bool quoted = false;  // the function was written in quotes: a C++ or Rust name, matched in full
  std::string text;     // macros expanded, quotes kept, as the classic messages show it
  diag::Range range;
};

// A clause. Statements are expressions; without a body the default action applies.
struct Clause : ItemOf<ItemKind::kClause> {
  std::vector<ProbeDescription> probes;  // at least one
  ExpressionPtr predicate;               // nullptr: none
  bool has_body = false;                 // { } was written
  std::vector<ExpressionPtr> statements;
  diag::Range body_range;
};

// int x; self string s; struct s { ... }; typedef ...; int a[string, int];
struct Declaration : ItemOf<ItemKind::kDeclaration> {
  Specifiers specifiers;
  std::vector<Declarator> declarators;  // may be none: `struct s { };`
};

// inline int limit = 10;
struct InlineDefinition : ItemOf<ItemKind::kInline> {
  Specifiers specifiers;
  Declarator declarator;
  ExpressionPtr value;
};

struct TranslatorMember {
  std::string name;
  diag::Range name_range;
  ExpressionPtr value;
};

// translator output_t < input_t *name > { member = expression; };
struct TranslatorDefinition : ItemOf<ItemKind::kTranslator> {
  TypeNamePtr output;
  TypeNamePtr input;
  std::string parameter;
  diag::Range parameter_range;
  std::vector<TranslatorMember> members;
};

struct ProviderProbe {
  std::string name;
  diag::Range range;
  std::vector<Parameter> arguments;
  bool has_translation = false;  // probe f(native) : (translated)
  std::vector<Parameter> translated;
};

struct ProviderDefinition : ItemOf<ItemKind::kProvider> {
  std::string name;
  diag::Range name_range;
  std::vector<ProviderProbe> probes;
};

enum class PragmaKind : std::uint8_t { kOption, kAttributes, kBinding, kDependsOn };

// A #pragma D line whose form is right. The parser has acted on those that concern it (defaultargs,
// argref, pspec, empty); they are kept here as well.
struct Pragma : ItemOf<ItemKind::kPragma> {
  PragmaKind pragma = PragmaKind::kOption;
  // kOption: `name` [= `value`]. kAttributes: `value` "Stable/Stable/Common", `name` what it is set
  // on ("provider" followed by `arguments` {provider, part}). kBinding: `value` the version, `name`
  // the identifier. kDependsOn: `name` is provider, module or library, `value` which.
  std::string name;
  std::optional<std::string> value;
  std::vector<std::string> arguments;
};

struct Program {
  std::vector<std::unique_ptr<Item>> items;  // in source order
  std::uint32_t expression_count = 0;
  diag::SourceId source = diag::kNoSource;
};

// ------------------------------------------------------------------------------------------- names

std::string_view spelling(UnaryOperator op);      // "!", "++", "sizeof"
std::string_view spelling(BinaryOperator op);     // "&&", ","
std::string_view spelling(SpecifierKind kind);    // "unsigned", "struct"
std::string_view spelling(StorageClass storage);  // "self"

}  // namespace trapline::dlang
