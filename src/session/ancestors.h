// progenyof(): a process and those that it descends from.

#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "target/process.h"
#include "wire/arena.h"

namespace trapline::session {

// The process itself, its parent and so on, at most wire::kAncestors of them. As it is now: a
// process whose parent ends gets another one.
std::vector<std::int32_t> ancestors(Pid pid);

}  // namespace trapline::session
