// Memory shared by the target and the tracer, made so that no byte of the target's memory is
// written and no descriptor stays open in it.
//
//   memfd_create in the target (its name: a string that the target has anyway) -> the descriptor is
//   taken over by pidfd_getfd, or opened as /proc/PID/task/TID/fd/N -> checked to be that memfd ->
//   sized by the tracer -> sealed against shrinking, growing and further seals -> mapped in both;
//   then, the target running again, allocated and, in parts, entered into the page tables.
//
// The seals matter: a target that could truncate the file would kill the tracer by SIGBUS. The
// contents are hostile all the same. In the target the mapping is never locked (munlock) and left
// out of core dumps. Sources: memfd_create(2), pidfd_getfd(2), mmap(2), mlock(2).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"
#include "target/remote_syscall.h"
#include "target/stopped.h"

namespace trapline::target {

class ArenaMapping {
 public:
  // `size` is rounded up to whole pages; zeroed. Errors name the limit that was hit (descriptors,
  // address space). allocate() is next.
  static Result<ArenaMapping> create(RemoteCalls& calls, std::uint64_t size);
  // One that only the tracer has. allocate() and enter() are not for it.
  static Result<ArenaMapping> create_here(std::uint64_t size);
  // Allocates all of its memory, so that no body will ever want for a page. Errors: no memory.
  Result<> allocate();
  // Enters its bytes from `begin` to `end` into both processes' page tables, from outside while the
  // target runs: in a stop this would be most of its time, and left to the bodies a page fault for
  // each page. What cannot be entered is left to them. Precondition: allocated, both within it.
  void enter(Pid pid, std::uint64_t begin, std::uint64_t end) const;

  // One that an earlier tracer left in the target: only to be removed.
  static ArenaMapping adopt(AddressRange remote);

  ArenaMapping(ArenaMapping&&) noexcept;
  ArenaMapping& operator=(ArenaMapping&&) noexcept;
  ~ArenaMapping();  // unmaps here; in the target it stays, unless remove() was called

  RemoteAddr remote() const { return range_.start; }
  AddressRange remote_range() const { return range_; }
  std::span<std::byte> local() const { return local_; }

  // Unmaps it in the target. Precondition: no body runs or will run that uses it. The tracer's side
  // stays readable.
  Result<> remove(RemoteCalls& calls);
  // The target has ended or its image was replaced: nothing is left to be removed.
  void forget() { range_ = {}; }

 private:
  ArenaMapping() = default;
  Fd file_;  // until allocate()
  std::span<std::byte> local_;
  AddressRange range_;
};

}  // namespace trapline::target
