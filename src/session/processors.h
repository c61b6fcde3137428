// What curcpu points to: a structure for each processor of the system, in a global variable of the
// program (plan::Program::processors_variable), and so in each traced process.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace trapline::session {

// Processors that there may be; their numbers are less.
std::uint32_t processor_count();

// Nothing, where the program does not ask for it. `globals`: Program::globals_size bytes.
void fill_processors(const plan::Program& program, std::span<std::byte> globals);

}  // namespace trapline::session
