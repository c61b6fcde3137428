// How much stack a body uses at most: its frame and, for each chain of calls, a return address and
// a frame more.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace trapline::codegen {

// Which functions each function calls, by name; all direct.
using CallGraph = std::map<std::string, std::vector<std::string>>;

// Bytes, the return address of the call of `body` included.
// Errors: kInternal: a function's frame is unknown, or functions call each other in a circle.
Result<std::uint32_t> stack_bound(const std::string& body, const CallGraph& calls,
                                  const std::map<std::string, std::uint32_t>& frames);

}  // namespace trapline::codegen
