// Declarations, type names, inlines, translators, providers.
//
// Which specifiers go together, and whether a type can be declared, is the checker's business.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "dlang/parser_impl.h"

namespace trapline::dlang {
namespace {

std::optional<StorageClass> storage_class(TokenKind kind) {
  switch (kind) {
    case TokenKind::kAuto:
      return StorageClass::kAuto;
    case TokenKind::kRegister:
      return StorageClass::kRegister;
    case TokenKind::kStatic:
      return StorageClass::kStatic;
    case TokenKind::kExtern:
      return StorageClass::kExtern;
    case TokenKind::kTypedef:
      return StorageClass::kTypedef;
    case TokenKind::kSelf:
      return StorageClass::kSelf;
    case TokenKind::kThis:
      return StorageClass::kThis;
    default:
      return std::nullopt;
  }
}

std::optional<SpecifierKind> specifier_kind(TokenKind kind) {
  switch (kind) {
    case TokenKind::kVoid:
      return SpecifierKind::kVoid;
    case TokenKind::kChar:
      return SpecifierKind::kChar;
    case TokenKind::kShort:
      return SpecifierKind::kShort;
    case TokenKind::kInt:
      return SpecifierKind::kInt;
    case TokenKind::kLong:
      return SpecifierKind::kLong;
    case TokenKind::kFloat:
      return SpecifierKind::kFloat;
    case TokenKind::kDouble:
      return SpecifierKind::kDouble;
    case TokenKind::kSigned:
      return SpecifierKind::kSigned;
    case TokenKind::kUnsigned:
      return SpecifierKind::kUnsigned;
    case TokenKind::kStringKeyword:
      return SpecifierKind::kString;
    case TokenKind::kConst:
      return SpecifierKind::kConst;
    case TokenKind::kVolatile:
      return SpecifierKind::kVolatile;
    case TokenKind::kRestrict:
      return SpecifierKind::kRestrict;
    case TokenKind::kStruct:
      return SpecifierKind::kStruct;
    case TokenKind::kUnion:
      return SpecifierKind::kUnion;
    case TokenKind::kEnum:
      return SpecifierKind::kEnum;
    default:
      return std::nullopt;
  }
}

// Whether a specifier names a type by itself, after which a word is the name that is declared.
// `unsigned` does not.
bool names_type(SpecifierKind kind) {
  switch (kind) {
    case SpecifierKind::kShort:
    case SpecifierKind::kLong:
    case SpecifierKind::kSigned:
    case SpecifierKind::kUnsigned:
    case SpecifierKind::kConst:
    case SpecifierKind::kVolatile:
    case SpecifierKind::kRestrict:
      return false;
    default:
      return true;
  }
}

bool is_qualifier(SpecifierKind kind) {
  return kind == SpecifierKind::kConst || kind == SpecifierKind::kVolatile ||
         kind == SpecifierKind::kRestrict;
}

// D`name and C`name are the program's own types, whatever else has the name.
std::string without_own_scope(std::string_view name) {
  if (name.starts_with("D`") || name.starts_with("C`")) name.remove_prefix(2);
  return std::string(name);
}

// Text with runs of white space made one blank.
std::string squeeze(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (!is_blank(c)) {
      result.push_back(c);
    } else if (!result.empty() && result.back() != ' ') {
      result.push_back(' ');
    }
  }
  return result;
}

}  // namespace

std::nullptr_t Parser::unknown_type(const Token& token) {
  if (token.kind != TokenKind::kIdentifier) return syntax_error(token);
  diagnostics_.error(
      "SYNTAX", token.range,
      fmt::format("syntax error near \"{0}\": no type is called \"{0}\"", brief(token.text)));
  return nullptr;
}

bool Parser::starts_type(std::size_t ahead) {
  const Token& token = peek(ahead);
  if (token.kind == TokenKind::kIdentifier) return is_type_name(token.text);
  return specifier_kind(token.kind).has_value();
}

