// Tokens, items, clauses, and how the parser goes on after a mistake.

#include "dlang/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "dlang/parser_impl.h"
#include "dlang/probe_description.h"

namespace trapline::dlang {
namespace {

// Known in every D program: those that ctypes::TypeTable begins with, and that of curcpu.
constexpr std::string_view kBaseTypes[] = {
    "cpuinfo_t", "dev_t",    "gid_t",    "id_t",         "ino_t",     "int16_t", "int32_t",
    "int64_t",   "int8_t",   "intptr_t", "mode_t",       "off_t",     "pid_t",   "ptrdiff_t",
    "size_t",    "ssize_t",  "time_t",   "u_longlong_t", "uchar_t",   "uid_t",   "uint16_t",
    "uint32_t",  "uint64_t", "uint8_t",  "uint_t",       "uintptr_t", "ulong_t", "ushort_t",
};

LexerOptions lexer_options(const ParseRequest& request) {
  return {.default_arguments = request.default_arguments,
          .unused_arguments_ok = request.unused_arguments_ok,
          .empty_ok = request.empty_ok,
          .prefer_descriptions = request.prefer_descriptions};
}

std::string_view hint_for(TokenKind kind) {
  switch (kind) {
    case TokenKind::kIf:
    case TokenKind::kElse:
    case TokenKind::kSwitch:
      return "D has no such statement: use a predicate or ?:";
    case TokenKind::kFor:
    case TokenKind::kWhile:
    case TokenKind::kDo:
    case TokenKind::kGoto:
      return "D has no loops";
    case TokenKind::kReturn:
      return "a clause ends at its }";
    case TokenKind::kTypedef:
    case TokenKind::kStruct:
    case TokenKind::kInt:
    case TokenKind::kChar:
    case TokenKind::kLong:
    case TokenKind::kStringKeyword:
      return "declarations stand outside of clauses";
    default:
      return {};
  }
}

}  // namespace

TypeNames::TypeNames() {
  for (const std::string_view name : kBaseTypes) names_.emplace(name);
}

Parser::Parser(const ParseRequest& request, diag::SourceManager& sources,
               diag::Diagnostics& diagnostics)
    : request_(request),
      sources_(sources),
      diagnostics_(diagnostics),
      is_text_(sources.kind(request.source) == diag::SourceKind::kText),
      types_(request.types == nullptr ? own_types_ : *request.types),
      lexer_(request.source, request.macros, lexer_options(request), sources, diagnostics),
      program_(std::make_unique<Program>()) {
  program_->source = request.source;
}

// ------------------------------------------------------------------------------------------ tokens

const Token& Parser::peek(std::size_t ahead) {
  while (ahead_.size() <= ahead) ahead_.push_back(lexer_.next());
  return ahead_[ahead];
}

Token Parser::take() {
  peek();
  Token token = std::move(ahead_.front());
  ahead_.pop_front();
  if (token.kind != TokenKind::kEnd) last_end_ = token.range.end;
  if (token.kind == TokenKind::kLeftBrace) ++braces_;
  if (token.kind == TokenKind::kRightBrace) --braces_;
  return token;
}

bool Parser::accept(TokenKind kind) {
  if (!at(kind)) return false;
  take();
  return true;
}

bool Parser::expect(TokenKind kind) {
  if (accept(kind)) return true;
  syntax_error();
  return false;
}

bool Parser::expect_identifier(std::string& name, diag::Range& range) {
  if (!at(TokenKind::kIdentifier)) {
    syntax_error();
    return false;
  }
  const Token token = take();
  name = std::string(token.text);
  range = token.range;
  return true;
}

void Parser::leave_tokens() {
  if (!ahead_.empty()) lexer_.rewind(ahead_.front());
  ahead_.clear();
}

diag::Range Parser::since(std::uint32_t begin) const {
  return {request_.source, begin, std::max(begin, last_end_)};
}

std::nullptr_t Parser::syntax_error() { return syntax_error(peek()); }

std::nullptr_t Parser::syntax_error(const Token& token) {
  const bool ends_predicate = token.kind == TokenKind::kSlash && token.ends_predicate;
  if (ends_predicate && parens_ > 0) {
    diagnostics_.error("SYNTAX", token.range, "closing ) expected in predicate before /");
  } else if (ends_predicate && brackets_ > 0) {
    diagnostics_.error("SYNTAX", token.range, "closing ] expected in predicate before /");
  } else if (token.kind == TokenKind::kRightParen && parens_ == 0) {
    diagnostics_.error("SYNTAX", token.range, "extra ) in input stream");
  } else if (token.kind == TokenKind::kRightBracket && brackets_ == 0) {
    diagnostics_.error("SYNTAX", token.range, "extra ] in input stream");
  } else {
    near_error(token);
  }
  return nullptr;
}

void Parser::near_error(const Token& token) {
  // The lexer has said why.
  if (token.kind == TokenKind::kError || lexer_.control_failed()) return;
  if (token.kind == TokenKind::kEnd) {
    diagnostics_.error("SYNTAX", token.range, "syntax error near end of input");
    return;
  }
  diagnostics_.error("SYNTAX", token.range,
                     fmt::format("syntax error near \"{}\"", brief(sources_.text(token.range))),
                     std::string(hint_for(token.kind)));
}

void Parser::too_deep() {
  diagnostics_.error("SYNTAX", peek().range,
                     fmt::format("nested too deeply: more than {} levels", kMaxNesting));
}

// ------------------------------------------------------------------------------------------- items

ParseResult Parser::program() {
  for (;;) {
    const Token token = lexer_.next_outer();
    push_pragmas();
    if (token.kind == TokenKind::kEnd) break;
    parens_ = brackets_ = braces_ = 0;
    last_end_ = token.range.begin;
    item(token);
    push_pragmas();
    leave_tokens();
  }
  check_arguments();
  program_->expression_count = expression_count_;
  ParseResult result;
  result.program = std::move(program_);
  result.arguments_used = lexer_.arguments_used();
  result.default_arguments = lexer_.options().default_arguments;
  result.unused_arguments_ok = lexer_.options().unused_arguments_ok;
  result.empty_ok = lexer_.options().empty_ok;
  return result;
}

void Parser::item(const Token& first) {
  if (first.kind == TokenKind::kError) {
    if (!lexer_.at_end()) recover_item();
    return;
  }
  if (first.kind == TokenKind::kDescription && is_declaration(first)) {
    lexer_.rewind(first);
    bool good = false;
    switch (peek().kind) {
      case TokenKind::kInline:
        good = inline_definition();
        break;
      case TokenKind::kTranslator:
        good = translator();
        break;
      case TokenKind::kProvider:
        good = provider();
        break;
      default:
        good = declaration();
        break;
    }
    if (!good) recover_item();
    return;
  }
  if (first.kind == TokenKind::kDescription || first.kind == TokenKind::kInteger)
    return clause(first);
  near_error(first);
  lexer_.rewind(first);
  recover_item();
}

// A word outside of clauses begins a declaration if it is a keyword for one or a type's name;
// `foo*` is the pointer type, not the glob, if foo is a type and descriptions are not preferred.
bool Parser::is_declaration(const Token& word) {
  if (begins_declaration(keyword_kind(word.text))) return true;
  if (lexer_.options().prefer_descriptions || is_text_) return false;
  const std::string_view name = word.text.substr(0, word.text.find('*', 1));
  const bool plain = std::all_of(word.text.begin(), word.text.end(), [](char c) {
    return (is_identifier_char(c) && c != '`') || c == '*';
  });
  if (!plain || name == "BEGIN" || name == "END" || name == "ERROR") return false;
  return begins_declaration(keyword_kind(name)) || is_type_name(name);
}

void Parser::push_item(std::unique_ptr<Item> item, std::uint32_t begin) {
  push_pragmas();  // those within the item act before it
  item->range = since(begin);
  program_->items.push_back(std::move(item));
}

void Parser::push_pragmas() {
  for (std::unique_ptr<Pragma>& pragma : lexer_.take_pragmas())
    program_->items.push_back(std::move(pragma));
}

void Parser::check_arguments() {
  if (diagnostics_.has_errors()) return;
  const bool any = std::any_of(program_->items.begin(), program_->items.end(),
                               [](const auto& item) { return item->kind != ItemKind::kPragma; });
  if (!any && !lexer_.options().empty_ok) {
    diagnostics_.error("EMPTY", lexer_.end_of_source(), "empty D program translation unit");
    return;
  }
  const std::vector<bool>& used = lexer_.arguments_used();
  if (used.size() > 1 && !used.back() && !lexer_.options().unused_arguments_ok) {
    diagnostics_.error("MACRO_UNUSED", lexer_.end_of_source(),
                       fmt::format("extraneous argument '{}' (${} is not referenced)",
                                   brief(request_.macros->arguments.back()), used.size() - 1),
                       "the option argref allows it");
  }
}

// ----------------------------------------------------------------------------------------- clauses

bool Parser::description(const Token& token, Clause& clause) {
  static constexpr std::string_view kWhat[] = {"names", "providers", "modules", "functions"};
  if (token.kind == TokenKind::kInteger) {
    ProbeDescription probe;
    const std::uint64_t id = token.integer.value;
    if (id > std::numeric_limits<std::uint32_t>::max()) {
      diagnostics_.error("PDESC_INVAL", token.range,
                         fmt::format("identifier {} exceeds maximum probe id", id));
      return false;
    }
    if (request_.kind != DescriptionKind::kName && request_.kind != DescriptionKind::kId) {
      diagnostics_.error("PDESC_INVAL", token.range,
                         fmt::format("probe identifier {} not permitted when specifying {}", id,
                                     kWhat[static_cast<std::size_t>(request_.kind)]));
      return false;
    }
    probe.id = static_cast<std::uint32_t>(id);
    probe.text = std::string(token.text);
    probe.range = token.range;
    clause.probes.push_back(std::move(probe));
    return true;
  }
  DescriptionResult result = parse_description(
      token.text, request_.kind,
      [this](std::string_view name, std::string& value) { return lexer_.expand(name, value); });
  if (!result.problem.empty()) {
    diagnostics_.error(
        "PDESC_INVAL", token.range,
        fmt::format("invalid probe description \"{}\": {}", brief(token.text), result.problem),
        std::move(result.hint));
    return false;
  }
  result.probe.range = token.range;
  clause.probes.push_back(std::move(result.probe));
  return true;
}

void Parser::clause(const Token& first) {
  auto clause = std::make_unique<Clause>();
  bool good = true;  // a wrong description does not keep the rest of the clause from being read
  Token token = first;
  for (;;) {
    good = description(token, *clause) && good;
    last_end_ = token.range.end;
    token = lexer_.next_outer();
    if (token.kind != TokenKind::kComma) break;
    token = lexer_.next_outer();
    if (token.kind != TokenKind::kDescription && token.kind != TokenKind::kInteger) {
      near_error(token);
      lexer_.rewind(token);
      return recover_item();
    }
  }
  lexer_.rewind(token);
  if (token.kind == TokenKind::kSlash) {
    if (!predicate(*clause)) return recover_item();
  } else if (token.kind != TokenKind::kLeftBrace) {
    if (token.kind == TokenKind::kError) return recover_item();
    if (is_text_) {
      if (good) push_item(std::move(clause), first.range.begin);
    } else if (good) {
      diagnostics_.error("SYNTAX", first.range,
                         "expected predicate and/or actions following probe description");
    }
    return;
  }
  if (!body(*clause)) return recover_item();
  if (good) push_item(std::move(clause), first.range.begin);
}

// Precondition: at the opening `/`. Afterwards at the `{`.
bool Parser::predicate(Clause& clause) {
  take();
  clause.predicate = expression();
  if (clause.predicate == nullptr) return false;
  if (!at(TokenKind::kSlash)) {
    syntax_error();
    return false;
  }
  take();
  if (!at(TokenKind::kLeftBrace)) {
    diagnostics_.error("SYNTAX", clause.predicate->range,
                       "expected actions { } following probe description and predicate");
    return false;
  }
  return true;
}

// Precondition: at `{`. Statements that are wrong are left out. False: the end of the text came
// first.
bool Parser::body(Clause& clause) {
  const Token open = take();
  clause.has_body = true;
  for (;;) {
    parens_ = brackets_ = 0;
    nesting_ = 0;
    if (accept(TokenKind::kSemicolon)) continue;
    if (accept(TokenKind::kRightBrace)) break;
    ExpressionPtr statement = expression();
    if (statement != nullptr && !at(TokenKind::kSemicolon) && !at(TokenKind::kRightBrace)) {
      syntax_error();
      statement = nullptr;
    }
    if (statement != nullptr) {
      clause.statements.push_back(std::move(statement));
      continue;
    }
    if (at(TokenKind::kEnd)) return false;
    recover_statement();
  }
  clause.body_range = since(open.range.begin);
  return true;
}

// ---------------------------------------------------------------------------------------- recovery

// To the `;` that ends the statement, which is taken, or to the clause's `}`, which is not. Braces
// within are skipped in pairs (an `if` with its blocks).
void Parser::recover_statement() {
  lexer_.set_quiet(true);
  const int outside = braces_;
  while (!at(TokenKind::kEnd)) {
    if (braces_ == outside && at(TokenKind::kRightBrace)) break;
    if (take().kind == TokenKind::kSemicolon && braces_ == outside) break;
  }
  lexer_.set_quiet(false);
}

// To the end of the item: its last `}` with the `;` that may follow, or a `;` outside of braces.
void Parser::recover_item() {
  lexer_.set_quiet(true);
  nesting_ = 0;
  while (!at(TokenKind::kEnd)) {
    const TokenKind kind = take().kind;
    if (braces_ > 0) continue;
    if (kind == TokenKind::kSemicolon) break;
    if (kind != TokenKind::kRightBrace) continue;
    if (accept(TokenKind::kSemicolon)) break;
    // `struct s { ... } name;` goes on, what begins on another line is the next item.
    const bool same_line =
        sources_.text({request_.source, last_end_, peek().range.begin}).find('\n') ==
        std::string_view::npos;
    if (!same_line || !(at(TokenKind::kIdentifier) || at(TokenKind::kStar))) break;
  }
  leave_tokens();
  lexer_.set_quiet(false);
}

// ------------------------------------------------------------------------------------ entry points

ExpressionPtr Parser::whole_expression() {
  ExpressionPtr result = expression();
  if (result != nullptr && !at(TokenKind::kEnd)) return syntax_error();
  return result;
}

TypeNamePtr Parser::whole_type_name() {
  TypeNamePtr result = type_name();
  if (result != nullptr && !at(TokenKind::kEnd)) return syntax_error();
  return result;
}

ParseResult parse(const ParseRequest& request, diag::SourceManager& sources,
                  diag::Diagnostics& diagnostics) {
  return Parser(request, sources, diagnostics).program();
}

ExpressionPtr parse_expression(const ParseRequest& request, diag::SourceManager& sources,
                               diag::Diagnostics& diagnostics) {
  return Parser(request, sources, diagnostics).whole_expression();
}

TypeNamePtr parse_type_name(const ParseRequest& request, diag::SourceManager& sources,
                            diag::Diagnostics& diagnostics) {
  return Parser(request, sources, diagnostics).whole_type_name();
}

}  // namespace trapline::dlang
