// What the command says on standard error, in dtrace's manner: "dtrace: ...".

#pragma once

#include <string_view>

#include "base/result.h"

namespace trapline::tool {

// Scripts and people look for dtrace's own name.
inline constexpr std::string_view kMessageName = "dtrace";

void say(std::string_view text);
void say(const Error& error);

}  // namespace trapline::tool
