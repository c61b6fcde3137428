// Undoes what a tracer that was killed has left in the processes that it traced: what its keeper
// does at once, where one has survived (otherwise the next tracer does, see Tracee).
//
// All processes are looked at, so that children which they have forked are restored as well. Whose
// memory may not be looked at is skipped: the dead tracer could not trace it either.
// Takes some 50 us a process that runs, and a short stop of each that has something.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "session/ledger.h"
#include "target/process.h"

namespace trapline::session {

struct Restored {
  std::size_t processes = 0;
  std::size_t sites = 0;
  std::vector<std::string> left;  // what could not be taken back, and why
};

// A tracer while it lives, or a zombie.
inline Result<target::ProcessIdentity> identify_tracer(Pid pid) { return target::identify(pid); }

// Precondition: `tracer` is dead (a zombie will do).
Restored restore_after(const target::ProcessIdentity& tracer, const Ledger& ledger);

}  // namespace trapline::session
