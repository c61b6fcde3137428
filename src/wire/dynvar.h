// Associative arrays: hash tables in the arena that probe bodies of many threads, their signal
// handlers and the tracer's interpreter read and write at the same time, without locks.
//
// A table is `capacity` cells (a power of two) of `cell_size` bytes, all zero at first:
//
//   state (8) | key size (4) | sequence (4) | key bytes ... | value, at the cell's end
//
// A key may lie in the kDynvarProbes cells from its hash's position on. A cell's state is
// hash:32 | generation:29 | state:3; the generation rises each time the cell is claimed, so
// (generation, key) never change together unnoticed.
//
//   kCellEmpty -> kCellClaimed -> kCellPending -> kCellFull <-> kCellWriting
//                      ^                 |            |
//                      +------- kCellTombstone <------+          (never back to empty: probing may
//                      stop there)
//
// Inserting a key that was not found:
//   1. claim the first empty cell or tombstone of the window by compare-and-swap; write key and
//   value;
//   2. announce it: state kCellPending, with a full fence;
//   3. look through the whole window for the same key. Full: ours becomes a tombstone, and theirs
//   is written.
//      Pending in a lower position: ours becomes a tombstone too, and we try anew. Pending in a
//      higher position: wait until it is decided (its owner, if it sees us, gives way without
//      waiting; if it does not, it announced itself before we did and may become full);
//   4. publish: kCellFull.
// Of two that insert the same key, each fences between its announcement and its look, so at least
// one sees the other.
//
// Every wait and every retry is bounded: a thread that was interrupted (by a signal handler with a
// probe of its own) or that died in the middle costs others a counted drop of this key, never their
// progress. A killed writer's cell stays kCellWriting: its value can still be read, if it is an
// integer.
//
// The tracer uses this on memory that the target may forge: nothing here follows a length or an
// index from a cell. Freestanding.

#pragma once

#include <stdint.h>

#include "wire/key.h"

// Stands before each access to memory that others may write; the test puts a scheduler there.
#ifndef TRAPLINE_DYNVAR_STEP
#define TRAPLINE_DYNVAR_STEP() static_cast<void>(0)
#endif

