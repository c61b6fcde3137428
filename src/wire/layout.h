// Where things lie in an arena, and how a fresh one is made ready.
//
//   header page | strings | globals | slots, one more for the early thread | chunks
//
// Strings: constant i of the program lies at layout.strings + the sum of (size_j + 1) over j < i;
// what the session adds (names of probes, execname) follows. Freestanding, though only the tracer
// uses it.

#pragma once

#include <stdint.h>

#include "wire/arena.h"

namespace trapline::wire {

// All sizes in bytes.
struct LayoutRequest {
  uint64_t strings_size = 0;  // constants with their NULs, and all that the session will add
  uint64_t globals_size = 0;  // Program::globals_size
  uint64_t direct_size = 0;   // Program::direct_size
  uint64_t self_size = 0;     // Program::self_size
  uint64_t scratch_size = 0;  // the greatest static scratch of a clause + Program::scratchsize
  uint64_t threads = 0;       // expected
  uint64_t buffer_bytes = 0;  // of the chunk pool, for the whole target
  int32_t mute_offset = 0;    // as Layout's
};

inline constexpr uint64_t kMaxPartSize = uint64_t{1} << 31;  // of a slot's parts
inline constexpr uint64_t kMaxAreaSize = uint64_t{1} << 40;
inline constexpr uint64_t kMinSlots = 256;
inline constexpr uint64_t kMaxSlots = uint64_t{1} << 20;
inline constexpr uint64_t kMinChunks = 16;

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// The layout, or one with size 0 where a part is beyond its limit (kMaxPartSize, kMaxAreaSize).
constexpr Layout make_layout(const LayoutRequest& request) {
  Layout layout{};
  if (request.strings_size > kMaxAreaSize || request.globals_size > kMaxAreaSize ||
      request.buffer_bytes > kMaxAreaSize || request.direct_size > kMaxPartSize ||
      request.self_size > kMaxPartSize || request.scratch_size > kMaxPartSize) {
    return layout;
  }
  layout.strings = align_up(sizeof(Header), kPageSize);
  layout.strings_size = request.strings_size;
  layout.globals = align_up(layout.strings + layout.strings_size, kPageSize);
  layout.globals_size = request.globals_size;
  layout.slots = align_up(layout.globals + layout.globals_size, kPageSize);

  uint32_t bits = 8;
  static_assert(kMinSlots == 1 << 8);
  while ((uint64_t{1} << bits) < kMaxSlots && (uint64_t{1} << bits) < 4 * request.threads) ++bits;
  layout.slot_count = uint32_t{1} << bits;
  layout.slot_shift = 64 - bits;

  layout.slot_direct = sizeof(Slot);
  layout.slot_direct_size = static_cast<uint32_t>(align_up(request.direct_size, 64));
  layout.slot_self = layout.slot_direct + layout.slot_direct_size;
  layout.slot_self_size = static_cast<uint32_t>(align_up(request.self_size, 64));
  layout.slot_scratch = layout.slot_self + layout.slot_self_size;
  layout.scratch_size = static_cast<uint32_t>(align_up(request.scratch_size, 64));
  // An even number of lines: processors fetch lines in pairs, and neighbours belong to different
  // threads.
  layout.slot_stride =
      align_up(uint64_t{layout.slot_scratch} + uint64_t{kLevels} * layout.scratch_size, 128);

  layout.chunks =
      align_up(layout.slots + (uint64_t{layout.slot_count} + 1) * layout.slot_stride, kChunkSize);
  const uint64_t wanted = request.buffer_bytes / kChunkSize;
  layout.chunk_count = static_cast<uint32_t>(wanted < kMinChunks ? kMinChunks : wanted);
  layout.size = layout.chunks + uint64_t{layout.chunk_count} * kChunkSize;
  layout.mute_offset = request.mute_offset;
  return layout;
}

// Makes a fresh arena of layout.size zero bytes ready, all but what the session knows: clock, ids,
// names, tid_offset, state (0 here: no body runs).
inline void initialize(unsigned char* arena, const Layout& layout) {
  auto* header = reinterpret_cast<Header*>(arena);
  header->version = kVersion;
  header->size = layout.size;
  header->state = 0;
  header->epoch = 2;
  header->free_chunks = layout.chunk_count != 0 ? 1 : 0;
  header->magic = kMagic;
}

}  // namespace trapline::wire
