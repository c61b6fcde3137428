// Where stopped threads are, or will return to, inside given ranges: before bytes there are changed
// or freed.
//
// For each thread: its pc (and the `syscall` it will execute again), and every word from rsp - 128
// (the red zone) to the end of the stack's mapping; where a signal frame on that stack tells of an
// interrupted stack in another mapping, that too; and further ranges that the caller knows (signal
// stacks). Any word that looks like an address in a range counts: the scan errs on the safe side. A
// PC saved in a signal frame is such a word. Limits: at most `max_stack` bytes a stack are read
// (then `complete` is false); stacks that no thread is on (inactive fibers) are not seen, which
// matters only for code that can be switched away from.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/process.h"
#include "target/stopped.h"

namespace trapline::target {

struct ScanHit {
  enum class Where : std::uint8_t { kPc, kStack };
  Tid tid;
  Where where;
  RemoteAddr value;         // the address inside a range
  RemoteAddr location;      // kStack: of the word
  std::size_t range_index;  // into the ranges given
};

struct ScanResult {
  std::vector<ScanHit> hits;
  bool complete = true;  // every stack was read to its end
};

struct ScanOptions {
  std::uint64_t max_stack = 64u << 20;
  std::span<const AddressRange> more_memory;  // signal stacks and the like, read whole
};

// `ranges`: sorted by start, not overlapping. A hit is an address strictly inside [start, end); for
// a patch window, whose first byte is a legal place to be, pass [start + 1, end).
Result<ScanResult> scan_threads(StoppedProcess& process, std::span<const AddressRange> ranges,
                                const ScanOptions& options = {});

// Lets each thread whose pc is in [start + 1, end) of a window (sorted, not overlapping) run for
// some microseconds, again and again until it is out; all others stay stopped. Returns the threads
// that could not be moved: in a system call that will restart inside, in a group-stop, or still
// inside after `max_tries`. process.threads() is new afterwards. Errors: kTargetGone also if such a
// thread executed another program.
Result<std::vector<Tid>> move_out(StoppedProcess& process, std::span<const AddressRange> windows,
                                  int max_tries = 24);

}  // namespace trapline::target
