// The thread pointer (fs_base on x86-64) of each stopped thread, and where the control block behind
// it keeps the thread id.
//
// The offset is found, not known: the 4-byte words at fs_base + 0..0x800 are compared with the
// thread's id for every thread that has a thread pointer; the offset at which all agree is taken if
// it is the only one, or all others are ruled out by being the process id (a pid cache) in threads
// that are not the leader. glibc 0x2d0, musl 0x30 on x86-64.

#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/stopped.h"

namespace trapline::target {

struct ThreadPointers {
  struct Entry {
    Tid tid;
    RemoteAddr pointer;  // 0: TLS is not set up yet
    bool self_pointer;   // the word at `pointer` is `pointer`: fs:0 can be read for it
  };
  std::vector<Entry> threads;
  std::uint32_t tid_offset = 0;  // 0: not found, or ambiguous
  // Where the C library's rseq area keeps the number of the processor (rseq(2), cpu_id), from the
  // thread pointer on; 0: no rseq, or not at the same place in all threads.
  std::int32_t cpu_offset = 0;
  bool all_ready() const {
    for (const Entry& e : threads) {
      if (e.pointer.value() == 0) return false;
    }
    return true;
  }
  // Those that have one have it as the C library sets it.
  bool all_self() const {
    for (const Entry& e : threads) {
      if (e.pointer.value() != 0 && !e.self_pointer) return false;
    }
    return true;
  }
};

Result<ThreadPointers> read_thread_pointers(StoppedProcess& process);

}  // namespace trapline::target
