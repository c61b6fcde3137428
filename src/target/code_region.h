// Memory in the target for code: anonymous, private, read and execute; within jump reach of given
// text. And the fork page.
//
// Where a region may lie: so that each byte of it and each byte of the text it serves are less than
// 2 GiB apart; never in the gap above the heap (brk would run into it), nor within RLIMIT_STACK + 1
// MiB below a stack. It is written through the tracer (Memory::write), never writable in the
// target. Sources: mmap(2), brk(2), mm/mmap.c (stack_guard_gap), arch/x86/mm/mmap.c.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/address.h"
#include "base/result.h"
#include "target/process.h"
#include "target/remote_syscall.h"

namespace trapline::target {

// What limits where new mappings may go, apart from the mappings themselves.
struct PlacementLimits {
  RemoteAddr heap_start;           // start_brk; 0: unknown
  std::uint64_t stack_limit = 0;   // RLIMIT_STACK, RLIM_INFINITY included
  RemoteAddr start_stack;          // an address in the main thread's stack; 0: unknown
  std::uint64_t lowest = 0x10000;  // mmap_min_addr
};
Result<PlacementLimits> read_placement_limits(Pid pid);

// The free range of `size` bytes (whole pages) that is nearest to `text` and within reach of all of
// it; nullopt: none. Pure.
std::optional<AddressRange> find_code_gap(std::span<const Mapping> maps,
                                          const PlacementLimits& limits, AddressRange text,
                                          std::uint64_t size);

class CodeRegion {
 public:
  // Errors: kNotFound (no room within reach), kPermission (the system forbids new executable
  // memory: SELinux execmem and the like), kOs.
  static Result<CodeRegion> allocate(RemoteCalls& calls, AddressRange text, std::uint64_t size);
  // A region found in the target (its book tells), made by an earlier tracer.
  static CodeRegion adopt(AddressRange range) { return CodeRegion(range); }

  AddressRange range() const { return range_; }
  // Within the region; through the stopped process's memory.
  Result<> write(StoppedProcess& process, std::uint64_t offset, std::span<const std::byte> bytes);

  // Unmaps it. Precondition: stack_scan.h found no address into it, and nothing jumps there any
  // more.
  Result<> remove(RemoteCalls& calls);
  void forget() { range_ = {}; }

 private:
  explicit CodeRegion(AddressRange range) : range_(range) {}
  AddressRange range_;
};

// A page that holds the u32 1 at offset 0, and reads 0 in forked children (MADV_WIPEONFORK).
// Read-only in the target.
class ForkPage {
 public:
  static Result<ForkPage> create(RemoteCalls& calls);
  // One that an earlier tracer made.
  static ForkPage adopt(RemoteAddr address) { return ForkPage(address); }
  RemoteAddr address() const { return address_; }
  Result<> remove(RemoteCalls& calls);
  void forget() { address_ = {}; }

 private:
  explicit ForkPage(RemoteAddr address) : address_(address) {}
  RemoteAddr address_;
};

// membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) in the target, so that the tracer's
// membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) reaches its threads. Stays until exec.
Result<> register_membarrier(RemoteCalls& calls);
// The tracer's half.
Result<> membarrier_global_expedited();

// Gives the private copies of text pages back: MADV_DONTNEED on each page of `pages` (page-aligned
// ranges inside private, unwritable file mappings) whose bytes equal the mapped file's. Pages that
// differ are left. Returns the bytes given back.
Result<std::uint64_t> give_back_text(RemoteCalls& calls, std::span<const AddressRange> pages);

}  // namespace trapline::target
