// Records: reserved, filled in place and committed in the level's ring of chunks.

#pragma once

#include "runtime/clock.h"
#include "runtime/slot.h"

namespace trapline::runtime {

using wire::RecordHeader;
using wire::RingChunk;

inline constexpr uint32_t kPopAttempts = 64;

inline __attribute__((always_inline)) unsigned char* chunk_at(uint64_t arena, uint32_t index) {
  return reinterpret_cast<unsigned char*>(arena + tl_layout.chunks +
                                          uint64_t{index} * wire::kChunkSize);
}

// Takes a chunk from the pool: its index + 1, or 0. Another thread's pop may make what we read as
// `link` stale; the tag in the head's high half has changed then, and the exchange fails.
inline uint32_t pop_chunk(uint64_t arena) {
  uint64_t* head = &reinterpret_cast<Header*>(arena)->free_chunks;
  uint64_t seen = __atomic_load_n(head, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < kPopAttempts; ++i) {
    const auto index = static_cast<uint32_t>(seen);
    if (index == 0 || index > tl_layout.chunk_count) return 0;
    const uint32_t link = *reinterpret_cast<const volatile uint32_t*>(chunk_at(arena, index - 1));
    const uint32_t next = wire::free_next(index - 1, link);
    const uint64_t wanted = (((seen >> 32) + 1) << 32) | next;
    if (__atomic_compare_exchange_n(head, &seen, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return index;
  }
  return 0;
}

TL_SLOW unsigned char* tl_next_ring_chunk(const ProbeSite* site, Slot* slot, Level* level,
                                          uint32_t size) {
  const uint64_t arena = site->arena;
  const uint32_t taken = pop_chunk(arena);
  if (taken == 0) {
    add_in_place(&slot->drops_record, 1);
    return nullptr;
  }
  auto* chunk = reinterpret_cast<RingChunk*>(chunk_at(arena, taken - 1));
  chunk->next = 0;
  chunk->committed = 0;
  if (level->ring_last != 0) {
    auto* full = reinterpret_cast<RingChunk*>(chunk_at(arena, level->ring_last - 1));
    __atomic_store_n(&full->next, taken, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(&level->ring_first, taken, __ATOMIC_RELEASE);
  }
  level->ring_last = taken;
  level->ring_used = size;
  return reinterpret_cast<unsigned char*>(chunk) + RingChunk::kDataOffset;
}

// Room for a record of `size` bytes, header included; nullptr: none, a drop is counted.
TL_INLINE unsigned char* tl_reserve(const ProbeSite* site, Slot* slot, Level* level,
                                    uint32_t size) {
  const uint32_t used = level->ring_used;
  if (__builtin_expect(level->ring_last != 0 && used + size <= RingChunk::kDataSize, 1)) {
    level->ring_used = used + size;
    return chunk_at(site->arena, level->ring_last - 1) + RingChunk::kDataOffset + used;
  }
  return tl_next_ring_chunk(site, slot, level, size);
}

TL_INLINE void tl_fill_header(unsigned char* record, const ProbeSite* site, const Slot* slot,
                              uint32_t size, uint32_t clause, uint32_t kind, uint32_t tid,
                              uint64_t raw_time) {
  auto* header = reinterpret_cast<RecordHeader*>(record);
  header->size = size;
  header->clause = static_cast<uint16_t>(clause);
  header->kind = static_cast<uint16_t>(kind);
  header->probe = site->probe;
  header->cpu = tl_processor(site, slot);
  header->tsc = raw_time;
  header->tid = tid;
  header->speculation = 0;
}

TL_INLINE void tl_commit(const ProbeSite* site, Level* level) {
  auto* chunk = reinterpret_cast<RingChunk*>(chunk_at(site->arena, level->ring_last - 1));
  __atomic_store_n(&chunk->committed, level->ring_used, __ATOMIC_RELEASE);
}

// Gives back what tl_reserve took last.
TL_INLINE void tl_abort(Level* level, uint32_t size) { level->ring_used -= size; }

// A record of a fault. `where`: fault << 48 | clause << 32 | instruction.
TL_INLINE void tl_fault(const ProbeSite* site, Slot* slot, Level* level, uint64_t where,
                        uint64_t address) {
  constexpr uint32_t size = sizeof(RecordHeader) + sizeof(wire::FaultPayload);
  unsigned char* record = tl_reserve(site, slot, level, size);
  if (record == nullptr) return;
  tl_fill_header(record, site, slot, size, static_cast<uint32_t>(where >> 32) & 0xffff,
                 wire::kRecordFault, slot->tid, tl_clock(site));
  auto* payload = reinterpret_cast<wire::FaultPayload*>(record + sizeof(RecordHeader));
  payload->fault = static_cast<uint32_t>(where >> 48);
  payload->instruction = static_cast<uint32_t>(where);
  payload->address = address;
  tl_commit(site, level);
}

}  // namespace trapline::runtime
