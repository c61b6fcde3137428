// What a body does to its process because the program asked for it (destructive actions), and
// speculations.

#pragma once

#include "runtime/clock.h"
#include "runtime/memory.h"
#include "runtime/slot.h"
#include "wire/speculation.h"

namespace trapline::runtime {

inline constexpr long kSysGetpid = 39;
inline constexpr long kSysKill = 62;
inline constexpr long kSysProcessVmWritev = 311;

// The kernel is asked who we are: in a PID namespace of its own a process has another number than
// the one that the tracer knows, which may be somebody else's there.
TL_SLOW void tl_raise(uint64_t signal) {
  system_call(kSysKill, system_call(kSysGetpid), reinterpret_cast<void*>(signal));
}

TL_SLOW void tl_chill(const ProbeSite* site, uint64_t nanoseconds) {
  const uint64_t start = tl_timestamp(site, tl_clock(site));
  while (tl_timestamp(site, tl_clock(site)) - start < nanoseconds) {
  }
}

// 1: all `size` bytes were written. The kernel reads and writes both ends: neither can fault.
TL_LARGE uint64_t tl_copy_out(const Slot* slot, Level* level, uint64_t to, uint64_t from,
                              uint64_t size) {
  if (size == 0) return 1;
  auto* vectors = reinterpret_cast<IoVector*>(level->work);
  vectors[0] = {from, size};
  vectors[1] = {to, size};
  long pid = static_cast<long>(slot->tid);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const long result = system_call(kSysProcessVmWritev, pid, vectors, 1, vectors + 1, 1, 0);
    if (result == static_cast<long>(size)) return 1;
    if (result != -kEperm && result != -kEsrch) return 0;
    pid = system_call(kSysGettid);
  }
  return 0;
}

TL_SLOW uint64_t tl_speculation(Slot* slot, uint32_t* words, uint32_t count) {
  const uint32_t number = wire::speculation_begin(words, count);
  if (number == 0) add_in_place(&slot->drops_speculation, 1);
  return number;
}
TL_SLOW uint64_t tl_speculation_token(uint32_t* words, uint32_t count, uint64_t number) {
  return wire::speculation_active(words, count, number);
}
TL_SLOW uint64_t tl_speculation_end(uint32_t* words, uint32_t count, uint64_t number) {
  return wire::speculation_end(words, count, number);
}

// The processor's counter, mixed (splitmix64, Steele et al. 2014): no state to be shared.
TL_SLOW uint64_t tl_random(const ProbeSite* site) {
  uint64_t mixed = tl_clock(site) * 0x9e3779b97f4a7c15 + thread_pointer();
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return (mixed ^ (mixed >> 31)) >> 33;
}

TL_SLOW uint64_t tl_is_progeny_of(const ProbeSite* site, uint64_t pid) {
  const Header* header = header_of(site);
  for (uint32_t i = 0; i < wire::kAncestors; ++i) {
    if (header->ancestors[i] != 0 && static_cast<uint64_t>(header->ancestors[i]) == pid) return 1;
  }
  return 0;
}

}  // namespace trapline::runtime
