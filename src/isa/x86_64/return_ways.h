// The ways to a `ret`: where a return can be probed when the ret itself cannot.
//
// A ret is one byte. Where branches lead to it and another instruction follows at once, nothing but
// a breakpoint fits there. But whoever comes to it comes by one of those branches, or in line from
// the instruction before: each of these is probed instead, the branches as tail jumps are (only
// when taken), and the ret stays as it is.
//
//   was                         becomes
//   74 16     je L              jmp trampoline: jne over; probe; jmp L; over: ...
//   ...
//   5d        pop rbp           jmp trampoline: pop rbp; probe; ret       (window up to L)
//   c3     L: ret               c3
//
// Only where all ways are known: every direct branch of the module to it is the function's own, and
// no table, pointer, unwinder or call leads there.

#pragma once

#include <optional>
#include <vector>

#include "isa/x86_64/control_flow.h"
#include "isa/x86_64/site.h"

namespace trapline::isa {

// The points that stand for `point`, with its tag; nullopt: it is no return, or not every way to it
// is known.
std::optional<std::vector<PointRequest>> ways_to_return(const ModuleCode& module,
                                                        const PointRequest& point);

}  // namespace trapline::isa