bool Parser::specifiers(Place place, Specifiers& out) {
  const std::uint32_t begin = peek().range.begin;
  bool named = false;
  for (;;) {
    const Token& token = peek();
    const std::optional<StorageClass> storage = storage_class(token.kind);
    const bool allowed = place == Place::kExternal ||
                         (place == Place::kParameter && token.kind != TokenKind::kSelf &&
                          token.kind != TokenKind::kThis);
    if (storage && allowed) {
      out.storage.push_back({*storage, take().range});
      continue;
    }
    if (token.kind == TokenKind::kInline && !out.storage.empty() && in_header()) {
      take();  // `static inline`
      continue;
    }
    TypeSpecifier specifier;
    const std::optional<SpecifierKind> kind = specifier_kind(token.kind);
    if (kind) {
      specifier.kind = *kind;
    } else if (token.kind == TokenKind::kIdentifier && !named && is_type_name(token.text)) {
      specifier.kind = SpecifierKind::kTypedefName;
      specifier.name = without_own_scope(token.text);
    } else {
      break;
    }
    specifier.range = take().range;
    if (specifier.kind == SpecifierKind::kStruct || specifier.kind == SpecifierKind::kUnion) {
      if (!struct_or_union(specifier)) return false;
    } else if (specifier.kind == SpecifierKind::kEnum) {
      if (!enumeration(specifier)) return false;
    }
    named = named || names_type(specifier.kind);
    out.types.push_back(std::move(specifier));
  }
  out.range = since(begin);
  if (!out.types.empty() ||
      (place == Place::kExternal && !out.storage.empty() && at(TokenKind::kIdentifier) &&
       out.storage.back().storage != StorageClass::kTypedef)) {
    return true;
  }
  unknown_type(peek());
  return false;
}

// After `struct` or `union`.
bool Parser::struct_or_union(TypeSpecifier& out) {
  const std::uint32_t begin = out.range.begin;
  if (at(TokenKind::kIdentifier)) out.name = std::string(take().text);
  if (!at(TokenKind::kLeftBrace)) {
    if (out.name.empty()) return expect(TokenKind::kIdentifier);
    out.name = without_own_scope(out.name);
    out.range = since(begin);
    return true;
  }
  const Nest nest(*this);
  if (!nest.ok()) return false;
  take();
  out.has_body = true;
  do {
    if (!member(out)) return false;
  } while (!at(TokenKind::kRightBrace));
  take();
  out.range = since(begin);
  return true;
}

bool Parser::member(TypeSpecifier& out) {
  const std::uint32_t begin = peek().range.begin;
  MemberDeclaration member;
  if (!specifiers(Place::kMember, member.specifiers)) return false;
  do {
    Declarator declared;
    if (!at(TokenKind::kColon) && !declarator(Naming::kNamed, declared)) return false;
    if (accept(TokenKind::kColon)) {
      declared.bit_width = conditional();
      if (declared.bit_width == nullptr) return false;
    }
    member.declarators.push_back(std::move(declared));
  } while (accept(TokenKind::kComma));
  if (!expect(TokenKind::kSemicolon)) return false;
  member.range = since(begin);
  out.members.push_back(std::move(member));
  return true;
}

// After `enum`.
bool Parser::enumeration(TypeSpecifier& out) {
  const std::uint32_t begin = out.range.begin;
  if (at(TokenKind::kIdentifier)) out.name = std::string(take().text);
  if (!at(TokenKind::kLeftBrace)) {
    if (out.name.empty()) return expect(TokenKind::kIdentifier);
    out.name = without_own_scope(out.name);
    out.range = since(begin);
    return true;
  }
  take();
  out.has_body = true;
  do {
    Enumerator enumerator;
    if (!expect_identifier(enumerator.name, enumerator.range)) return false;
    // Oracle's grammar has a whole expression here, comma included, which then swallows the next
    // enumerator.
    if (accept(TokenKind::kAssign) && (enumerator.value = assignment()) == nullptr) return false;
    out.enumerators.push_back(std::move(enumerator));
  } while (accept(TokenKind::kComma));
  if (!expect(TokenKind::kRightBrace)) return false;
  out.range = since(begin);
  return true;
}

bool Parser::pointers(std::vector<DeclaratorPart>& out) {
  while (at(TokenKind::kStar)) {
    DeclaratorPart part;
    part.kind = DeclaratorPartKind::kPointer;
    part.range = take().range;
    for (;;) {
      const std::optional<SpecifierKind> kind = specifier_kind(peek().kind);
      if (!kind || !is_qualifier(*kind)) break;
      take();
      part.qualifiers.push_back(*kind);
    }
    out.push_back(std::move(part));
  }
  return true;
}

