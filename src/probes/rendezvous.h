// The rendezvous: how a process that runs alone tells its tracer that it is about to execute
// another program.
//
// The tracer has let go of the process, so nothing stops at an exec. Instead the C library's execve
// and execveat carry probes of our own. Their body is not compiled from a program but the stub
// below: it writes the thread's id to Header::exec_request and waits for the tracer, at most
// kRendezvousWait, which seizes the process and lets it go on: the exec then stops it before the
// new image's first instruction.
//
// A vfork child shares all of it and is not meant: getpid() differs. A forked child finds its alive
// word 0.

#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace trapline::probes {

inline constexpr std::chrono::milliseconds kRendezvousWait{200};

// Functions whose entry carries the stub, in whatever module has them.
inline constexpr std::string_view kRendezvousFunctions[] = {"execve", "execveat", "fexecve"};

// Position-independent code with the convention of bodies (see codegen.h). Makes system calls:
// getpid, gettid, futex.
std::vector<std::byte> rendezvous_stub();

}  // namespace trapline::probes
