// A thread's slot, and the level of it that a body holds.

#pragma once

#include "runtime/platform.h"

namespace trapline::runtime {

using wire::Header;
using wire::Level;
using wire::ProbeSite;
using wire::Slot;

inline __attribute__((always_inline)) Slot* slot_at(uint64_t arena, uint64_t index) {
  return reinterpret_cast<Slot*>(arena + tl_layout.slots + index * tl_layout.slot_stride);
}
inline __attribute__((always_inline)) uint64_t first_index(uint64_t owner) {
  return (owner * wire::kHashMultiplier) >> tl_layout.slot_shift;
}

// Finds the slot of `owner`, or claims a free one. nullptr: neither within reach; a drop is
// counted. A signal handler that fires a probe between the look and the claim may claim another
// slot for the same thread: both are found by the tracer, and the one found first is used from then
// on.
TL_SLOW Slot* tl_find_slot(uint64_t arena, uint64_t owner) {
  const uint64_t first = first_index(owner);
  const uint64_t mask = tl_layout.slot_count - 1;
  for (uint32_t i = 0; i < wire::kSlotProbes; ++i) {
    Slot* slot = slot_at(arena, (first + i) & mask);
    if (__atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE) == owner) return slot;
  }
  for (uint32_t i = 0; i < wire::kSlotProbes; ++i) {
    Slot* slot = slot_at(arena, (first + i) & mask);
    uint64_t free = 0;
    if (__atomic_load_n(&slot->owner, __ATOMIC_RELAXED) == 0 &&
        __atomic_compare_exchange_n(&slot->owner, &free, owner, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
      slot->tid = 0;  // whatever thread used it before: the self variables are not ours
      slot->depth = 0;
      for (auto& level : slot->levels) level.entered = 0;
      return slot;
    }
  }
  __atomic_fetch_add(&reinterpret_cast<Header*>(arena)->drops_no_slot, 1, __ATOMIC_RELAXED);
  return nullptr;
}

TL_SLOW uint32_t tl_gettid() { return static_cast<uint32_t>(system_call(kSysGettid)); }

// While some thread has no thread pointer, or where fs:0 is something else, the thread's id is the
// owner.
TL_SLOW Slot* tl_find_early_slot(uint64_t arena) {
  return tl_find_slot(arena, wire::kOwnerIsTid | tl_gettid());
}

// The body's start. nullptr: it is not to run.
TL_INLINE Slot* tl_enter(const ProbeSite* site) {
  if (*reinterpret_cast<const volatile uint32_t*>(site->alive) == 0) return nullptr;
  const uint64_t arena = site->arena;
  const uint32_t state = *const_cast<const volatile uint32_t*>(&header_of(site)->state);
  if (__builtin_expect((state & (wire::kActive | wire::kEarly | wire::kExiting)) != wire::kActive,
                       0)) {
    if ((state & (wire::kActive | wire::kExiting)) != wire::kActive) return nullptr;
    return tl_find_early_slot(arena);
  }
  if (tl_layout.mute_offset != 0 && thread_control_word(tl_layout.mute_offset) != 0) return nullptr;
  const uint64_t owner = thread_pointer();
  Slot* slot = slot_at(arena, first_index(owner));
  if (__builtin_expect(*const_cast<const volatile uint64_t*>(&slot->owner) == owner, 1))
    return slot;
  return tl_find_slot(arena, owner);
}

// A new thread with a dead one's control block, or a slot just claimed: the self variables start at
// 0, and no level is in use. (Where ids come from gettid a vfork child looks like a new thread:
// levels stay as they are.)
TL_SLOW void tl_new_thread(const ProbeSite* site, Slot* slot, uint32_t tid) {
  auto* self =
      reinterpret_cast<uint64_t*>(reinterpret_cast<unsigned char*>(slot) + tl_layout.slot_self);
  for (uint32_t i = 0; i < tl_layout.slot_self_size / 8; ++i) self[i] = 0;
  if (header_of(site)->tid_offset != 0) {
    slot->depth = 0;
    for (auto& level : slot->levels) level.entered = 0;
  }
  compiler_barrier();
  slot->tid = tid;
}

// The thread's id. Precondition: no level is held.
TL_INLINE uint32_t tl_thread(const ProbeSite* site, Slot* slot) {
  const uint32_t offset = header_of(site)->tid_offset;
  uint32_t tid;
  if (__builtin_expect(offset == 0 || static_cast<int64_t>(slot->owner) < 0, 0)) {
    tid = tl_gettid();
  } else {
    tid = thread_control_word(offset);
  }
  if (__builtin_expect(slot->tid != tid, 0)) tl_new_thread(site, slot, tid);
  return tid;
}

// Takes a level; its index, or kLevels: none is left, a drop is counted. See arena.h, "Epochs", for
// the loop.
TL_INLINE uint32_t tl_take_level(const ProbeSite* site, Slot* slot, uint64_t* entered_epoch) {
  const uint32_t depth = *const_cast<volatile uint32_t*>(&slot->depth);
  if (__builtin_expect(depth >= wire::kLevels, 0)) {
    add_in_place(&slot->drops_level, 1);
    return wire::kLevels;
  }
  *const_cast<volatile uint32_t*>(&slot->depth) = depth + 1;
  volatile uint64_t* entered = &slot->levels[depth].entered;
  const volatile uint64_t* current = &header_of(site)->epoch;
  uint64_t epoch = *current;
  while (true) {
    *entered = epoch;
    const uint64_t again = *current;
    if (__builtin_expect(again == epoch, 1)) break;
    epoch = again;
  }
  compiler_barrier();
  *entered_epoch = epoch;
  return depth;
}

// A signal handler in between finds the level free and the depth still taken: it uses the next one.
TL_INLINE void tl_leave(Slot* slot, uint32_t depth) {
  compiler_barrier();
  *const_cast<volatile uint64_t*>(&slot->levels[depth].entered) = 0;
  *const_cast<volatile uint32_t*>(&slot->depth) = depth;
}

TL_INLINE Level* tl_level(Slot* slot, uint32_t depth) { return &slot->levels[depth]; }
TL_INLINE unsigned char* tl_scratch(Slot* slot, uint32_t depth) {
  return reinterpret_cast<unsigned char*>(slot) + tl_layout.slot_scratch +
         uint64_t{depth} * tl_layout.scratch_size;
}

// exit() ran: no body starts any more.
TL_INLINE void tl_exit(const ProbeSite* site) {
  __atomic_fetch_or(&header_of(site)->state, wire::kExiting, __ATOMIC_SEQ_CST);
}

}  // namespace trapline::runtime