// At `(`: whether it encloses a declarator rather than parameters.
bool Parser::is_nested_declarator(Naming naming) {
  switch (peek(1).kind) {
    case TokenKind::kStar:
    case TokenKind::kLeftParen:
    case TokenKind::kLeftBracket:
      return true;
    case TokenKind::kIdentifier:
      return naming != Naming::kAbstract && !is_type_name(peek(1).text);
    default:
      return false;
  }
}

bool Parser::declarator(Naming naming, Declarator& out) {
  const Nest nest(*this);
  if (!nest.ok()) return false;
  const std::uint32_t begin = peek().range.begin;
  std::vector<DeclaratorPart> stars;
  if (!pointers(stars)) return false;
  if (at(TokenKind::kLeftParen) && is_nested_declarator(naming)) {
    take();
    ++parens_;
    if (!declarator(naming, out) || !expect(TokenKind::kRightParen)) return false;
    --parens_;
  } else if (naming != Naming::kAbstract && at(TokenKind::kIdentifier)) {
    const Token token = take();
    out.name = std::string(token.text);
    out.name_range = token.range;
  } else if (naming == Naming::kNamed) {
    syntax_error();
    return false;
  }
  while (at(TokenKind::kLeftBracket) || at(TokenKind::kLeftParen)) {
    DeclaratorPart part;
    if (!(at(TokenKind::kLeftBracket) ? array(part) : function(part))) return false;
    out.parts.push_back(std::move(part));
  }
  // The star next to the name is the outermost part of the type: `int *const *p` is a pointer to a
  // const pointer.
  std::move(stars.rbegin(), stars.rend(), std::back_inserter(out.parts));
  out.range = since(begin);
  return true;
}

bool Parser::array(DeclaratorPart& out) {
  const std::uint32_t begin = take().range.begin;
  ++brackets_;
  out.kind = DeclaratorPartKind::kArray;
  if (accept(TokenKind::kRightBracket)) {
    // no size: the checker says what it thinks of it
  } else if (at(TokenKind::kEllipsis) || starts_type(0)) {
    out.associative = true;
    if (!parameters(TokenKind::kRightBracket, out)) return false;
  } else {
    out.size = conditional();
    if (out.size == nullptr || !expect(TokenKind::kRightBracket)) return false;
  }
  --brackets_;
  out.range = since(begin);
  return true;
}

bool Parser::function(DeclaratorPart& out) {
  if (!at(TokenKind::kLeftParen)) return expect(TokenKind::kLeftParen);
  const std::uint32_t begin = take().range.begin;
  ++parens_;
  out.kind = DeclaratorPartKind::kFunction;
  if (!accept(TokenKind::kRightParen) && !parameters(TokenKind::kRightParen, out)) return false;
  --parens_;
  out.range = since(begin);
  return true;
}

bool Parser::parameters(TokenKind closing, DeclaratorPart& out) {
  do {
    if (accept(TokenKind::kEllipsis)) {
      out.variadic = true;
      break;
    }
    Parameter parameter;
    const std::uint32_t begin = peek().range.begin;
    if (!specifiers(Place::kParameter, parameter.specifiers)) return false;
    if (!declarator(Naming::kEither, parameter.declarator)) return false;
    parameter.range = since(begin);
    out.parameters.push_back(std::move(parameter));
  } while (accept(TokenKind::kComma));
  return expect(closing);
}

TypeNamePtr Parser::type_name() {
  auto type = std::make_unique<TypeName>();
  const std::uint32_t begin = peek().range.begin;
  if (!specifiers(Place::kTypeName, type->specifiers)) return nullptr;
  if (!declarator(Naming::kAbstract, type->declarator)) return nullptr;
  type->range = since(begin);
  type->text = squeeze(sources_.text(type->range));
  return type;
}

// Makes the name known to what follows: as a type, or as a variable, which hides a type.
void Parser::declare(const Specifiers& specifiers, const Declarator& declarator) {
  bool is_typedef = false;
  bool scoped = false;
  for (const StorageClassSpecifier& storage : specifiers.storage) {
    is_typedef = is_typedef || storage.storage == StorageClass::kTypedef;
    scoped =
        scoped || storage.storage == StorageClass::kSelf || storage.storage == StorageClass::kThis;
  }
  if (is_typedef) {
    types_.add(declarator.name);
  } else if (!scoped) {
    variables_.insert(declarator.name);
  }
}

