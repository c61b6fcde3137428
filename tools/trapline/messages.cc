#include "messages.h"

#include <fmt/format.h>

#include <cstdio>

namespace trapline::tool {

std::string for_terminal(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    if (control)
      safe += fmt::format("\\x{:02x}", byte);
    else
      safe += c;
  }
  return safe;
}

void say(std::string_view text) {
  const bool ended = text.ends_with('\n');
  std::fputs(fmt::format("{}: {}{}", kMessageName, for_terminal(text), ended ? "" : "\n").c_str(),
             stderr);
}

void say(const Error& error) { say(error.text()); }

}  // namespace trapline::tool
