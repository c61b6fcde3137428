// See format.h. The conversions and what they accept are those of Oracle's DTrace 2.0.

#include "dlang/format.h"

#include <algorithm>
#include <cctype>

namespace trapline::dlang {
namespace {

constexpr int kMaxWidth = 1 << 26;

enum class Takes : std::uint8_t {
  kAddress,
  kUserAddress,
  kSmallInteger,
  kInteger,
  kFloat,
  kStack,
  kString,
  kWideString,
  kTime,
  kSameType,  // exactly the prototype
  kShort,
  kLong,
  kLongLong,  // signed or unsigned
};

struct ConversionRow : Conversion {
  Takes takes;
  ctypes::TypeId type = ctypes::kVoid;  // kSameType
};

constexpr ConversionRow kConversions[] = {
    {{"a", "pointer or integer"}, Takes::kAddress},
    {{"A", "pointer or integer, and a traced process ($target)"}, Takes::kUserAddress},
    {{"c", "char, short or int"}, Takes::kSmallInteger},
    {{"C", "char, short or int"}, Takes::kSmallInteger},
    {{"d", "integer"}, Takes::kInteger},
    {{"e", "float, double or long double"}, Takes::kFloat},
    {{"E", "float, double or long double"}, Takes::kFloat},
    {{"f", "float, double or long double"}, Takes::kFloat},
    {{"g", "float, double or long double"}, Takes::kFloat},
    {{"G", "float, double or long double"}, Takes::kFloat},
    {{"hd", "short"}, Takes::kSameType, ctypes::kShort},
    {{"hi", "short"}, Takes::kSameType, ctypes::kShort},
    {{"ho", "unsigned short"}, Takes::kSameType, ctypes::kUnsignedShort},
    {{"hu", "unsigned short"}, Takes::kSameType, ctypes::kUnsignedShort},
    {{"hx", "short"}, Takes::kShort},
    {{"hX", "short"}, Takes::kShort},
    {{"i", "integer"}, Takes::kInteger},
    {{"k", "stack"}, Takes::kStack},
    {{"lc", "int"}, Takes::kSameType, ctypes::kInt},
    {{"ld", "long"}, Takes::kSameType, ctypes::kLong},
    {{"li", "long"}, Takes::kSameType, ctypes::kLong},
    {{"lo", "unsigned long"}, Takes::kSameType, ctypes::kUnsignedLong},
    {{"lu", "unsigned long"}, Takes::kSameType, ctypes::kUnsignedLong},
    {{"ls", "wchar_t []"}, Takes::kWideString},
    {{"lx", "long"}, Takes::kLong},
    {{"lX", "long"}, Takes::kLong},
    {{"lld", "long long"}, Takes::kSameType, ctypes::kLongLong},
    {{"lli", "long long"}, Takes::kSameType, ctypes::kLongLong},
    {{"llo", "unsigned long long"}, Takes::kSameType, ctypes::kUnsignedLongLong},
    {{"llu", "unsigned long long"}, Takes::kSameType, ctypes::kUnsignedLongLong},
    {{"llx", "long long"}, Takes::kLongLong},
    {{"llX", "long long"}, Takes::kLongLong},
    {{"Le", "long double"}, Takes::kSameType, ctypes::kLongDouble},
    {{"LE", "long double"}, Takes::kSameType, ctypes::kLongDouble},
    {{"Lf", "long double"}, Takes::kSameType, ctypes::kLongDouble},
    {{"Lg", "long double"}, Takes::kSameType, ctypes::kLongDouble},
    {{"LG", "long double"}, Takes::kSameType, ctypes::kLongDouble},
    {{"o", "integer"}, Takes::kInteger},
    {{"p", "pointer or integer"}, Takes::kAddress},
    {{"s", "string or char [] (stringof() makes one of a pointer)"}, Takes::kString},
    {{"S", "string or char []"}, Takes::kString},
    {{"T", "int64_t"}, Takes::kTime},
    {{"u", "integer"}, Takes::kInteger},
    {{"wc", "int"}, Takes::kSameType, ctypes::kInt},
    {{"ws", "wchar_t []"}, Takes::kWideString},
    {{"x", "integer"}, Takes::kInteger},
    {{"X", "integer"}, Takes::kInteger},
    {{"Y", "int64_t"}, Takes::kTime},
};

const ConversionRow* find_row(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kConversions, [&](const ConversionRow& row) { return row.name == name; });
  return found == std::end(kConversions) ? nullptr : found;
}

bool is_char_array(ctypes::TypeId type, const ctypes::TypeTable& types) {
  return types.kind(type) == ctypes::TypeKind::kArray && types.is_string_like(type);
}

// "int64_t" and "uint64_t" may be printed with %llx though they are long.
bool has_64_bit_name(ctypes::TypeId type, const ctypes::TypeTable& types) {
  for (;;) {
    const ctypes::Type& t = types.get(type);
    if (t.kind != ctypes::TypeKind::kTypedef) return false;
    if (t.name == "int64_t" || t.name == "uint64_t") return true;
    type = t.target;
  }
}

class FormatParser {
 public:
  explicit FormatParser(std::string_view text) : text_(text) {}

