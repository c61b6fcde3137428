// Whether threads are in given code, or will come back to it, before it is changed or unmapped.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>

#include "base/result.h"
#include "target/memory.h"
#include "target/stack_scan.h"
#include "target/stopped.h"

namespace trapline::probes {

// Whether a thread will really go on at what the scan hit: it is a PC, or one that a signal frame
// has saved. (A mere word that looks like an address would keep code for ever.)
bool is_alive(const target::ScanHit& hit, const target::Memory& memory);

enum class Presence : std::uint8_t {
  kOutside,
  kPassing,      // its PC is there; where it came from is not
  kInterrupted,  // a signal frame will bring it back there, or its stack could not be read
};
// Of the threads that are in any of `ranges` (sorted, not overlapping), or will come back there.
Result<std::map<pid_t, Presence>> presence(target::StoppedProcess& process,
                                           std::span<const target::AddressRange> ranges);

// Whether nobody is in any of `ranges` (sorted, not overlapping). False also where a stack could
// not be read to its end.
Result<bool> nobody_inside(target::StoppedProcess& process,
                           std::span<const target::AddressRange> ranges);

}  // namespace trapline::probes
