// Instructions that the target has mapped anyway and that injected calls use. Looked for once an
// image, while it runs.

#pragma once

#include <span>

#include "target/memory.h"
#include "target/process.h"
#include "target/tracees.h"

namespace trapline::target {

// What is not found stays 0. Searched: the vDSO, then libc, the loader, and other executable file
// mappings.
Gadgets find_gadgets(const Memory& memory, std::span<const Mapping> maps);

// Whether they still are what they were: a library may have been unloaded, a page patched.
bool still_there(const Memory& memory, const Gadgets& gadgets);

}  // namespace trapline::target
