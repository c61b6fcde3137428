// Keyed aggregations: the level's hash tables, one chain for each parity of the epoch.

#pragma once

#include "runtime/record.h"
#include "wire/bins.h"
#include "wire/key.h"

namespace trapline::runtime {

using wire::TableChunk;

// What an aggregation's value is before its first update.
enum class Initial : uint64_t { kZero = 0, kMax = 1, kMin = 2 };

// The first word of an entry.
inline __attribute__((always_inline)) uint64_t entry_head(uint32_t hash, uint64_t aggregation,
                                                          uint64_t key_words) {
  return uint64_t{hash} | (aggregation << 32) | (key_words << 48);
}
inline __attribute__((always_inline)) uint16_t* index_of(unsigned char* chunk) {
  return reinterpret_cast<uint16_t*>(chunk + TableChunk::kIndexOffset);
}
inline __attribute__((always_inline)) uint64_t* entry_at(unsigned char* chunk, uint32_t reference) {
  return reinterpret_cast<uint64_t*>(chunk + TableChunk::kDataOffset) + (reference - 1);
}
inline __attribute__((always_inline)) uint32_t position_of(uint32_t hash) {
  static_assert(TableChunk::kIndexSize == 4096);
  return hash & (TableChunk::kIndexSize - 1);
}

inline unsigned char* new_table(const ProbeSite* site, Slot* slot, uint32_t* chain) {
  const uint32_t taken = pop_chunk(site->arena);
  if (taken == 0) {
    add_in_place(&slot->drops_aggregation, 1);
    return nullptr;
  }
  unsigned char* chunk = chunk_at(site->arena, taken - 1);
  auto* words = reinterpret_cast<volatile uint64_t*>(chunk + TableChunk::kIndexOffset);
  for (uint32_t i = 0; i < TableChunk::kIndexSize * 2 / 8; ++i) words[i] = 0;
  auto* table = reinterpret_cast<TableChunk*>(chunk);
  table->used = 0;
  table->entries = 0;
  table->reserved0 = 0;
  table->next = *chain;
  __atomic_store_n(chain, taken, __ATOMIC_RELEASE);
  return chunk;
}

// What is asked of tl_find_entry and tl_new_entry, in the level's work words: with these in memory
// it needs little stack.
enum Request : uint32_t {
  kRequestKey = 0,    // address of the key's words
  kRequestHead = 1,   // of the entry
  kRequestShape = 2,  // value words << 2 | Initial
  kRequestWords = 3,  // short keys
};

// A new entry in the table, of which the index has no reference yet; its value is as Initial says.
inline __attribute__((always_inline)) uint64_t* append_entry(unsigned char* chunk,
                                                             const volatile uint64_t* request) {
  auto* table = reinterpret_cast<TableChunk*>(chunk);
  uint64_t* entry = entry_at(chunk, table->used / 8 + 1);
  const uint64_t head = request[kRequestHead];
  *entry++ = head;
  const auto* key = reinterpret_cast<const uint64_t*>(request[kRequestKey]);
  for (uint64_t i = head >> 48; i != 0; --i) *entry++ = *key++;
  uint64_t* value = entry;
  auto* word = const_cast<volatile uint64_t*>(entry);
  for (uint64_t i = request[kRequestShape] >> 2; i != 0; --i) *word++ = 0;
  const auto initial = static_cast<Initial>(request[kRequestShape] & 3);
  if (initial == Initial::kMax) *value = INT64_MAX;
  if (initial == Initial::kMin) *value = static_cast<uint64_t>(INT64_MIN);
  table->used =
      static_cast<uint32_t>(reinterpret_cast<const volatile unsigned char*>(word) - chunk) -
      TableChunk::kDataOffset;
  table->entries += 1;
  return value;
}

// Makes an entry for the requested key, in a new chunk if the newest is full. nullptr: no room, a
// drop is counted.
TL_SLOW uint64_t* tl_new_entry(const ProbeSite* site, Slot* slot, Level* level) {
  const volatile uint64_t* request = level->work;
  uint32_t* chain = &level->tables[level->entered & 1];
  unsigned char* chunk = nullptr;
  if (*chain != 0) {
    chunk = chunk_at(site->arena, *chain - 1);
    const uint64_t size = (1 + (request[kRequestHead] >> 48) + (request[kRequestShape] >> 2)) * 8;
    const auto* table = reinterpret_cast<const TableChunk*>(chunk);
    if (table->entries >= TableChunk::kMaxEntries || table->used + size > TableChunk::kDataSize)
      chunk = nullptr;
  }
  if (chunk == nullptr) {
    chunk = new_table(site, slot, chain);
    if (chunk == nullptr) return nullptr;
  }
  uint16_t* index = index_of(chunk);
  uint64_t position = position_of(static_cast<uint32_t>(request[kRequestHead]));
  while (index[position] != 0) position = (position + 1) & (TableChunk::kIndexSize - 1);
  index[position] = static_cast<uint16_t>(reinterpret_cast<const TableChunk*>(chunk)->used / 8 + 1);
  return append_entry(chunk, request);
}

// The value of the requested key in the newest table; nullptr: it is not there.
TL_SLOW uint64_t* tl_find_entry(const ProbeSite* site, Level* level) {
  const volatile uint64_t* request = level->work;
  const uint32_t first = level->tables[level->entered & 1];
  if (first == 0) return nullptr;
  unsigned char* chunk = chunk_at(site->arena, first - 1);
  uint64_t position = position_of(static_cast<uint32_t>(request[kRequestHead]));
  for (uint32_t reference; (reference = index_of(chunk)[position]) != 0;
       position = (position + 1) & (TableChunk::kIndexSize - 1)) {
    const uint64_t* entry = entry_at(chunk, reference);
    const uint64_t head = request[kRequestHead];
    if (*entry++ != head) continue;
    const auto* key = reinterpret_cast<const uint64_t*>(request[kRequestKey]);
    uint64_t left = head >> 48;
    while (left != 0 && *entry == *key) {
      ++entry;
      ++key;
      --left;
    }
    if (left == 0) return const_cast<uint64_t*>(entry);
  }
  return nullptr;
}

// The hash of a key of `count` words; the aggregation's number tells the variables of one table
// apart.
TL_INLINE uint64_t tl_hash_start(uint64_t aggregation) { return wire::hash_start(aggregation); }
TL_SLOW uint64_t tl_hash_words(uint64_t hash, const uint64_t* words, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) hash = wire::hash_step(hash, words[i]);
  return hash;
}

