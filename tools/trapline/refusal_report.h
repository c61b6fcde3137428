// Says which probes could not be armed and why: a line a reason, with a few names; with -v every
// place.

#pragma once

#include <string>
#include <vector>

#include "session/session.h"

namespace trapline::tool {

enum class Detail : std::uint8_t { kSummary, kEveryPlace };

// The lines, without the command's name in front.
std::vector<std::string> describe_refusals(const std::vector<session::Refusal>& refusals,
                                           Detail detail);

}  // namespace trapline::tool
