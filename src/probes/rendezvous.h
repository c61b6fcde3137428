// Rendezvous: how a process that runs alone tells its tracer what is about to happen to it, and
// waits for it.
//
// The tracer has let go of the process, so nothing stops at an exec, at a fork, or when a library
// is loaded. Instead some functions of the C library and its loader carry probes of our own, whose
// body is not compiled from a program but the stub below:
//   1. it writes the thread's id to the request's word in the arena's header and rings the
//   doorbell;
//   2. it waits until the tracer has done what it has to (armed the new module; seized the process,
//      so that its exec or fork will stop) and writes 0;
//   3. if nobody answers within kRendezvousWait it goes on, and counts a miss. A tracer that has
//      marked the request as seen gets kSeenWait more. After kMissesInARow nobody is waited for.
// A thread that finds another's request there waits for its turn.
//
// A vfork child shares all of it and is not meant: getpid() differs. A forked child finds its alive
// word 0.

#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "wire/arena.h"

namespace trapline::probes {

inline constexpr std::chrono::milliseconds kRendezvousWait{200};
inline constexpr std::chrono::seconds kSeenWait{2};
inline constexpr std::uint32_t kMissesInARow = 4;

enum class RendezvousKind : std::uint8_t {
  kExec,
  kLoad,   // called by the loader after its list of modules has changed, before it runs their code
  kFork,   // a function that makes a process
  kClone,  // one that makes a process or, by its third argument, a thread
};
inline constexpr std::size_t kRendezvousKinds = 4;

wire::Request request_of(RendezvousKind kind);

// Functions whose entry carries the stub, in whatever module has them. Of one that stands `instead`
// of another only the first that is there is needed.
struct RendezvousFunction {
  RendezvousKind kind{};
  std::string_view name;
  std::string_view instead = {};
};
std::span<const RendezvousFunction> rendezvous_functions();

// Position-independent code with the convention of bodies (see codegen.h). Makes system calls:
// getpid, gettid, clock_gettime, futex.
std::vector<std::byte> rendezvous_stub(RendezvousKind kind);

}  // namespace trapline::probes
