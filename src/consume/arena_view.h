// Bounds-checked access to a mapped arena whose contents another process may change at any moment.
//
// Offsets are checked against the mapping, loads and stores are single and atomic, bulk data is
// copied out before it is looked at. An offset out of range reads 0 and stores nothing: the
// caller's own checks decide what that means.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "wire/arena.h"

namespace trapline::consume {

class ArenaView {
 public:
  // Errors: kInternal if a part of `layout` lies outside `bytes` or is not aligned.
  static Result<ArenaView> create(std::span<std::byte> bytes, const wire::Layout& layout);

  const wire::Layout& layout() const { return layout_; }
  std::size_t size() const { return bytes_.size(); }

  std::uint32_t load32(std::uint64_t offset) const;
  std::uint64_t load64(std::uint64_t offset) const;
  void store32(std::uint64_t offset, std::uint32_t value) const;
  void store64(std::uint64_t offset, std::uint64_t value) const;
  // false: the word was not `expected` (or lies outside).
  bool compare_exchange64(std::uint64_t offset, std::uint64_t expected,
                          std::uint64_t desired) const;
  // Copies out.size() bytes; false, and nothing copied, if they do not lie inside.
  bool copy(std::uint64_t offset, std::span<std::byte> out) const;

  // Offsets of parts. Preconditions: slot <= slot_count (the early one included), level < kLevels,
  // chunk < chunk_count.
  std::uint64_t slot(std::uint32_t slot) const;
  std::uint64_t level(std::uint32_t slot, std::uint32_t level) const;
  std::uint64_t chunk(std::uint32_t chunk) const;

  // Gives chunk number `chunk` back to the pool. Bounded: gives up (false) after many lost races,
  // which only a process that damages its own arena can bring about.
  bool free_chunk(std::uint32_t chunk) const;

 private:
  ArenaView(std::span<std::byte> bytes, const wire::Layout& layout)
      : bytes_(bytes), layout_(layout) {}
  bool inside(std::uint64_t offset, std::uint64_t size, std::uint64_t alignment) const {
    return offset % alignment == 0 && size <= bytes_.size() && offset <= bytes_.size() - size;
  }

  std::span<std::byte> bytes_;
  wire::Layout layout_;
};

}  // namespace trapline::consume
