// The ids of all processes that there are.
#pragma once

#include <vector>

#include "base/address.h"

namespace trapline::session {

std::vector<Pid> all_processes();

}  // namespace trapline::session
