// Strings, all in memory of ours: constants, variables, scratch, records. Bounded by `size`, which
// counts the NUL.

#pragma once

#include "runtime/platform.h"

namespace trapline::runtime {

using Byte = unsigned char;

// Copies up to `size` - 1 bytes and ends them with a NUL.
TL_SLOW void tl_copy_text(Byte* to, const volatile Byte* from, uint64_t size) {
  if (size == 0) return;
  uint64_t i = 0;
  for (; i + 1 < size; ++i) {
    const Byte byte = from[i];
    to[i] = byte;
    if (byte == 0) return;
  }
  to[i] = 0;
}

// A string as variables keep it: a byte that is 0 for NULL, then the text.
TL_SLOW void tl_store_text(Byte* to, const Byte* from, uint64_t size) {
  auto* flag = const_cast<volatile Byte*>(to);
  if (from == nullptr) {
    *flag = 0;
    return;
  }
  tl_copy_text(to + 1, from, size);
  *flag = 1;
}
TL_INLINE uint64_t tl_stored_text(const Byte* stored) {
  const Byte flag = *const_cast<const volatile Byte*>(stored);
  return flag == 0 ? 0 : reinterpret_cast<uint64_t>(stored) + 1;
}

TL_SLOW void tl_copy_bytes(Byte* to, const Byte* from, uint64_t size) {
  uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    *reinterpret_cast<volatile uint64_t*>(to + i) = *reinterpret_cast<const uint64_t*>(from + i);
  }
  for (; i < size; ++i) *const_cast<volatile Byte*>(to + i) = from[i];
}

TL_SLOW void tl_zero_bytes(Byte* to, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i) *const_cast<volatile Byte*>(to + i) = 0;
}

TL_SLOW uint64_t tl_text_length(const Byte* text, uint64_t size) {
  uint64_t i = 0;
  while (i < size && *const_cast<const volatile Byte*>(text + i) != 0) ++i;
  return i;
}

// NULL is less than any string.
TL_SLOW int64_t tl_compare_text(const Byte* a, const Byte* b, uint64_t size) {
  if (a == nullptr || b == nullptr) return int64_t{a != nullptr} - int64_t{b != nullptr};
  for (uint64_t i = 0; i < size; ++i) {
    const Byte left = *const_cast<const volatile Byte*>(a + i);
    const Byte right = *const_cast<const volatile Byte*>(b + i);
    if (left != right) return left < right ? -1 : 1;
    if (left == 0) return 0;
  }
  return 0;
}

// `to` may not overlap a or b.
TL_SLOW void tl_join_text(Byte* to, const Byte* a, const Byte* b, uint64_t size) {
  if (size == 0) return;
  uint64_t i = 0;
  const Byte* from = a;
  while (i + 1 < size) {
    const Byte byte = *const_cast<const volatile Byte*>(from++);
    if (byte != 0) {
      to[i++] = byte;
    } else if (b != nullptr) {
      from = b;
      b = nullptr;
    } else {
      break;
    }
  }
  *const_cast<volatile Byte*>(to + i) = 0;
}

// Appends a string as a key's component (wire/key.h) at `to`; the number of words written.
TL_SLOW uint64_t tl_key_text(uint64_t* to, const Byte* text, uint64_t strsize) {
  uint64_t length = 0;
  uint64_t word = 0;
  uint64_t* next = to + 1;
  while (length + 1 < strsize) {
    const Byte byte = *const_cast<const volatile Byte*>(text + length);
    if (byte == 0) break;
    word |= uint64_t{byte} << (length % 8 * 8);
    ++length;
    if (length % 8 == 0) {
      *next++ = word;
      word = 0;
    }
  }
  if (length % 8 != 0) *next++ = word;
  *to = length;
  return static_cast<uint64_t>(next - to);
}

}  // namespace trapline::runtime
