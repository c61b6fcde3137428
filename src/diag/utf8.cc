// UTF-8 decoding (RFC 3629, table 3-7 of the Unicode standard).

#include "diag/utf8.h"

namespace trapline::diag {

Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  std::uint32_t length = 0;
  std::uint32_t code = 0;
  std::uint32_t least = 0;  // smaller codes have a shorter form
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2, code = lead & 0x1fu, least = 0x80;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3, code = lead & 0x0fu, least = 0x800;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4, code = lead & 0x07u, least = 0x10000;
  } else {
    return {};
  }
  if (text.size() - at < length) return {};
  for (std::uint32_t i = 1; i < length; ++i) {
    if (!is_utf8_continuation(text[at + i])) return {};
    code = (code << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  }
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, length, true};
}

}  // namespace trapline::diag
