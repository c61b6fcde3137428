// D text to tokens, on demand.
//
// What a token is depends on the place. Outside of clauses `pid$target:libc.so.6:*alloc:entry` is
// one word (next_outer); everywhere else the tokens are C's, with D's additions (next). The parser
// says which it wants, and must not have asked for a token beyond the place where that changes.
//
// Lines that begin with '#' are handled here: line markers go to the SourceManager, pragmas are
// queued for the parser, and options that change how the rest is read (defaultargs, argref, pspec,
// empty) take effect at once.
//
// Macros ($1, $$1, $target, $$pid) become the token their text is.
//
// A script may be megabytes long: all work is linear in it.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diag/diagnostic.h"
#include "diag/source.h"
#include "dlang/ast.h"
#include "dlang/parser.h"
#include "dlang/token.h"

namespace trapline::dlang {

struct LexerOptions {
  bool default_arguments = false;
  bool unused_arguments_ok = false;
  bool empty_ok = false;
  bool prefer_descriptions = false;
};

struct ControlWord;

class Lexer {
 public:
  // `macros` may be nullptr. Everything must outlive the lexer and its tokens.
  Lexer(diag::SourceId source, const Macros* macros, LexerOptions options,
        diag::SourceManager& sources, diag::Diagnostics& diagnostics);

  Token next();        // in declarations and clauses
  Token next_outer();  // outside: kDescription, kInteger, `,` `/` `{` and what cannot be there

  // Goes back to where a token of next_outer() began, to read it with next().
  void rewind(const Token& token);

  // The pragmas met since the last call, in order.
  std::vector<std::unique_ptr<Pragma>> take_pragmas() { return std::exchange(pragmas_, {}); }

  // The text of $name or $1 as it stands in a probe description. Reports and returns false if
  // undefined. `name` has no '$'.
  bool expand(std::string_view name, std::string& text);

  // While what follows a mistake is skipped, its own mistakes are not reported.
  void set_quiet(bool quiet) { quiet_ = quiet; }

  // A line that begins with '#' had a mistake: what it was for may be missed later.
  bool control_failed() const { return control_failed_; }

  const LexerOptions& options() const { return options_; }
  const std::vector<bool>& arguments_used() const { return arguments_used_; }
  diag::Range end_of_source() const;
  bool at_end() const { return at_ >= text_.size(); }

 private:
  // lexer.cc
  bool skip_blank();  // false: an error was reported
  bool skip_comment();
  bool line_is_blank_before(std::size_t at) const;
  Token make(TokenKind kind, std::size_t begin);
  Token error(std::string_view tag, std::size_t begin, std::size_t end, std::string text,
              std::string hint = {});
  void report(std::string_view tag, diag::Range range, std::string text, std::string hint = {});
  diag::Range range(std::size_t begin, std::size_t end) const;
  Token stray_character(std::size_t begin);
  Token punctuation();
  Token slash();
  Token identifier();
  Token aggregation();
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  // lexer_literal.cc
  Token number();
  Token integer();
  Token string();
  Token character();

  // lexer_macro.cc
  Token macro(bool member);
  Token argument_token(Token token, std::string_view text, bool member);
  Token undefined_macro(const Token& token, std::string_view what);
  // Marks it as used; nullptr: undefined.
  const std::string* argument(std::size_t index);

  // lexer_control.cc
  bool control_line();
  void control_error(std::string_view tag, diag::Range range, std::string text,
                     std::string hint = {});
  void directive(const std::vector<ControlWord>& words, std::size_t next_line);
  void line_directive(const std::vector<ControlWord>& words, std::size_t first,
                      std::size_t next_line);

  diag::SourceId source_;
  std::string_view text_;
  std::size_t at_ = 0;
  bool member_next_ = false;  // after `.` and `->` words are members, keywords too
  bool quiet_ = false;
  bool control_failed_ = false;
  const Macros* macros_;
  LexerOptions options_;
  diag::SourceManager& sources_;
  diag::Diagnostics& diagnostics_;
  std::vector<bool> arguments_used_;
  std::vector<std::unique_ptr<Pragma>> pragmas_;
};

// C's escapes in the text between quotes. An unknown one stays as written, as in DTrace.
std::string resolve_escapes(std::string_view text);

// Reads digits and suffix as a constant; what stops it is in `rest`. False: more than 64 bits.
bool read_integer(std::string_view text, IntegerValue& value, std::string_view& rest);

bool is_identifier_start(char c);  // letters, '_', '`'
bool is_identifier_char(char c);
bool is_digit(char c);
bool is_blank(char c);  // white space, newline included

}  // namespace trapline::dlang
