// Constants: numbers, strings, characters.
//
// Character constants hold up to eight bytes, the first being the most significant, as in DTrace;
// '\'' is a backslash and a quote. Floating-point constants are recognised in order to be refused.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "dlang/lexer.h"

namespace trapline::dlang {
namespace {

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

bool is_hex_prefix(std::string_view text) {
  return text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') &&
         digit_value(text[2]) < 16;
}

// The length of [uU]?[lL]?[lL]? at the start of `text`.
std::size_t suffix_length(std::string_view text) {
  std::size_t length = 0;
  if (length < text.size() && (text[length] == 'u' || text[length] == 'U')) ++length;
  for (int i = 0; i < 2 && length < text.size() && (text[length] == 'l' || text[length] == 'L');
       ++i)
    ++length;
  return length;
}

// The length of a floating-point constant at the start of `text`; 0: it is none, but perhaps an
// integer.
std::size_t float_length(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
  };
  const std::size_t whole = digits();
  bool is_float = false;
  if (at < text.size() && text[at] == '.' && text.substr(at, 3) != "...") {
    ++at;
    if (digits() == 0 && whole == 0) return 0;
    is_float = true;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const std::size_t before = at++;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) {
      at = before;
    } else {
      is_float = true;
    }
  }
  if (at < text.size() && (text[at] == 'f' || text[at] == 'F')) {
    is_float = true;
    ++at;
  }
  return is_float ? at : 0;
}

// Appends what the escape at text[at] (the character after the backslash) stands for; returns where
// it ends.
std::size_t escape(std::string_view text, std::size_t at, std::string& out) {
  const char c = text[at];
  switch (c) {
    case 'a':
      out.push_back('\a');
      return at + 1;
    case 'b':
      out.push_back('\b');
      return at + 1;
    case 'f':
      out.push_back('\f');
      return at + 1;
    case 'n':
      out.push_back('\n');
      return at + 1;
    case 'r':
      out.push_back('\r');
      return at + 1;
    case 't':
      out.push_back('\t');
      return at + 1;
    case 'v':
      out.push_back('\v');
      return at + 1;
    case '"':
    case '\\':
      out.push_back(c);
      return at + 1;
    default:
      break;
  }
  if (c >= '0' && c <= '7') {
    unsigned value = 0;
    std::size_t end = at;
    while (end < text.size() && end < at + 3 && text[end] >= '0' && text[end] <= '7') {
      value = value * 8 + static_cast<unsigned>(text[end++] - '0');
    }
    out.push_back(static_cast<char>(value));
    return end;
  }
  if (c == 'x') {
    unsigned value = 0;
    std::size_t end = at + 1;
    while (end < text.size() && digit_value(text[end]) < 16) {
      value = value * 16 + static_cast<unsigned>(digit_value(text[end++]));
    }
    out.push_back(static_cast<char>(value));
    return end;
  }
  out.push_back('\\');
  out.push_back(c);
  return at + 1;
}

}  // namespace

std::string resolve_escapes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out.push_back(text[at++]);
    } else {
      at = escape(text, at + 1, out);
    }
  }
  return out;
}

bool read_integer(std::string_view text, IntegerValue& value, std::string_view& rest) {
  value.decimal = text.empty() || text[0] != '0';
  const bool hex = is_hex_prefix(text);
  const std::uint64_t base = hex ? 16 : value.decimal ? 10 : 8;
  std::size_t at = hex ? 2 : 0;
  bool fits = true;
  for (; at < text.size() && static_cast<std::uint64_t>(digit_value(text[at])) < base; ++at) {
    const auto digit = static_cast<std::uint64_t>(digit_value(text[at]));
    fits = fits && value.value <= (std::numeric_limits<std::uint64_t>::max() - digit) / base;
    value.value = value.value * base + digit;
  }
  rest = text.substr(at);
  const std::size_t suffix = suffix_length(rest);
  for (const char c : rest.substr(0, suffix)) {
    if (c == 'u' || c == 'U') {
      value.unsigned_suffix = true;
    } else {
      ++value.long_suffixes;
    }
  }
  rest.remove_prefix(suffix);
  return fits;
}

Token Lexer::number() {
  const std::size_t begin = at_;
  // A module's name may begin with a digit: 8021q`vlan.
  std::size_t word = at_;
  while (word < text_.size() && is_identifier_char(text_[word]) && text_[word] != '`') ++word;
  if (word < text_.size() && text_[word] == '`') return identifier();

  if (const std::size_t length = float_length(text_.substr(at_)); length != 0) {
    at_ += length;
    return error("SYNTAX", begin, at_, "floating-point constants are not permitted",
                 "D computes with integers only");
  }
  return integer();
}

Token Lexer::integer() {
  const std::size_t begin = at_;
  if (is_hex_prefix(text_.substr(at_, 3))) {
    at_ += 2;
    while (digit_value(peek()) < 16) ++at_;
  } else {
    while (is_digit(peek())) ++at_;
  }
  at_ += suffix_length(text_.substr(at_, 3));
  Token token = make(TokenKind::kInteger, begin);
  std::string_view rest;
  if (!read_integer(token.text, token.integer, rest)) {
    return error("INT_OFLOW", begin, at_,
                 fmt::format("constant {} results in integer overflow", brief(token.text)));
  }
  if (!rest.empty()) {
    return error(
        "INT_DIGIT", begin, at_,
        fmt::format("constant {} contains invalid digit {}", brief(token.text), rest.front()),
        "constants that begin with 0 are octal");
  }
  return token;
}

Token Lexer::string() {
  const std::size_t begin = at_++;
  while (at_ < text_.size() && peek() != '"' && peek() != '\n') {
    at_ += peek() == '\\' && at_ + 1 < text_.size() && peek(1) != '\n' ? 2 : 1;
  }
  if (at_ >= text_.size()) {
    at_ = text_.size();
    return error("SYNTAX", begin, at_, "string without an end", "close it with \"");
  }
  if (peek() == '\n') return error("STR_NL", begin, at_, "newline encountered in string literal");
  ++at_;
  Token token = make(TokenKind::kString, begin);
  token.string = resolve_escapes(token.text.substr(1, token.text.size() - 2));
  token.string.resize(std::min(token.string.size(), token.string.find('\0')));
  return token;
}

Token Lexer::character() {
  const std::size_t begin = at_++;
  std::string bytes;
  while (at_ < text_.size() && peek() != '\'' && peek() != '\n') {
    if (peek() == '\\' && peek(1) == '\'') {
      bytes += "\\'";
      at_ += 2;
    } else if (peek() == '\\' && at_ + 1 < text_.size() && peek(1) != '\n') {
      at_ = escape(text_, at_ + 1, bytes);
    } else {
      bytes.push_back(text_[at_++]);
    }
  }
  if (at_ >= text_.size())
    return error("SYNTAX", begin, at_, "character constant without an end", "close it with '");
  if (peek() == '\n')
    return error("CHR_NL", begin, at_, "newline encountered in character constant");
  ++at_;
  if (bytes.empty()) return error("CHR_NULL", begin, at_, "empty character constant");
  if (bytes.size() > sizeof(std::uint64_t)) {
    return error("CHR_OFLOW", begin, at_, "character constant is too long",
                 "it holds up to 8 bytes");
  }
  Token token = make(TokenKind::kInteger, begin);
  token.integer.character = true;
  for (const char c : bytes)
    token.integer.value = (token.integer.value << 8) | static_cast<unsigned char>(c);
  return token;
}

}  // namespace trapline::dlang
