// system(): a command, run by the shell.

#pragma once

#include <string>

#include "base/result.h"

namespace trapline::report {

// Waits for its end. The command gets the signal mask of a fresh process, not the tracer's. Errors:
// kOs, no process could be made.
Result<> run_command(const std::string& command);

}  // namespace trapline::report
