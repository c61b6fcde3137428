// Macros: $1 becomes an integer, a word or a string, whichever the argument looks like; $$1 always
// a string. $pid and the like are integers, $$pid strings.
//
// What an argument looks like is decided as DTrace does: a number (with sign), else a word of
// letters, digits, '_' and
// '`', else a string, whose enclosing quotes are taken off. Unlike DTrace, a number with trailing
// junk ("5x") is refused instead of being cut.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/check.h"
#include "dlang/lexer.h"

namespace trapline::dlang {
namespace {

bool is_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && is_digit(text[0]);
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_identifier_char);
}

std::string_view without_quotes(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return text.substr(1, text.size() - 2);
  return text;
}

std::string to_string_value(std::string_view text) {
  std::string value = resolve_escapes(text);
  value.resize(std::min(value.size(), value.find('\0')));
  return value;
}

}  // namespace

const std::string* Lexer::argument(std::size_t index) {
  if (index >= arguments_used_.size()) return nullptr;
  arguments_used_[index] = true;
  return &macros_->arguments[index];
}

Token Lexer::undefined_macro(const Token& token, std::string_view what) {
  return error(
      "MACRO_UNDEF", token.range.begin, token.range.end,
      fmt::format("macro {} {} is not defined", what, brief(token.text)),
      what == "argument" ? "give it behind the program, or set the option defaultargs" : "");
}

// Precondition: token.range is that of the macro, `text` what it stands for.
Token Lexer::argument_token(Token token, std::string_view text, bool member) {
  const std::size_t begin = token.range.begin;
  const std::size_t end = token.range.end;
  const std::string_view digits = is_number(text) && !is_digit(text[0]) ? text.substr(1) : text;
  if (is_number(text) && is_word(digits)) {
    std::string_view rest;
    token.integer.negative = text[0] == '-';
    if (!read_integer(digits, token.integer, rest)) {
      return error("MACRO_OFLOW", begin, end,
                   fmt::format("macro argument {} constant {} results in integer overflow",
                               token.text, brief(digits)));
    }
    if (!rest.empty()) {
      return error("INT_DIGIT", begin, end,
                   fmt::format("macro argument {} constant {} contains invalid digit {}",
                               token.text, brief(text), rest.front()));
    }
    token.kind = TokenKind::kInteger;
    return token;
  }
  if (is_word(text)) {
    token.kind = member ? TokenKind::kIdentifier : keyword_kind(text);
    token.text = text;
    return token;
  }
  token.kind = TokenKind::kString;
  token.string = to_string_value(without_quotes(text));
  return token;
}

Token Lexer::macro(bool member) {
  const std::size_t begin = at_++;
  const bool as_string = peek() == '$';
  if (as_string) ++at_;
  const std::size_t name_begin = at_;
  const bool is_argument = is_digit(peek());
  while (is_argument ? is_digit(peek()) : is_identifier_char(peek())) ++at_;
  Token token = make(TokenKind::kString, begin);
  const std::string_view name = text_.substr(name_begin, at_ - name_begin);
  if (name.empty())
    return error("SYNTAX", begin, at_, fmt::format("syntax error near \"{}\"", token.text));

  if (!is_argument) {
    const auto found =
        macros_ == nullptr ? decltype(macros_->variables.end()){} : macros_->variables.find(name);
    if (macros_ == nullptr || found == macros_->variables.end())
      return undefined_macro(token, "variable");
    const std::string text = std::to_string(found->second);
    sources_.add_expansion(token.range, text);
    if (as_string) {
      token.string = text;
      return token;
    }
    token.kind = TokenKind::kInteger;
    token.integer.is_target = name == "target";
    token.integer.negative = found->second < 0;
    token.integer.value = found->second < 0 ? 0 - static_cast<std::uint64_t>(found->second)
                                            : static_cast<std::uint64_t>(found->second);
    return token;
  }

  std::size_t index = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), index);
  const std::string* value = failure == std::errc{} ? argument(index) : nullptr;
  if (value == nullptr && !options_.default_arguments) return undefined_macro(token, "argument");
  const std::string_view text = value != nullptr ? std::string_view(*value) : as_string ? "" : "0";
  sources_.add_expansion(token.range, std::string(text));
  if (!as_string) return argument_token(std::move(token), text, member);
  token.string = to_string_value(text);
  return token;
}

bool Lexer::expand(std::string_view name, std::string& text) {
  if (!name.empty() && is_digit(name[0])) {
    std::size_t index = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), index);
    const std::string* value = failure == std::errc{} ? argument(index) : nullptr;
    if (value != nullptr) text = *value;
    return value != nullptr;
  }
  if (macros_ == nullptr) return false;
  const auto found = macros_->variables.find(name);
  if (found == macros_->variables.end()) return false;
  text = std::to_string(found->second);
  return true;
}

}  // namespace trapline::dlang