// System headers define inline functions (glibc's <endian.h> does), which D has no use for: in what
// the preprocessor included they are taken as declarations.
bool Parser::in_header() { return sources_.position(peek().range.start()).renamed; }

void Parser::skip_function_body() {
  lexer_.set_quiet(true);
  const int outside = braces_;
  do {
    take();
  } while (braces_ > outside && !at(TokenKind::kEnd));
  lexer_.set_quiet(false);
}

bool Parser::declaration() {
  auto item = std::make_unique<Declaration>();
  const std::uint32_t begin = peek().range.begin;
  if (!specifiers(Place::kExternal, item->specifiers)) return false;
  if (!at(TokenKind::kSemicolon)) {
    do {
      Declarator declared;
      if (!declarator(Naming::kNamed, declared)) return false;
      declare(item->specifiers, declared);
      const bool is_function =
          !declared.parts.empty() && declared.parts.front().kind == DeclaratorPartKind::kFunction;
      item->declarators.push_back(std::move(declared));
      if (is_function && at(TokenKind::kLeftBrace) && in_header()) {
        skip_function_body();
        push_item(std::move(item), begin);
        return true;
      }
    } while (accept(TokenKind::kComma));
    if (at(TokenKind::kAssign)) {
      diagnostics_.error("SYNTAX", peek().range, "syntax error near \"=\"",
                         "a declaration has no value: assign it in BEGIN, or use inline");
      return false;
    }
  }
  if (!expect(TokenKind::kSemicolon)) return false;
  push_item(std::move(item), begin);
  return true;
}

bool Parser::inline_definition() {
  auto item = std::make_unique<InlineDefinition>();
  const std::uint32_t begin = take().range.begin;
  if (!specifiers(Place::kExternal, item->specifiers) ||
      !declarator(Naming::kNamed, item->declarator))
    return false;
  declare(item->specifiers, item->declarator);
  if (!expect(TokenKind::kAssign)) return false;
  item->value = assignment();
  if (item->value == nullptr || !expect(TokenKind::kSemicolon)) return false;
  push_item(std::move(item), begin);
  return true;
}

bool Parser::translator() {
  auto item = std::make_unique<TranslatorDefinition>();
  const std::uint32_t begin = take().range.begin;
  item->output = type_name();
  if (item->output == nullptr || !expect(TokenKind::kLess)) return false;
  item->input = type_name();
  if (item->input == nullptr || !expect_identifier(item->parameter, item->parameter_range))
    return false;
  if (!expect(TokenKind::kGreater) || !expect(TokenKind::kLeftBrace)) return false;
  while (!at(TokenKind::kRightBrace)) {
    parens_ = brackets_ = 0;
    TranslatorMember member;
    if (!expect_identifier(member.name, member.name_range) || !expect(TokenKind::kAssign))
      return false;
    member.value = assignment();
    if (member.value == nullptr || !expect(TokenKind::kSemicolon)) return false;
    item->members.push_back(std::move(member));
  }
  take();
  if (!expect(TokenKind::kSemicolon)) return false;
  push_item(std::move(item), begin);
  return true;
}

bool Parser::provider_probe(ProviderDefinition& provider) {
  ProviderProbe probe;
  const std::uint32_t begin = peek().range.begin;
  diag::Range name_range;
  DeclaratorPart native;
  if (!expect(TokenKind::kProbe) || !expect_identifier(probe.name, name_range) || !function(native))
    return false;
  probe.arguments = std::move(native.parameters);
  if (accept(TokenKind::kColon)) {
    DeclaratorPart translated;
    if (!function(translated)) return false;
    probe.has_translation = true;
    probe.translated = std::move(translated.parameters);
  }
  if (!expect(TokenKind::kSemicolon)) return false;
  probe.range = since(begin);
  provider.probes.push_back(std::move(probe));
  return true;
}

bool Parser::provider() {
  auto item = std::make_unique<ProviderDefinition>();
  const std::uint32_t begin = take().range.begin;
  if (!expect_identifier(item->name, item->name_range) || !expect(TokenKind::kLeftBrace))
    return false;
  while (!at(TokenKind::kRightBrace)) {
    if (!provider_probe(*item)) return false;
  }
  take();
  if (!expect(TokenKind::kSemicolon)) return false;
  push_item(std::move(item), begin);
  return true;
}

}  // namespace trapline::dlang
