// Tokens of D.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "diag/source.h"

namespace trapline::dlang {

enum class TokenKind : std::uint8_t {
  kEnd,
  kError,  // already reported
  kInteger,
  kString,
  kIdentifier,
  kAggregation,
  kDescription,  // outside of clauses only: a word that may be a probe description, a keyword or a
                 // type
  // Keywords, in alphabetical order.
  kAuto,
  kBreak,
  kCase,
  kChar,
  kConst,
  kContinue,
  kCounter,
  kDefault,
  kDo,
  kDouble,
  kElse,
  kEnum,
  kExtern,
  kFloat,
  kFor,
  kGoto,
  kIf,
  kImport,
  kInline,
  kInt,
  kLong,
  kOffsetof,
  kProbe,
  kProvider,
  kRegister,
  kRestrict,
  kReturn,
  kSelf,
  kShort,
  kSigned,
  kSizeof,
  kStatic,
  kStringKeyword,
  kStringof,
  kStruct,
  kSwitch,
  kThis,
  kTranslator,
  kTypedef,
  kUnion,
  kUnsigned,
  kVoid,
  kVolatile,
  kWhile,
  kXlate,
  // Punctuation.
  kLeftParen,
  kRightParen,
  kLeftBracket,
  kRightBracket,
  kLeftBrace,
  kRightBrace,
  kSemicolon,
  kComma,
  kColon,
  kQuestion,
  kDot,
  kArrow,
  kEllipsis,
  kPlus,
  kMinus,
  kStar,
  kSlash,
  kPercent,
  kPlusPlus,
  kMinusMinus,
  kTilde,
  kBang,
  kAmp,
  kPipe,
  kCaret,
  kAmpAmp,
  kPipePipe,
  kCaretCaret,
  kEqualEqual,
  kBangEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kShiftLeft,
  kShiftRight,
  kAssign,
  kPlusAssign,
  kMinusAssign,
  kStarAssign,
  kSlashAssign,
  kPercentAssign,
  kAmpAssign,
  kPipeAssign,
  kCaretAssign,
  kShiftLeftAssign,
  kShiftRightAssign,
};

struct IntegerValue {
  std::uint64_t value = 0;
  bool negative = false;
  bool decimal = true;
  bool unsigned_suffix = false;
  std::uint8_t long_suffixes = 0;
  bool character = false;
  bool is_target = false;  // $target
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  bool ends_predicate =
      false;              // kSlash: only `;`, `{`, `/` or the end may follow, so it is no division
  diag::Range range;      // where it is written: of the macro, if it comes from one
  std::string_view text;  // identifiers, aggregations (without '@'), descriptions
  std::string string;     // kString: escapes resolved
  IntegerValue integer;   // kInteger
};

// A piece of the program as messages quote it: one line, not too long.
std::string brief(std::string_view text);

// kIdentifier for what is no keyword.
TokenKind keyword_kind(std::string_view word);
// Keywords that begin a declaration, an inline, a translator or a provider outside of clauses.
bool begins_declaration(TokenKind kind);

}  // namespace trapline::dlang
