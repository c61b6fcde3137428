// What the tracer's two processes share, for the one that outlives the other: which breakpoints of
// the engine `outside` stand in which process, and whether the first process is still there.
//
// The jumps of the other engines have a book in the traced process (probes/book.h). Here nothing is
// mapped there, so the list lies in memory that both processes of the tracer share. An entry is
// made before its breakpoint is, and erased after; whoever reads it looks at the bytes first. A
// forked child has its parent's breakpoints until it is cleaned: it runs the same file.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/address.h"
#include "base/result.h"
#include "target/process.h"

namespace trapline::session {

class Ledger {
 public:
  Ledger();  // before the fork
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // `original`: the instruction's bytes. Errors: kUnsupported, it is full.
  Result<> enter(const target::ProcessIdentity& process, RemoteAddr at,
                 std::span<const std::byte> original);
  void erase(Pid pid);

  struct Outcome {
    std::size_t processes = 0;
    std::size_t sites = 0;
  };
  // By the survivor: puts the original bytes back where ours still stand, also in processes that
  // run. Takes a moment; who hits one meanwhile, or was about to be answered, ends by SIGTRAP.
  Outcome restore() const;

  // By the worker: the process that made this was its parent, and is gone. Nothing is to be put in
  // place any more, as the next tracer of the process may be about to look.
  bool is_deserted() const;

 private:
  struct Entry {
    std::int32_t pid;  // 0: none
    std::uint32_t size;
    std::uint64_t start_time;
    std::uint64_t at;
    std::uint64_t device;  // of the file that it runs
    std::uint64_t inode;
    std::byte original[16];
  };
  struct Table;
  static bool concerns(const Entry& entry, Pid pid);
  Table* table_;
  Pid first_;  // who made this
};

}  // namespace trapline::session
