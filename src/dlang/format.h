// The format strings of printf() and printa(): taken apart, and checked against argument types.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctypes/type.h"

namespace trapline::dlang {

// A conversion, or text between conversions (conversion == 0). "%%" is text.
struct FormatPart {
  std::string text;
  char conversion = 0;
  std::string length;  // "h", "l", "ll", "L", "w"
  std::string flags;   // of "-+ #0'", in the order written
  int width = -1;
  int precision = -1;
  bool dynamic_width = false;      // *
  bool dynamic_precision = false;  // .*
  bool is_aggregation = false;     // %@
  std::uint32_t number = 0;        // counts as DTrace does, texts before a conversion included
};

// Error kBadInput: not a format; the text says which conversion and why.
Result<std::vector<FormatPart>> parse_format(std::string_view text);

// How a conversion may be used.
struct Conversion {
  std::string_view name;       // "lld"
  std::string_view prototype;  // what messages call the type it takes
};
// nullptr: there is no such conversion.
const Conversion* find_conversion(std::string_view name);

enum class HasTarget : std::uint8_t { kNo, kYes };

// Whether a value of `type` may be printed with the part's conversion.
bool accepts(const FormatPart& part, ctypes::TypeId type, const ctypes::TypeTable& types,
             HasTarget target);

}  // namespace trapline::dlang
