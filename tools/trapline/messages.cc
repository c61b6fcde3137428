#include "messages.h"

#include <cstdio>

namespace trapline::tool {

void say(std::string_view text) {
  const bool ended = text.ends_with('\n');
  std::fprintf(stderr, "%.*s: %.*s%s", static_cast<int>(kMessageName.size()), kMessageName.data(),
               static_cast<int>(text.size()), text.data(), ended ? "" : "\n");
}

void say(const Error& error) { say(error.text()); }

}  // namespace trapline::tool
