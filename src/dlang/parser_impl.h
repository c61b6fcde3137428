// The parser's class. Private to parser*.cc: use parser.h.
//
// Conventions: a function for a grammar rule returns nullptr or false after it (or a callee) has
// reported a mistake; callers return at once, and the function for the statement or item recovers.

#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dlang/ast.h"
#include "dlang/lexer.h"
#include "dlang/parser.h"
#include "dlang/token.h"

namespace trapline::dlang {

class Parser {
 public:
  Parser(const ParseRequest& request, diag::SourceManager& sources, diag::Diagnostics& diagnostics);

  ParseResult program();
  ExpressionPtr whole_expression();
  TypeNamePtr whole_type_name();

 private:
  // Where specifiers stand: which storage classes there may be.
  enum class Place : std::uint8_t { kExternal, kMember, kParameter, kTypeName };
  enum class Naming : std::uint8_t { kNamed, kAbstract, kEither };

  // Counts nesting while it lives. ok() is false, and reported, beyond the limit.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser), ok_(++parser.nesting_ <= kMaxNesting) {
      if (!ok_) parser.too_deep();
    }
    ~Nest() { --parser_.nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    bool ok() const { return ok_; }

   private:
    Parser& parser_;
    bool ok_;
  };

  // parser.cc: tokens
  const Token& peek(std::size_t ahead = 0);
  Token take();
  bool at(TokenKind kind) { return peek().kind == kind; }
  bool accept(TokenKind kind);
  bool expect(TokenKind kind);  // else a syntax error
  bool expect_identifier(std::string& name, diag::Range& range);
  void leave_tokens();  // gives back what was peeked: the next token is one of next_outer()
  std::nullptr_t syntax_error();  // near what is peeked
  std::nullptr_t syntax_error(const Token& token);
  void near_error(const Token& token);
  void too_deep();
  diag::Range since(std::uint32_t begin) const;  // from there to the end of the last token taken

  // parser.cc: items
  void item(const Token& first);
  bool is_declaration(const Token& word);
  void clause(const Token& first);
  bool description(const Token& token, Clause& clause);
  bool predicate(Clause& clause);
  bool body(Clause& clause);
  void push_item(std::unique_ptr<Item> item, std::uint32_t begin);
  void push_pragmas();
  void recover_statement();
  void recover_item();
  void check_arguments();

  // parser_declaration.cc
  bool declaration();
  bool in_header();
  void skip_function_body();
  bool inline_definition();
  bool translator();
  bool provider();
  bool provider_probe(ProviderDefinition& provider);
  bool specifiers(Place place, Specifiers& out);
  bool struct_or_union(TypeSpecifier& out);
  bool member(TypeSpecifier& out);
  bool enumeration(TypeSpecifier& out);
  bool declarator(Naming naming, Declarator& out);
  bool pointers(std::vector<DeclaratorPart>& out);
  bool is_nested_declarator(Naming naming);
  bool array(DeclaratorPart& out);
  bool parameters(TokenKind closing, DeclaratorPart& out);
  bool function(DeclaratorPart& out);
  TypeNamePtr type_name();
  bool starts_type(std::size_t ahead);
  bool is_type_name(std::string_view name);
  std::nullptr_t unknown_type(const Token& token);
  void declare(const Specifiers& specifiers, const Declarator& declarator);

  // parser_expression.cc
  ExpressionPtr expression();
  ExpressionPtr assignment();
  ExpressionPtr conditional();
  ExpressionPtr binary(int least);
  ExpressionPtr cast();
  ExpressionPtr unary();
  ExpressionPtr postfix();
  ExpressionPtr primary();
  ExpressionPtr parenthesized();
  ExpressionPtr sizeof_expression();
  ExpressionPtr offsetof_expression();
  ExpressionPtr xlate_expression();
  ExpressionPtr identifier(const Token& token);
  ExpressionPtr member_access(ExpressionPtr base);
  bool arguments(TokenKind closing, std::vector<ExpressionPtr>& out);
  bool begins_cast();

  template <std::derived_from<Expression> T>
  std::unique_ptr<T> make() {
    auto node = std::make_unique<T>();
    node->id = expression_count_++;
    return node;
  }
  // Sets range and depth. nullptr, and reported, if the tree is too deep. `children` are not null.
  ExpressionPtr finish(ExpressionPtr node, std::uint32_t begin,
                       std::initializer_list<const Expression*> children);
  ExpressionPtr finish(ExpressionPtr node, std::uint32_t begin, const Expression* first,
                       const std::vector<ExpressionPtr>& others);
  ExpressionPtr finish_at_depth(ExpressionPtr node, std::uint32_t begin, std::uint32_t deepest);

  const ParseRequest& request_;
  diag::SourceManager& sources_;
  diag::Diagnostics& diagnostics_;
  bool is_text_;  // an argument of the command: descriptions need no body
  TypeNames own_types_;
  TypeNames& types_;
  std::set<std::string, std::less<>> variables_;  // declared or assigned so far: no types
  Lexer lexer_;
  std::deque<Token> ahead_;
  std::uint32_t last_end_ = 0;  // of the last token taken
  std::uint32_t nesting_ = 0;
  std::uint32_t expression_count_ = 0;
  int parens_ = 0;  // open in this statement or predicate
  int brackets_ = 0;
  int braces_ = 0;  // open in this item
  std::unique_ptr<Program> program_;
};

}  // namespace trapline::dlang
