// What the command says on standard error, in dtrace's manner: "dtrace: ...".

#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace trapline::tool {

// Scripts and people look for dtrace's own name.
inline constexpr std::string_view kMessageName = "dtrace";

// Names from files and arguments may hold control characters, which are not to steer a terminal:
// they become \xHH. Line ends and tabs stay, as do bytes of UTF-8.
std::string for_terminal(std::string_view text);

void say(std::string_view text);
void say(const Error& error);

}  // namespace trapline::tool
