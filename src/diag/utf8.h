// UTF-8, as far as messages need it: the length of a character, and whether bytes are one.

#pragma once

#include <cstdint>
#include <string_view>

namespace trapline::diag {

struct Utf8Char {
  std::uint32_t code = 0;    // 0 if invalid
  std::uint32_t length = 1;  // bytes; 1 if invalid
  bool valid = false;
};

// The character that begins at text[at]. Overlong forms, surrogates and what is cut short are
// invalid. Precondition: at < text.size().
Utf8Char decode_utf8(std::string_view text, std::size_t at);

constexpr bool is_utf8_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace trapline::diag
