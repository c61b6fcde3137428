// The EINTR that an attach would cause: some system calls are never restarted by the kernel once
// they have been interrupted, even though no signal handler ran (signal(7), "Interruption of system
// calls ... by stop signals").
//
// The same happens when a traced thread is woken by a signal that it ignores: untraced, it would
// have slept on.
//
// They leave -EINTR in rax. Replaced by -ERESTARTNOHAND while the thread is stopped, the kernel
// restarts them when it goes on, or gives EINTR if a handler runs after all. Never for close(),
// whose descriptor is gone whatever it returns. Limit: relative timeouts start anew. File systems
// in user space that answer an interrupt with EINTR are not covered.

#pragma once

#include "target/registers.h"

namespace trapline::target {

// True: `registers` were changed and have to be written back.
bool repair_interrupted_call(Registers& registers);

}  // namespace trapline::target