  Result<std::vector<FormatPart>> run() {
    while (next_ < text_.size()) {
      const std::size_t percent = std::min(text_.find('%', next_), text_.size());
      add_text(text_.substr(next_, percent - next_));
      next_ = percent;
      if (next_ == text_.size()) break;
      ++next_;
      ++number_;
      TL_TRY(parse_conversion());
    }
    return std::move(parts_);
  }

 private:
  void add_text(std::string_view text) {
    if (text.empty()) return;
    if (!parts_.empty() && parts_.back().conversion == 0) {
      parts_.back().text += text;
      return;
    }
    parts_.emplace_back().text = text;
  }

  Error bad(std::string_view why) const {
    return {ErrorCode::kBadInput,
            "format conversion #" + std::to_string(number_) + " " + std::string(why)};
  }

  // After the '%'.
  Result<> parse_conversion() {
    FormatPart part;
    part.number = number_;
    bool dot = false;
    bool digits = false;
    const std::size_t begin = next_;
    for (; next_ < text_.size(); ++next_) {
      const char c = text_[next_];
      if (c == '0' && !dot && !digits) {
        part.flags += c;
      } else if (std::isdigit(static_cast<unsigned char>(c))) {
        (dot ? part.precision : part.width) = parse_number();
        digits = true;
      } else if (c == '#' || c == '+' || c == '-' || c == ' ' || c == '\'') {
        part.flags += c;
      } else if (c == '*') {
        bool& dynamic = dot ? part.dynamic_precision : part.dynamic_width;
        if (dynamic)
          return bad(dot ? "has two '*' for its precision" : "has two '*' for its width");
        dynamic = true;
      } else if (c == '.') {
        if (dot) return bad("has two '.'");
        dot = true;
        digits = false;
        part.precision = 0;
      } else if (c == '?') {
        part.width = 16;
      } else if (c == '@') {
        part.is_aggregation = true;
      } else if (c == '$') {
        return bad("is positional (%n$), which D does not have");
      } else if (c == 'h' || c == 'l' || c == 'L' || c == 'w') {
        part.length += c;
      } else {
        return finish(std::move(part), c, next_++ == begin);
      }
    }
    return bad("ends with the format string before its name");
  }

  int parse_number() {
    int value = 0;
    while (next_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[next_]))) {
      value = std::min(value * 10 + (text_[next_] - '0'), kMaxWidth);
      ++next_;
    }
    --next_;
    return value;
  }

  Result<> finish(FormatPart part, char name, bool is_bare) {
    if (name == '%') {
      if (!is_bare) return bad("%% cannot have flags");
      add_text("%");
      return {};
    }
    part.conversion = name;
    if (part.precision == 0) part.precision = -1;  // as in DTrace, ".0" is as good as nothing
    if (find_row(part.length + name) == nullptr) return bad("is not known: %" + part.length + name);
    parts_.push_back(std::move(part));
    return {};
  }

  std::string_view text_;
  std::size_t next_ = 0;
  std::uint32_t number_ = 0;
  std::vector<FormatPart> parts_;
};

}  // namespace

Result<std::vector<FormatPart>> parse_format(std::string_view text) {
  return FormatParser(text).run();
}

const Conversion* find_conversion(std::string_view name) { return find_row(name); }

bool accepts(const FormatPart& part, ctypes::TypeId type, const ctypes::TypeTable& types,
             HasTarget target) {
  const ConversionRow* row = find_row(part.length + part.conversion);
  if (row == nullptr) return false;
  const bool is_integer = types.is_integer(type);
  const bool is_address = is_integer || types.is_pointer(type);
  const ctypes::TypeId resolved = types.resolve(type);
  switch (row->takes) {
    case Takes::kAddress:
      return is_address || types.kind(type) == ctypes::TypeKind::kSymbol;
    case Takes::kUserAddress:
      return types.kind(type) == ctypes::TypeKind::kSymbol ||
             (target == HasTarget::kYes && is_address);
    case Takes::kSmallInteger:
      return is_integer && types.size(type) <= 4;
    case Takes::kInteger:
      return is_integer;
    case Takes::kFloat:
      return types.is_float(type);
    case Takes::kStack:
      return types.kind(type) == ctypes::TypeKind::kStack;
    case Takes::kString:
      return types.is_string(type) || is_char_array(type, types);
    case Takes::kWideString:
      return types.kind(type) == ctypes::TypeKind::kArray &&
             types.kind(types.pointed_to(type)) == ctypes::TypeKind::kInteger &&
             types.size(types.pointed_to(type)) == 4;
    case Takes::kTime:
      return is_integer && types.size(type) == 8;
    case Takes::kSameType:
      return types.compatible(type, row->type);
    case Takes::kShort:
      return resolved == ctypes::kShort || resolved == ctypes::kUnsignedShort;
    case Takes::kLong:
      return resolved == ctypes::kLong || resolved == ctypes::kUnsignedLong;
    case Takes::kLongLong:
      return resolved == ctypes::kLongLong || resolved == ctypes::kUnsignedLongLong ||
             has_64_bit_name(type, types);
  }
  return false;
}

}  // namespace trapline::dlang
