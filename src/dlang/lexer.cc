// The lexer proper: blanks and comments, words, punctuation, and the words outside of clauses.

#include "dlang/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "diag/utf8.h"

namespace trapline::dlang {
namespace {

constexpr std::array kKeywords = {
    std::string_view("auto"),     std::string_view("break"),      std::string_view("case"),
    std::string_view("char"),     std::string_view("const"),      std::string_view("continue"),
    std::string_view("counter"),  std::string_view("default"),    std::string_view("do"),
    std::string_view("double"),   std::string_view("else"),       std::string_view("enum"),
    std::string_view("extern"),   std::string_view("float"),      std::string_view("for"),
    std::string_view("goto"),     std::string_view("if"),         std::string_view("import"),
    std::string_view("inline"),   std::string_view("int"),        std::string_view("long"),
    std::string_view("offsetof"), std::string_view("probe"),      std::string_view("provider"),
    std::string_view("register"), std::string_view("restrict"),   std::string_view("return"),
    std::string_view("self"),     std::string_view("short"),      std::string_view("signed"),
    std::string_view("sizeof"),   std::string_view("static"),     std::string_view("string"),
    std::string_view("stringof"), std::string_view("struct"),     std::string_view("switch"),
    std::string_view("this"),     std::string_view("translator"), std::string_view("typedef"),
    std::string_view("union"),    std::string_view("unsigned"),   std::string_view("void"),
    std::string_view("volatile"), std::string_view("while"),      std::string_view("xlate"),
};
static_assert(std::is_sorted(kKeywords.begin(), kKeywords.end()));
constexpr auto kFirstKeyword = static_cast<std::size_t>(TokenKind::kAuto);
static_assert(kFirstKeyword + kKeywords.size() - 1 == static_cast<std::size_t>(TokenKind::kXlate));

struct Punctuator {
  std::string_view text;
  TokenKind kind;
};

// Longer ones before their beginnings. `/` is not here: see Lexer::slash.
constexpr std::array<Punctuator, 46> kPunctuators = {{
    {"...", TokenKind::kEllipsis},
    {"<<=", TokenKind::kShiftLeftAssign},
    {">>=", TokenKind::kShiftRightAssign},
    {"->", TokenKind::kArrow},
    {"++", TokenKind::kPlusPlus},
    {"--", TokenKind::kMinusMinus},
    {"&&", TokenKind::kAmpAmp},
    {"||", TokenKind::kPipePipe},
    {"^^", TokenKind::kCaretCaret},
    {"==", TokenKind::kEqualEqual},
    {"!=", TokenKind::kBangEqual},
    {"<=", TokenKind::kLessEqual},
    {">=", TokenKind::kGreaterEqual},
    {"<<", TokenKind::kShiftLeft},
    {">>", TokenKind::kShiftRight},
    {"+=", TokenKind::kPlusAssign},
    {"-=", TokenKind::kMinusAssign},
    {"*=", TokenKind::kStarAssign},
    {"%=", TokenKind::kPercentAssign},
    {"&=", TokenKind::kAmpAssign},
    {"|=", TokenKind::kPipeAssign},
    {"^=", TokenKind::kCaretAssign},
    {"(", TokenKind::kLeftParen},
    {")", TokenKind::kRightParen},
    {"[", TokenKind::kLeftBracket},
    {"]", TokenKind::kRightBracket},
    {"{", TokenKind::kLeftBrace},
    {"}", TokenKind::kRightBrace},
    {";", TokenKind::kSemicolon},
    {",", TokenKind::kComma},
    {":", TokenKind::kColon},
    {"?", TokenKind::kQuestion},
    {".", TokenKind::kDot},
    {"+", TokenKind::kPlus},
    {"-", TokenKind::kMinus},
    {"*", TokenKind::kStar},
    {"%", TokenKind::kPercent},
    {"~", TokenKind::kTilde},
    {"!", TokenKind::kBang},
    {"&", TokenKind::kAmp},
    {"|", TokenKind::kPipe},
    {"^", TokenKind::kCaret},
    {"<", TokenKind::kLess},
    {">", TokenKind::kGreater},
    {"=", TokenKind::kAssign},
    {"/=", TokenKind::kSlashAssign},
}};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Characters of a probe description. Those of Oracle's D, and '+' '@' '~' '%', which library names
// and symbols have
// ("libstdc++.so.6", "memcpy@plt").
bool is_description_start(char c) {
  return is_letter(c) || std::string_view("-$:.?*\\[]!\"").find(c) != std::string_view::npos;
}
bool is_description_char(char c) {
  return is_description_start(c) || is_digit(c) ||
         std::string_view("`+@~%").find(c) != std::string_view::npos;
}

}  // namespace

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_identifier_start(char c) { return is_letter(c) || c == '`'; }
bool is_identifier_char(char c) { return is_identifier_start(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string brief(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  text = text.substr(0, text.find('\n'));
  if (text.size() <= kLongest) return std::string(text);
  std::size_t end = kLongest;
  while (end > 0 && diag::is_utf8_continuation(text[end])) --end;
  return std::string(text.substr(0, end)) + "...";
}

TokenKind keyword_kind(std::string_view word) {
  const auto found = std::lower_bound(kKeywords.begin(), kKeywords.end(), word);
  if (found == kKeywords.end() || *found != word) return TokenKind::kIdentifier;
  return static_cast<TokenKind>(kFirstKeyword +
                                static_cast<std::size_t>(found - kKeywords.begin()));
}

bool begins_declaration(TokenKind kind) {
  switch (kind) {
    case TokenKind::kAuto:
    case TokenKind::kChar:
    case TokenKind::kConst:
    case TokenKind::kCounter:
    case TokenKind::kDouble:
    case TokenKind::kEnum:
    case TokenKind::kExtern:
    case TokenKind::kFloat:
    case TokenKind::kImport:
    case TokenKind::kInline:
    case TokenKind::kInt:
    case TokenKind::kLong:
    case TokenKind::kProvider:
    case TokenKind::kRegister:
    case TokenKind::kRestrict:
    case TokenKind::kSelf:
    case TokenKind::kShort:
    case TokenKind::kSigned:
    case TokenKind::kStatic:
    case TokenKind::kStringKeyword:
    case TokenKind::kStruct:
    case TokenKind::kThis:
    case TokenKind::kTranslator:
    case TokenKind::kTypedef:
    case TokenKind::kUnion:
    case TokenKind::kUnsigned:
    case TokenKind::kVoid:
    case TokenKind::kVolatile:
      return true;
    default:
      return false;
  }
}

Lexer::Lexer(diag::SourceId source, const Macros* macros, LexerOptions options,
             diag::SourceManager& sources, diag::Diagnostics& diagnostics)
    : source_(source),
      text_(sources.text(source)),
      macros_(macros),
      options_(options),
      sources_(sources),
      diagnostics_(diagnostics),
      arguments_used_(macros == nullptr ? 0 : macros->arguments.size(), false) {}

diag::Range Lexer::end_of_source() const {
  const auto end = static_cast<std::uint32_t>(text_.size());
  return {source_, end, end};
}

Token Lexer::make(TokenKind kind, std::size_t begin) {
  Token token;
  token.kind = kind;
  token.range = range(begin, at_);
  token.text = text_.substr(begin, at_ - begin);
  return token;
}

Token Lexer::error(std::string_view tag, std::size_t begin, std::size_t end, std::string text,
                   std::string hint) {
  report(tag, range(begin, end), std::move(text), std::move(hint));
  Token token;
  token.kind = TokenKind::kError;
  token.range = range(begin, end);
  return token;
}

diag::Range Lexer::range(std::size_t begin, std::size_t end) const {
  return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

void Lexer::report(std::string_view tag, diag::Range range, std::string text, std::string hint) {
  if (!quiet_) diagnostics_.error(tag, range, std::move(text), std::move(hint));
}

bool Lexer::line_is_blank_before(std::size_t at) const {
  while (at > 0 && text_[at - 1] != '\n') {
    if (!is_blank(text_[at - 1])) return false;
    --at;
  }
  return true;
}

// Precondition: at "/*". D's comments do not nest, and a "/*" within one is an error, as in DTrace:
// it is nearly always a comment whose end was forgotten.
bool Lexer::skip_comment() {
  const std::size_t begin = at_;
  at_ += 2;
  for (; at_ < text_.size(); ++at_) {
    const char* hit = std::find_if(text_.data() + at_, text_.data() + text_.size(),
                                   [](char c) { return c == '*' || c == '/'; });
    at_ = static_cast<std::size_t>(hit - text_.data());
    if (peek() == '*' && peek(1) == '/') {
      at_ += 2;
      return true;
    }
    if (peek() == '/' && peek(1) == '*') {
      error("SYNTAX", at_, at_ + 2, "/* encountered inside a comment");
      // The comment goes on: its end is looked for, so that the rest is read as it was meant.
      ++at_;
    }
  }
  at_ = text_.size();
  diag::Diagnostic& diagnostic =
      diagnostics_.error("SYNTAX", end_of_source(), "end-of-file encountered before matching */");
  diagnostic.notes.push_back({range(begin, begin + 2), "the comment begins here"});
  return false;
}

bool Lexer::skip_blank() {
  for (;;) {
    const char c = peek();
    if (at_ >= text_.size()) return true;
    if (is_blank(c)) {
      ++at_;
    } else if (c == '/' && peek(1) == '*') {
      if (!skip_comment()) return false;
    } else if (c == '#' && line_is_blank_before(at_)) {
      if (!control_line()) return false;
    } else if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
    } else if (c == '\\' && peek(1) == '\r' && peek(2) == '\n') {
      at_ += 3;
    } else {
      return true;
    }
  }
}

Token Lexer::stray_character(std::size_t begin) {
  const diag::Utf8Char c = diag::decode_utf8(text_, begin);
  at_ = begin + c.length;
  if (!c.valid) {
    return error("SYNTAX", begin, at_,
                 fmt::format("syntax error near byte 0x{:02x}, which is not valid UTF-8",
                             static_cast<unsigned char>(text_[begin])));
  }
  if (c.code < 0x20 || c.code == 0x7f) {
    return error("SYNTAX", begin, at_,
                 fmt::format("syntax error near control character 0x{:02x}", c.code));
  }
  if (c.code >= 0x80) {
    return error(
        "SYNTAX", begin, at_,
        fmt::format(
            "syntax error near \"{}\" (U+{:04X}): outside of strings and comments D is ASCII",
            text_.substr(begin, c.length), c.code));
  }
  return error("SYNTAX", begin, at_, fmt::format("syntax error near \"{}\"", text_[begin]));
}

Token Lexer::identifier() {
  const std::size_t begin = at_;
  while (is_identifier_char(peek())) ++at_;
  Token token = make(TokenKind::kIdentifier, begin);
  if (!std::exchange(member_next_, false)) token.kind = keyword_kind(token.text);
  return token;
}

Token Lexer::aggregation() {
  const std::size_t begin = at_++;
  if (is_letter(peek())) {
    while (is_letter(peek()) || is_digit(peek())) ++at_;
  }
  Token token = make(TokenKind::kAggregation, begin);
  token.text = token.text.size() == 1 ? std::string_view("_") : token.text.substr(1);
  return token;
}

// `/` is both the division and the end of a predicate. It ends one if `;`, `{`, `/` or the end of
// the text follows.
Token Lexer::slash() {
  const std::size_t begin = at_++;
  Token token = make(TokenKind::kSlash, begin);
  std::size_t at = at_;
  while (at < text_.size()) {
    if (is_blank(text_[at])) {
      ++at;
    } else if (text_.substr(at, 2) == "/*") {
      const std::size_t end = text_.find("*/", at + 2);
      at = end == std::string_view::npos ? text_.size() : end + 2;
    } else {
      break;
    }
  }
  token.ends_predicate =
      at >= text_.size() || text_[at] == ';' || text_[at] == '{' || text_[at] == '/';
  return token;
}

Token Lexer::punctuation() {
  const std::size_t begin = at_;
  const std::string_view rest = text_.substr(at_, 3);
  for (const Punctuator& punctuator : kPunctuators) {
    if (punctuator.text[0] == rest[0] && rest.starts_with(punctuator.text)) {
      at_ += punctuator.text.size();
      return make(punctuator.kind, begin);
    }
  }
  if (peek() == '/') return slash();
  return stray_character(begin);
}

Token Lexer::next() {
  const bool member = std::exchange(member_next_, false);
  if (!skip_blank()) {
    Token token;
    token.kind = TokenKind::kError;
    token.range = end_of_source();
    return token;
  }
  if (at_ >= text_.size()) return make(TokenKind::kEnd, at_);
  const char c = peek();
  if (is_identifier_start(c)) {
    member_next_ = member;
    return identifier();
  }
  if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
  switch (c) {
    case '"':
      return string();
    case '\'':
      return character();
    case '@':
      return aggregation();
    case '$':
      return macro(member);
    default:
      break;
  }
  Token token = punctuation();
  member_next_ = token.kind == TokenKind::kDot || token.kind == TokenKind::kArrow;
  return token;
}

Token Lexer::next_outer() {
  member_next_ = false;
  if (!skip_blank()) {
    Token token;
    token.kind = TokenKind::kError;
    token.range = end_of_source();
    return token;
  }
  const std::size_t begin = at_;
  if (at_ >= text_.size()) return make(TokenKind::kEnd, at_);
  const char c = peek();
  if (is_digit(c)) return integer();
  if (!is_description_start(c)) return punctuation();
  while (is_description_char(peek())) {
    if (peek() != '"') {
      ++at_;
      continue;
    }
    // A quoted name: to the closing quote, on this line.
    const std::size_t quote = at_++;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n')
      at_ += peek() == '\\' && peek(1) != '\n' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    if (peek() != '"') return error("STR_NL", quote, at_, "newline encountered in a quoted name");
    ++at_;
  }
  return make(TokenKind::kDescription, begin);
}

void Lexer::rewind(const Token& token) {
  TL_CHECK(token.range.source == source_ && token.range.begin <= at_);
  at_ = token.range.begin;
}

}  // namespace trapline::dlang
