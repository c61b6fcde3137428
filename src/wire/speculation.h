// The state of a speculation: one 32-bit word in the globals, for all threads and the tracer.
//
//   bits 0-1    free, active, or over (committed or discarded; the tracer has not seen it yet)
//   bits 2-15   0
//   bits 16-31  a generation, which every return to free raises
//
//   free -> active  by speculation(), active -> over by commit() and discard(), both by
//   compare-and-swap by whoever comes first; over -> free by the tracer, once it has printed or
//   forgotten the records. A record, and what commit() reports, carry a token: the number of the
//   speculation (from 1 on) and the generation. Records that come late are so told from those of
//   the next use.

#pragma once

#include <stdint.h>

namespace trapline::wire {

inline constexpr uint32_t kSpeculationFree = 0;
inline constexpr uint32_t kSpeculationActive = 1;
inline constexpr uint32_t kSpeculationOver = 2;
inline constexpr uint32_t kSpeculationState = 3;
inline constexpr uint32_t kMaxSpeculations = 0xfffe;

constexpr uint32_t speculation_token(uint32_t number, uint32_t word) {
  return (word & 0xffff0000) | number;
}
constexpr uint32_t speculation_number(uint32_t token) { return token & 0xffff; }

// The number of a speculation that was free; 0: none was.
inline uint32_t speculation_begin(uint32_t* words, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
    if ((word & kSpeculationState) == kSpeculationFree &&
        __atomic_compare_exchange_n(&words[i], &word, word | kSpeculationActive, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      return i + 1;
    }
  }
  return 0;
}

// The token of speculation `number` if it is active, else 0.
inline uint32_t speculation_active(const uint32_t* words, uint32_t count, uint64_t number) {
  if (number == 0 || number > count) return 0;
  const uint32_t word = __atomic_load_n(&words[number - 1], __ATOMIC_ACQUIRE);
  if ((word & kSpeculationState) != kSpeculationActive) return 0;
  return speculation_token(static_cast<uint32_t>(number), word);
}

// Ends it: its token, or 0 if it was not active.
inline uint32_t speculation_end(uint32_t* words, uint32_t count, uint64_t number) {
  if (number == 0 || number > count) return 0;
  uint32_t word = __atomic_load_n(&words[number - 1], __ATOMIC_RELAXED);
  if ((word & kSpeculationState) != kSpeculationActive) return 0;
  const uint32_t over = (word & ~kSpeculationState) | kSpeculationOver;
  if (!__atomic_compare_exchange_n(&words[number - 1], &word, over, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_RELAXED)) {
    return 0;
  }
  return speculation_token(static_cast<uint32_t>(number), word);
}

// The tracer's part: the speculation of `token` may be used again.
inline void speculation_free(uint32_t* words, uint32_t count, uint32_t token) {
  const uint32_t number = speculation_number(token);
  if (number == 0 || number > count) return;
  uint32_t word = __atomic_load_n(&words[number - 1], __ATOMIC_RELAXED);
  if (speculation_token(number, word) != token || (word & kSpeculationState) != kSpeculationOver) {
    return;
  }
  __atomic_compare_exchange_n(&words[number - 1], &word, (word & 0xffff0000) + 0x10000, false,
                              __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

}  // namespace trapline::wire
