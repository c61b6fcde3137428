// uregs[] out of the registers that the kernel gives, and of the tracer's own.

#pragma once

#include <sys/user.h>

#include <cstdint>
#include <optional>

#include "plan/registers.h"
#include "target/process.h"

namespace trapline::session {

// nullopt: a trap's number, which nothing keeps.
std::optional<std::uint64_t> register_of(const ::user_regs_struct& registers,
                                         plan::UserRegister which);

// Those of the calling thread, here.
::user_regs_struct own_registers();

// A thread's priority as the kernel itself counts it: 120 for nice 0.
std::int64_t kernel_priority(const target::TaskStat& stat);

}  // namespace trapline::session
