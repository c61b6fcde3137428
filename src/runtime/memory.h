// Reads of the traced process's memory, from within it, that cannot fault.
//
// The arena is mapped, so addresses in it (scratch, constants, variables) are read directly. All
// others are read by the kernel: process_vm_readv on our own thread fails with EFAULT where a load
// would raise SIGSEGV.

#pragma once

#include "runtime/slot.h"
#include "runtime/text.h"

namespace trapline::runtime {

inline constexpr long kEperm = 1;
inline constexpr long kEsrch = 3;

struct IoVector {
  uint64_t base;
  uint64_t size;
};

inline __attribute__((always_inline)) bool in_arena(const ProbeSite* site, uint64_t address,
                                                    uint64_t size) {
  return size <= tl_layout.size && address - site->arena <= tl_layout.size - size;
}

// A level's scratch, as far as a clause may use it: what is static, and `used` bytes of the dynamic
// part, which begins behind a gap.
inline __attribute__((always_inline)) bool in_scratch(uint64_t offset, uint64_t size,
                                                      uint64_t static_size, uint64_t dynamic,
                                                      uint64_t used) {
  if (offset < static_size) return size <= static_size - offset;
  offset -= dynamic;
  return offset <= used && size <= used - offset;
}

// Whether `size` bytes at `address` may be read. 0: memory of ours that may not; 1: memory of ours;
// 2: memory that is not ours.
TL_INLINE uint64_t tl_readable(const ProbeSite* site, uint64_t address, uint64_t size,
                               uint64_t scratch, uint64_t static_size, uint64_t dynamic,
                               uint64_t used) {
  if (address - site->arena >= tl_layout.size) return 2;
  const uint64_t offset = address - scratch;
  if (offset < tl_layout.scratch_size)
    return in_scratch(offset, size, static_size, dynamic, used) ? 1 : 0;
  return in_arena(site, address, size) ? 1 : 0;
}

// Whether they may be written: scratch, this thread's variables, `scalars` bytes of globals.
TL_INLINE uint64_t tl_writable(const ProbeSite* site, const Slot* slot, uint64_t address,
                               uint64_t size, uint64_t scratch, uint64_t static_size,
                               uint64_t dynamic, uint64_t used, uint64_t scalars) {
  uint64_t offset = address - scratch;
  if (offset < tl_layout.scratch_size)
    return in_scratch(offset, size, static_size, dynamic, used) ? 1 : 0;
  offset = address - (reinterpret_cast<uint64_t>(slot) + tl_layout.slot_self);
  if (offset < tl_layout.slot_self_size) return size <= tl_layout.slot_self_size - offset ? 1 : 0;
  offset = address - (site->arena + tl_layout.globals);
  return offset < scalars && size <= scalars - offset ? 1 : 0;
}

// 1: all `size` bytes were read. A thread may always read its own process; in a vfork child,
// slot->tid is the parent's, which a security policy may forbid, and the child's own id serves.
inline uint64_t read_own_memory(const Slot* slot, Level* level, void* to, uint64_t address,
                                uint64_t size) {
  auto* vectors = reinterpret_cast<IoVector*>(level->work);
  vectors[0] = {reinterpret_cast<uint64_t>(to), size};
  vectors[1] = {address, size};
  long pid = static_cast<long>(slot->tid);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const long result = system_call(kSysProcessVmReadv, pid, vectors, 1, vectors + 1, 1, 0);
    if (result == static_cast<long>(size)) return 1;
    if (result != -kEperm && result != -kEsrch) return 0;
    pid = system_call(kSysGettid);
  }
  return 0;
}
TL_LARGE uint64_t tl_read(const Slot* slot, Level* level, void* to, uint64_t address,
                          uint64_t size) {
  return read_own_memory(slot, level, to, address, size);
}

// Loads `size` (1, 2, 4, 8) bytes into the word at `to`, the rest of which becomes 0. 0: a bad
// address.
TL_INLINE uint64_t tl_load(const ProbeSite* site, Slot* slot, Level* level, uint64_t* to,
                           uint64_t address, uint32_t size) {
  *to = 0;
  if (in_arena(site, address, size)) {
    __builtin_memcpy_inline(to, reinterpret_cast<const void*>(address), 1);
    if (size == 2) __builtin_memcpy_inline(to, reinterpret_cast<const void*>(address), 2);
    if (size == 4) __builtin_memcpy_inline(to, reinterpret_cast<const void*>(address), 4);
    if (size == 8) __builtin_memcpy_inline(to, reinterpret_cast<const void*>(address), 8);
    return 1;
  }
  return tl_read(slot, level, to, address, size);
}

TL_LARGE uint64_t tl_copy_in(const ProbeSite* site, Slot* slot, Level* level, Byte* to,
                             uint64_t address, uint64_t size) {
  if (size == 0) return 1;
  if (in_arena(site, address, size)) {
    tl_copy_bytes(to, reinterpret_cast<const Byte*>(address), size);
    return 1;
  }
  return read_own_memory(slot, level, to, address, size);
}

// Copies a string of at most `size` bytes, its NUL included (`size` - 1 of a longer one). 0: a bad
// address before its end, or size 0. Pieces end at page boundaries, since the next page may not be
// there.
TL_LARGE uint64_t tl_copy_in_text(const ProbeSite* site, Slot* slot, Level* level, Byte* to,
                                  uint64_t address, uint64_t size) {
  if (size == 0) return 0;
  if (in_arena(site, address, size)) {
    tl_copy_text(to, reinterpret_cast<const Byte*>(address), size);
    return 1;
  }
  for (uint64_t left = size - 1; left != 0;) {
    uint64_t piece = wire::kPageSize - address % wire::kPageSize;
    if (piece > left) piece = left;
    if (read_own_memory(slot, level, to, address, piece) == 0) return 0;
    if (tl_text_length(to, piece) < piece) return 1;
    to += piece;
    address += piece;
    left -= piece;
  }
  *const_cast<volatile Byte*>(to) = 0;
  return 1;
}

// Argument `number` (6 to 9) of a function that was just entered. `return_slot`: where the body's
// own return address lies. The probed instruction's stack pointer points to the function's return
// address; the arguments follow. The page of the stack pointer is there; the next one may not be,
// at the end of a stack.
TL_INLINE uint64_t tl_stack_argument(const ProbeSite* site, Slot* slot, Level* level, uint64_t* to,
                                     uint64_t return_slot, uint64_t number) {
  const uint64_t top = return_slot + 8 + site->stack_adjust;
  const uint64_t address = top + 8 + (number - 6) * 8;
  if (__builtin_expect(top / wire::kPageSize == (address + 7) / wire::kPageSize, 1)) {
    *to = *reinterpret_cast<const volatile uint64_t*>(address);
    return 1;
  }
  return tl_read(slot, level, to, address, 8);
}

// The word that the probed instruction's stack pointer points to.
TL_INLINE uint64_t tl_user_caller(const ProbeSite* site, uint64_t return_slot) {
  return *reinterpret_cast<const volatile uint64_t*>(return_slot + 8 + site->stack_adjust);
}

}  // namespace trapline::runtime
