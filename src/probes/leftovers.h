// Probes that a tracer left behind: it was killed, or the process was forked from one that was
// being traced. They do no harm, but nobody else can probe the same places. Found by the books of
// their code regions (book.h), and undone.
//
// A region is left alone while its tracer lives: a process of the book's id and start time exists,
// or, for one in another pid namespace, the arena's epoch still moves. A forked child has no
// tracer whatever the book says.
//
// The books lie in the traced process, which may have forged them. Nothing is believed that could
// reach further than that process: bytes go back only where the book's own bytes are found,
// counters are lowered only beside such, and only mappings that look like ours are unmapped.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/result.h"
#include "probes/book.h"
#include "probes/text_patch.h"
#include "target/memory.h"
#include "target/process.h"
#include "target/stopped.h"

namespace trapline::probes {

class Leftovers {
 public:
  // Looks while the process runs. Where nothing is left (the usual case) it costs a look at the
  // list of mappings.
  // `tracer`: only what that one left, which the caller knows to be dead.
  static Result<Leftovers> find(Pid pid, const target::Memory& memory,
                                const std::optional<target::ProcessIdentity>& tracer = {});

  bool empty() const { return regions_.empty(); }
  // There are probes of a tracer that lives, but is about to arrive or to leave: look again soon.
  bool in_motion() const { return in_motion_; }
  std::size_t site_count() const;

  // The original bytes go back where the regions' jumps still are. Returns at how many places
  // somebody has written over a jump (a debugger's breakpoint): what he saved still leads into a
  // region, so then all of them must stay.
  Result<std::size_t> disarm(target::StoppedProcess& process);
  // Unmaps the regions and what belongs to them once nobody is inside; false: not yet. Only after
  // disarm() has returned 0.
  Result<bool> release(target::StoppedProcess& process);

 private:
  struct Region {
    target::AddressRange range;
    BookHeader book{};
    std::vector<BookEntry> entries;
    std::vector<BookSemaphore> semaphores;

    RemoteAddr semaphore_at(std::size_t index) const;
  };
  Result<> take_back_semaphores(target::Memory& memory) const;
  std::vector<Piece> restoring_pieces() const;  // views into regions_

  std::vector<Region> regions_;  // by address
  bool in_motion_ = false;
};

}  // namespace trapline::probes
