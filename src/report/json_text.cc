#include "report/json_text.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "report/text.h"

namespace trapline::report {
namespace {

constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

std::string number(bool negative, unsigned __int128 magnitude) {
  const std::string digits = (negative ? "-" : "") + decimal(magnitude);
  return magnitude <= kExact ? digits : "{\"integer\":\"" + digits + "\"}";
}

// Bytes of the UTF-8 sequence at the front: well-formed as Unicode's table 3-7 says. 0: not
// well-formed.
std::size_t sequence_length(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return at(i) >= low && at(i) <= high;
  };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return continues(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : 0xbf;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xf4 ? 0x8f : 0xbf;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

enum class Invalid : std::uint8_t { kRefuse, kReplace };

// nullopt: the bytes are not UTF-8, and that is refused.
std::optional<std::string> quote(std::string_view bytes, Invalid invalid) {
  std::string out = "\"";
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = sequence_length(bytes.substr(at));
    if (length == 0) {
      if (invalid == Invalid::kRefuse) return std::nullopt;
      out += kReplacement;
      ++at;
      continue;
    }
    const char c = bytes[at];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) {
      append(out, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += bytes.substr(at, length);
    }
    at += length;
  }
  return out + '"';
}

}  // namespace

std::string json_integer(std::int64_t value) { return json_wide(value); }

std::string json_unsigned(std::uint64_t value) { return json_wide(value); }

std::string json_wide(Wide value) {
  const auto raw = static_cast<unsigned __int128>(value);
  return value < 0 ? number(true, 0 - raw) : number(false, raw);
}

std::string json_string(std::string_view bytes) {
  auto quoted = quote(bytes, Invalid::kRefuse);
  return quoted ? *std::move(quoted) : json_hex(bytes);
}

std::string json_message(std::string_view bytes) {
  return quote(bytes, Invalid::kReplace).value_or("");
}

std::string json_hex(std::string_view bytes) {
  std::string out = "{\"hex\":\"";
  for (const char c : bytes) {
    append(out, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out + "\"}";
}

std::string decimal(unsigned __int128 value) {
  std::string out;
  do {
    out += static_cast<char>('0' + static_cast<int>(value % 10));
    value /= 10;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace trapline::report