namespace trapline::wire {

struct DynvarCell {
  uint64_t state;
  uint32_t key_size;  // bytes
  uint32_t sequence;  // odd while the value is being written
};
static_assert(sizeof(DynvarCell) == 16);

enum CellState : uint32_t {
  kCellEmpty = 0,
  kCellClaimed = 1,
  kCellPending = 2,
  kCellFull = 3,
  kCellWriting = 4,
  kCellTombstone = 5,
};

inline constexpr uint32_t kDynvarProbes = 32;    // cells that a key may lie in
inline constexpr uint32_t kDynvarSpins = 64;     // looks at a cell that another thread is busy with
inline constexpr uint32_t kDynvarAttempts = 16;  // times an operation starts anew

// For Variable::cell_size. `key_bytes`: of the longest key; a `self` array's holds the thread id
// too (8 more).
constexpr uint32_t dynvar_cell_size(uint32_t key_bytes, uint32_t value_bytes) {
  const uint32_t size = static_cast<uint32_t>(sizeof(DynvarCell)) + round_up_to_word(key_bytes) +
                        round_up_to_word(value_bytes);
  return (size + 15) & ~uint32_t{15};
}

// What the code generator tells the runtime of an array: a constant beside the code.
struct DynvarShape {
  uint64_t offset;  // of the table, from the arena's start
  uint32_t capacity;
  uint32_t cell_size;
  uint32_t value_size;
  uint32_t is_text;
};

struct DynvarTable {
  unsigned char* cells;  // 8-aligned
  uint32_t capacity;     // a power of two
  uint32_t cell_size;
  uint32_t value_size;  // bytes of a value; it lies at cell_size - round_up_to_word(value_size)
};

struct DynvarKey {
  const uint64_t* words;
  uint32_t count;
  uint32_t hash;  // hash_key(words, count, 0)
};

// Precondition: the key fits: sizeof(DynvarCell) + count * 8 <= the value's position.
constexpr bool dynvar_key_fits(const DynvarTable& table, uint32_t count) {
  return uint64_t{sizeof(DynvarCell)} + uint64_t{count} * 8 + round_up_to_word(table.value_size) <=
         table.cell_size;
}

enum class DynvarResult : uint32_t {
  kDone,       // found, stored or removed
  kAbsent,     // load, remove: no such key
  kFull,       // store: no cell is left for this key; a drop
  kContended,  // another thread was busy with it for too long; a drop
};

// How a value is copied.
enum class DynvarForm : uint32_t {
  kBytes,  // value_size bytes; integers of up to 8 bytes are kept as a whole word
  kText,   // up to and including a NUL, at most value_size bytes, the last of which is always 0
};

// Where a value is copied from or to. Handed on by reference: in the runtime it lies in memory, and
// takes no stack.
struct DynvarValue {
  void* bytes;
  DynvarForm form;
};

namespace dynvar_detail {

inline uint64_t load(const uint64_t* word) {
  TRAPLINE_DYNVAR_STEP();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void store(uint64_t* word, uint64_t value) {
  TRAPLINE_DYNVAR_STEP();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline bool exchange_if(uint64_t* word, uint64_t expected, uint64_t wanted) {
  TRAPLINE_DYNVAR_STEP();
  return __atomic_compare_exchange_n(word, &expected, wanted, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}
inline uint32_t state_of(uint64_t word) { return static_cast<uint32_t>(word & 7); }
inline uint32_t hash_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
inline uint64_t with_state(uint64_t word, CellState state) { return (word & ~uint64_t{7}) | state; }
inline uint64_t claim_of(uint64_t word, uint32_t hash) {
  return (uint64_t{hash} << 32) | (((word & 0xfffffff8u) + 8) & 0xfffffff8u) | kCellClaimed;
}
inline bool same_claim(uint64_t a, uint64_t b) { return (a & ~uint64_t{7}) == (b & ~uint64_t{7}); }
inline bool readable(uint64_t word) {
  return state_of(word) == kCellFull || state_of(word) == kCellWriting;
}
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

inline DynvarCell* cell_at(const DynvarTable& table, uint32_t hash, uint32_t probe) {
  const auto first = static_cast<uint32_t>((uint64_t{hash} * table.capacity) >> 32);
  const uint32_t index = (first + probe) & (table.capacity - 1);
  return reinterpret_cast<DynvarCell*>(table.cells + uint64_t{index} * table.cell_size);
}
inline uint32_t probes_of(const DynvarTable& table) {
  return table.capacity < kDynvarProbes ? table.capacity : kDynvarProbes;
}
inline uint64_t* key_of(DynvarCell* cell) { return reinterpret_cast<uint64_t*>(cell + 1); }
inline unsigned char* value_of(const DynvarTable& table, DynvarCell* cell) {
  return reinterpret_cast<unsigned char*>(cell) + table.cell_size -
         round_up_to_word(table.value_size);
}

// Whether the cell, whose state was `word`, held this key all through the comparison.
inline bool holds(DynvarCell* cell, uint64_t word, const DynvarKey& key) {
  if (hash_of(word) != key.hash) return false;
  if (__atomic_load_n(&cell->key_size, __ATOMIC_RELAXED) != key.count * 8) return false;
  const uint64_t* words = key_of(cell);
  for (uint32_t i = 0; i < key.count; ++i) {
    TRAPLINE_DYNVAR_STEP();
    if (__atomic_load_n(words + i, __ATOMIC_RELAXED) != key.words[i]) return false;
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return same_claim(load(&cell->state), word);
}

struct Found {
  DynvarCell* cell;  // nullptr: absent
  uint64_t state;
};
inline Found find(const DynvarTable& table, const DynvarKey& key) {
  const uint32_t probes = probes_of(table);
  for (uint32_t i = 0; i < probes; ++i) {
    DynvarCell* cell = cell_at(table, key.hash, i);
    const uint64_t word = load(&cell->state);
    if (state_of(word) == kCellEmpty) break;
    if (readable(word) && holds(cell, word, key)) return {cell, word};
  }
  return {nullptr, 0};
}

inline void copy_bytes(unsigned char* to, const unsigned char* from, uint32_t size) {
  uint32_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    __builtin_memcpy(&word, from + i, 8);
    __builtin_memcpy(to + i, &word, 8);
  }
  for (; i < size; ++i) to[i] = from[i];
}
inline void copy_text(unsigned char* to, const unsigned char* from, uint32_t size) {
  uint32_t i = 0;
  for (; i + 1 < size; ++i) {
    TRAPLINE_DYNVAR_STEP();
    const unsigned char byte = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    __atomic_store_n(to + i, byte, __ATOMIC_RELAXED);
    if (byte == 0) return;
  }
  if (size != 0) __atomic_store_n(to + i, static_cast<unsigned char>(0), __ATOMIC_RELAXED);
}
// Values are copied while others may write them (the sequence tells); so by relaxed words.
inline void copy_value(unsigned char* to, const unsigned char* from, uint32_t size,
                       DynvarForm form) {
  if (form == DynvarForm::kText) {
    copy_text(to, from, size);
  } else if (size <= 8) {
    TRAPLINE_DYNVAR_STEP();
    const uint64_t word =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(from), __ATOMIC_RELAXED);
    __atomic_store_n(reinterpret_cast<uint64_t*>(to), word, __ATOMIC_RELAXED);
  } else {
    copy_bytes(to, from, size);
  }
}

// Precondition: the cell is ours alone (claimed or writing).
inline void write_value(const DynvarTable& table, DynvarCell* cell, const DynvarValue& value) {
  const uint32_t sequence = __atomic_load_n(&cell->sequence, __ATOMIC_RELAXED) | 1;
  __atomic_store_n(&cell->sequence, sequence, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  copy_value(value_of(table, cell), static_cast<const unsigned char*>(value.bytes),
             table.value_size, value.form);
  TRAPLINE_DYNVAR_STEP();
  __atomic_store_n(&cell->sequence, sequence + 1, __ATOMIC_RELEASE);
}

enum class Step : uint32_t { kDone, kAgain, kFull, kContended };

inline Step give_up(DynvarCell* cell, uint64_t claim, Step step) {
  store(&cell->state, with_state(claim, kCellTombstone));
  return step;
}

// Waits until a pending cell is decided; its state then, or `word` if it still is pending.
inline uint64_t wait_decided(DynvarCell* cell, uint64_t word) {
  for (uint32_t i = 0; i < kDynvarSpins; ++i) {
    const uint64_t now = load(&cell->state);
    if (now != word) return now;
    pause();
  }
  return word;
}

// Steps 3 and 4 above: our pending cell is at probe `mine`.
inline Step decide(const DynvarTable& table, const DynvarKey& key, DynvarCell* ours, uint64_t claim,
                   uint32_t mine) {
  const uint32_t probes = probes_of(table);
  for (uint32_t i = 0; i < probes; ++i) {
    if (i == mine) continue;
    DynvarCell* cell = cell_at(table, key.hash, i);
    const uint64_t word = load(&cell->state);
    if (state_of(word) == kCellEmpty) break;
    const bool pending = state_of(word) == kCellPending;
    if (!(pending || readable(word)) || !holds(cell, word, key)) continue;
    if (!pending) return give_up(ours, claim, Step::kAgain);
    if (i < mine) {
      give_up(ours, claim, Step::kAgain);
      return wait_decided(cell, word) == word ? Step::kContended : Step::kAgain;
    }
    const uint64_t now = wait_decided(cell, word);
    if (now == word) return give_up(ours, claim, Step::kContended);
    if (same_claim(now, word) && readable(now)) return give_up(ours, claim, Step::kAgain);
  }
  store(&ours->state, with_state(claim, kCellFull));
  return Step::kDone;
}

inline Step insert(const DynvarTable& table, const DynvarKey& key, const DynvarValue& value) {
  const uint32_t probes = probes_of(table);
  for (uint32_t i = 0; i < probes; ++i) {
    DynvarCell* cell = cell_at(table, key.hash, i);
    const uint64_t word = load(&cell->state);
    if (state_of(word) != kCellEmpty && state_of(word) != kCellTombstone) continue;
    const uint64_t claim = claim_of(word, key.hash);
    if (!exchange_if(&cell->state, word, claim)) return Step::kAgain;
    __atomic_store_n(&cell->key_size, key.count * 8, __ATOMIC_RELAXED);
    for (uint32_t k = 0; k < key.count; ++k) {
      TRAPLINE_DYNVAR_STEP();
      __atomic_store_n(key_of(cell) + k, key.words[k], __ATOMIC_RELAXED);
    }
    write_value(table, cell, value);
    TRAPLINE_DYNVAR_STEP();
    __atomic_exchange_n(&cell->state, with_state(claim, kCellPending), __ATOMIC_SEQ_CST);
    return decide(table, key, cell, claim, i);
  }
  return Step::kFull;
}

// Takes a full cell to `state` (writing, tombstone). kAgain: it is another key's by now.
inline Step take(DynvarCell* cell, uint64_t word, CellState state) {
  for (uint32_t i = 0; i < kDynvarSpins; ++i) {
    const uint64_t now = load(&cell->state);
    if (!same_claim(now, word) || !readable(now)) return Step::kAgain;
    if (state_of(now) == kCellFull && exchange_if(&cell->state, now, with_state(word, state)))
      return Step::kDone;
    pause();
  }
  return Step::kContended;
}

}  // namespace dynvar_detail

// Copies the value of `key` to `to`: a word for integers, else table.value_size bytes (text: up to
// its NUL). kAbsent: nothing is written there.
inline DynvarResult dynvar_load(const DynvarTable& table, const DynvarKey& key,
                                const DynvarValue& to) {
  namespace d = dynvar_detail;
  for (uint32_t attempt = 0; attempt < kDynvarAttempts; ++attempt) {
    const d::Found found = d::find(table, key);
    if (found.cell == nullptr) return DynvarResult::kAbsent;
    const bool one_word = to.form == DynvarForm::kBytes && table.value_size <= 8;
    const uint32_t before = __atomic_load_n(&found.cell->sequence, __ATOMIC_ACQUIRE);
    if (!one_word && before % 2 != 0) {
      d::pause();
      continue;
    }
    d::copy_value(static_cast<unsigned char*>(to.bytes), d::value_of(table, found.cell),
                  table.value_size, to.form);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    const uint64_t now = d::load(&found.cell->state);
    if (!d::same_claim(now, found.state) || !d::readable(now)) continue;
    if (one_word || __atomic_load_n(&found.cell->sequence, __ATOMIC_RELAXED) == before)
      return DynvarResult::kDone;
  }
  return DynvarResult::kContended;
}

// Sets the value of `key`, and makes its cell if there is none. `value`: a word for integers,
// table.value_size bytes or a text.
inline DynvarResult dynvar_store(const DynvarTable& table, const DynvarKey& key,
                                 const DynvarValue& value) {
  namespace d = dynvar_detail;
  for (uint32_t attempt = 0; attempt < kDynvarAttempts; ++attempt) {
    const d::Found found = d::find(table, key);
    d::Step step;
    if (found.cell == nullptr) {
      step = d::insert(table, key, value);
      if (step == d::Step::kFull) return DynvarResult::kFull;
    } else {
      step = d::take(found.cell, found.state, kCellWriting);
      if (step == d::Step::kDone) {
        d::write_value(table, found.cell, value);
        d::store(&found.cell->state, d::with_state(found.state, kCellFull));
      }
    }
    if (step == d::Step::kDone) return DynvarResult::kDone;
    if (step == d::Step::kContended) return DynvarResult::kContended;
  }
  return DynvarResult::kContended;
}

inline DynvarResult dynvar_load(const DynvarTable& table, const DynvarKey& key, void* to,
                                DynvarForm form) {
  return dynvar_load(table, key, DynvarValue{to, form});
}
inline DynvarResult dynvar_store(const DynvarTable& table, const DynvarKey& key, const void* value,
                                 DynvarForm form) {
  return dynvar_store(table, key, DynvarValue{const_cast<void*>(value), form});
}

inline DynvarResult dynvar_remove(const DynvarTable& table, const DynvarKey& key) {
  namespace d = dynvar_detail;
  for (uint32_t attempt = 0; attempt < kDynvarAttempts; ++attempt) {
    const d::Found found = d::find(table, key);
    if (found.cell == nullptr) return DynvarResult::kAbsent;
    const d::Step step = d::take(found.cell, found.state, kCellTombstone);
    if (step == d::Step::kDone) return DynvarResult::kDone;
    if (step == d::Step::kContended) return DynvarResult::kContended;
  }
  return DynvarResult::kContended;
}

}  // namespace trapline::wire