// A key of any length, which lies at `key`.
TL_INLINE uint64_t* tl_find_long(const ProbeSite* site, Slot* slot, Level* level,
                                 const uint64_t* key, uint64_t head, uint64_t shape) {
  level->work[kRequestKey] = reinterpret_cast<uint64_t>(key);
  level->work[kRequestHead] = head;
  level->work[kRequestShape] = shape;
  uint64_t* found = tl_find_entry(site, level);
  return found != nullptr ? found : tl_new_entry(site, slot, level);
}
TL_INLINE uint64_t tl_entry_head(uint64_t aggregation, uint64_t key_words, uint64_t hash) {
  return entry_head(wire::hash_end(hash), aggregation, key_words);
}

// The entries that come first in the table are found here, the others by tl_find_entry. `key_words`
// is a constant, at most 2.
TL_INLINE uint64_t* tl_find_short(const ProbeSite* site, Slot* slot, Level* level, uint64_t epoch,
                                  uint64_t aggregation, uint32_t key_words, uint64_t word0,
                                  uint64_t word1, uint64_t shape) {
  uint64_t hash = wire::hash_start(aggregation);
  if (key_words > 0) hash = wire::hash_step(hash, word0);
  if (key_words > 1) hash = wire::hash_step(hash, word1);
  const uint64_t head = entry_head(wire::hash_end(hash), aggregation, key_words);
  const uint32_t first = level->tables[epoch & 1];
  if (__builtin_expect(first != 0, 1)) {
    unsigned char* chunk = chunk_at(site->arena, first - 1);
    const uint32_t reference = index_of(chunk)[position_of(static_cast<uint32_t>(head))];
    if (__builtin_expect(reference != 0, 1)) {
      uint64_t* entry = entry_at(chunk, reference);
      if (__builtin_expect(entry[0] == head && (key_words < 1 || entry[1] == word0) &&
                               (key_words < 2 || entry[2] == word1),
                           1)) {
        return entry + 1 + key_words;
      }
    }
  }
  level->work[kRequestWords] = word0;
  level->work[kRequestWords + 1] = word1;
  return tl_find_long(site, slot, level, level->work + kRequestWords, head, shape);
}

// ------------------------------------------------------------------------------------------------
// updates

// Direct cells: at `offset` in the slot's direct area.
inline __attribute__((always_inline)) uint64_t* direct_cell(Slot* slot, uint64_t offset) {
  return reinterpret_cast<uint64_t*>(reinterpret_cast<unsigned char*>(slot) +
                                     tl_layout.slot_direct + offset);
}
TL_INLINE void tl_direct_count(Slot* slot, uint64_t offset, uint64_t amount) {
  add_in_place(direct_cell(slot, offset), amount);
}
// Word `index` after the one that says that there was an update at all.
TL_INLINE void tl_direct_add(Slot* slot, uint64_t offset, uint64_t index, uint64_t amount) {
  *const_cast<volatile uint64_t*>(direct_cell(slot, offset)) = 1;
  add_in_place(direct_cell(slot, offset) + 1 + index, amount);
}

// Table entries: the level's alone.
TL_INLINE void tl_add(uint64_t* value, uint64_t index, uint64_t amount) { value[index] += amount; }
TL_INLINE void tl_min(uint64_t* value, int64_t candidate) {
  if (candidate < static_cast<int64_t>(*value)) *value = static_cast<uint64_t>(candidate);
}
TL_INLINE void tl_max(uint64_t* value, int64_t candidate) {
  if (candidate > static_cast<int64_t>(*value)) *value = static_cast<uint64_t>(candidate);
}
TL_INLINE void tl_average(uint64_t* value, uint64_t amount) {
  value[0] += 1;
  value[1] += amount;
}
TL_INLINE void tl_deviation(uint64_t* value, int64_t amount) {
  value[0] += 1;
  value[1] += static_cast<uint64_t>(amount);
  const auto square = static_cast<unsigned __int128>(static_cast<__int128>(amount) * amount);
  const auto low = static_cast<uint64_t>(square);
  const uint64_t sum = value[2] + low;
  value[3] += static_cast<uint64_t>(square >> 64) + (sum < low ? 1 : 0);
  value[2] = sum;
}

TL_INLINE uint64_t tl_quantize_bin(int64_t value) { return wire::quantize_bin(value); }
TL_INLINE uint64_t tl_lquantize_bin(int64_t value, int64_t base, int64_t step, uint32_t levels) {
  return wire::lquantize_bin(value, base, step, levels);
}
// `shape`: factor, low, high and steps, 16 bits each from the lowest on.
TL_SLOW uint64_t tl_llquantize_bin(int64_t value, uint64_t shape) {
  return wire::llquantize_bin(
      value, {static_cast<uint32_t>(shape & 0xffff), static_cast<uint32_t>(shape >> 16 & 0xffff),
              static_cast<uint32_t>(shape >> 32 & 0xffff), static_cast<uint32_t>(shape >> 48)});
}

}  // namespace trapline::runtime
