#include "report/text.h"

#include <cstdarg>
#include <cstdio>

namespace trapline::report {
namespace {

constexpr int kMargin = 5;
constexpr std::size_t kRow = 16;

// What DTrace takes as part of a text: printable and white space of the C locale, backspace and
// bell.
bool is_texty(char c) {
  return (c >= ' ' && c <= '~') || (c >= '\t' && c <= '\r') || c == '\b' || c == '\a';
}

}  // namespace

void append(std::string& out, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::va_list again;
  va_copy(again, arguments);
  char small[256];
  const int needed = std::vsnprintf(small, sizeof small, format, arguments);
  va_end(arguments);
  if (needed >= 0) {
    const auto size = static_cast<std::size_t>(needed);
    if (size < sizeof small) {
      out.append(small, size);
    } else {
      const std::size_t old = out.size();
      out.resize(old + size + 1);
      std::vsnprintf(out.data() + old, size + 1, format, again);
      out.resize(old + size);
    }
  }
  va_end(again);
}

void append_hex_dump(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  append(out, "\n%*s      ", kMargin, "");
  for (std::size_t i = 0; i < kRow; ++i) append(out, "  %c", "0123456789abcdef"[i]);
  out += "  0123456789abcdef\n";
  for (std::size_t row = 0; row < bytes.size(); row += kRow) {
    const std::string_view part = bytes.substr(row, kRow);
    append(out, "%*s%5x:", kMargin, "", static_cast<unsigned>(row));
    for (const char c : part) append(out, " %02x", static_cast<unsigned char>(c));
    for (std::size_t i = part.size(); i < kRow; ++i) out += "   ";
    out += "  ";
    for (const char c : part) out += c < ' ' || c > '~' ? '.' : c;
    out += '\n';
  }
}

std::string escape(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    static constexpr std::string_view kSpecial("\a\b\f\n\r\t\v\"\\", 9);
    static constexpr std::string_view kLetters("abfnrtv\"\\");
    if (c == '\0') {
      out += "\\0";
      break;
    }
    if (const auto at = kSpecial.find(c); at != std::string_view::npos) {
      out += '\\';
      out += kLetters[at];
    } else if (c < ' ' || c > '~') {
      append(out, "\\%03o", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

void append_bytes(std::string& out, std::string_view bytes, int width) {
  if (bytes.empty()) return;
  const std::string_view text = bytes.substr(0, bytes.find('\0'));
  const bool only_nuls_follow =
      bytes.find_first_not_of('\0', text.size()) == std::string_view::npos;
  bool printable = !text.empty() && only_nuls_follow;
  for (const char c : text) printable = printable && is_texty(c);
  if (!printable) {
    append_hex_dump(out, bytes);
    return;
  }
  append(out, "  %-*s", width, std::string(text).c_str());
}

}  // namespace trapline::report
