// Time: the raw clock that records carry, and what D's timestamps make of it.

#pragma once

#include "runtime/platform.h"

namespace trapline::runtime {

struct Timespec {
  int64_t seconds;
  int64_t nanoseconds;
};

TL_SLOW uint64_t tl_system_clock(uint64_t which) {
  Timespec now;
  if (system_call(kSysClockGettime, static_cast<long>(which), &now) != 0) return 0;
  return static_cast<uint64_t>(now.seconds) * 1000000000 + static_cast<uint64_t>(now.nanoseconds);
}

// The raw clock: the time stamp counter; nanoseconds where the system does not trust it (tsc_mult
// 0).
TL_INLINE uint64_t tl_clock(const wire::ProbeSite* site) {
  if (__builtin_expect(header_of(site)->tsc_mult == 0, 0)) return tl_system_clock(kClockMonotonic);
  return read_tsc();
}

// A raw clock value as CLOCK_MONOTONIC's nanoseconds.
TL_INLINE uint64_t tl_timestamp(const wire::ProbeSite* site, uint64_t raw) {
  const wire::Header* header = header_of(site);
  if (header->tsc_mult == 0) return raw;
  const auto product = static_cast<unsigned __int128>(raw - header->tsc_base) * header->tsc_mult;
  return header->ns_base + static_cast<uint64_t>(product >> (header->tsc_shift & 127));
}

TL_INLINE uint64_t tl_wall_timestamp(const wire::ProbeSite* site, uint64_t raw) {
  return tl_timestamp(site, raw) + header_of(site)->wall_offset;
}

TL_INLINE uint64_t tl_virtual_timestamp() { return tl_system_clock(kClockThreadCputime); }

// Linux keeps (node << 12 | processor) as the limit of a segment, selector 0x7b, for the vDSO's
// getcpu (arch/x86/include/asm/segment.h, vdso_read_cpunode). `lsl` reads it on every processor,
// where rdpid may not exist; 15 ns.
TL_SLOW uint32_t tl_processor_by_segment() {
  uint32_t limit = 0;
  asm volatile("lsl %1, %0" : "+r"(limit) : "r"(0x7b) : "cc");
  return limit & 0xfff;
}

// The processor's number, as the C library's restartable-sequence area has it; negative there: not
// registered. Precondition: `slot` is this thread's.
TL_INLINE uint32_t tl_processor(const wire::ProbeSite* site, const wire::Slot* slot) {
  const int32_t offset = header_of(site)->cpu_offset;
  if (__builtin_expect(offset != 0 && static_cast<int64_t>(slot->owner) >= 0, 1)) {
    const uint32_t number = thread_control_word(offset);
    if (__builtin_expect(static_cast<int32_t>(number) >= 0, 1)) return number;
  }
  return tl_processor_by_segment();
}

}  // namespace trapline::runtime
