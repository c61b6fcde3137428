// The two things that the command does with a program: trace, and list.

#pragma once

#include "command_line.h"
#include "guard.h"

namespace trapline::tool {

// Each returns the command's exit status.
int trace(const CommandLine& command, const Front& front);
int list(const CommandLine& command);

}  // namespace trapline::tool
