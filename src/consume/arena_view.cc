#include "consume/arena_view.h"

#include <cstring>

namespace trapline::consume {
namespace {

constexpr int kMaxFreeAttempts = 100000;

bool part_fits(std::uint64_t offset, std::uint64_t size, std::uint64_t total) {
  return size <= total && offset <= total - size;
}

}  // namespace

Result<ArenaView> ArenaView::create(std::span<std::byte> bytes, const wire::Layout& layout) {
  const std::uint64_t total = bytes.size();
  const std::uint64_t slots = std::uint64_t{layout.slot_count} + 1;
  const auto bad = [](std::string_view what) {
    return Error(ErrorCode::kInternal,
                 "the arena's layout does not fit its mapping: " + std::string(what));
  };
  if (total < sizeof(wire::Header) || layout.size > total) return bad("size");
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 != 0) return bad("address");
  if (!part_fits(layout.globals, layout.globals_size, total)) return bad("globals");
  if (layout.slots % 64 != 0 || layout.slot_stride % 64 != 0 ||
      layout.slot_stride < sizeof(wire::Slot) || layout.slot_stride > total ||
      slots > total / layout.slot_stride ||
      !part_fits(layout.slots, slots * layout.slot_stride, total)) {
    return bad("slots");
  }
  if (layout.slot_direct % 8 != 0 ||
      !part_fits(layout.slot_direct, layout.slot_direct_size, layout.slot_stride)) {
    return bad("direct cells");
  }
  if (layout.chunks % 8 != 0 || layout.chunk_count > total / wire::kChunkSize ||
      !part_fits(layout.chunks, std::uint64_t{layout.chunk_count} * wire::kChunkSize, total)) {
    return bad("chunks");
  }
  return ArenaView(bytes, layout);
}

std::uint32_t ArenaView::load32(std::uint64_t offset) const {
  if (!inside(offset, 4, 4)) return 0;
  return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(bytes_.data() + offset),
                         __ATOMIC_ACQUIRE);
}

std::uint64_t ArenaView::load64(std::uint64_t offset) const {
  if (!inside(offset, 8, 8)) return 0;
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(bytes_.data() + offset),
                         __ATOMIC_ACQUIRE);
}

void ArenaView::store32(std::uint64_t offset, std::uint32_t value) const {
  if (!inside(offset, 4, 4)) return;
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(bytes_.data() + offset), value,
                   __ATOMIC_RELEASE);
}

void ArenaView::store64(std::uint64_t offset, std::uint64_t value) const {
  if (!inside(offset, 8, 8)) return;
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(bytes_.data() + offset), value,
                   __ATOMIC_SEQ_CST);
}

bool ArenaView::compare_exchange64(std::uint64_t offset, std::uint64_t expected,
                                   std::uint64_t desired) const {
  if (!inside(offset, 8, 8)) return false;
  return __atomic_compare_exchange_n(reinterpret_cast<std::uint64_t*>(bytes_.data() + offset),
                                     &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

bool ArenaView::copy(std::uint64_t offset, std::span<std::byte> out) const {
  if (!inside(offset, out.size(), 1)) return false;
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return true;
}

std::uint64_t ArenaView::slot(std::uint32_t slot) const {
  return layout_.slots + layout_.slot_stride * slot;
}

std::uint64_t ArenaView::level(std::uint32_t slot, std::uint32_t level) const {
  return this->slot(slot) + offsetof(wire::Slot, levels) + sizeof(wire::Level) * level;
}

std::uint64_t ArenaView::chunk(std::uint32_t chunk) const {
  return layout_.chunks + std::uint64_t{wire::kChunkSize} * chunk;
}

bool ArenaView::free_chunk(std::uint32_t chunk) const {
  const std::uint64_t head_offset = offsetof(wire::Header, free_chunks);
  for (int attempt = 0; attempt < kMaxFreeAttempts; ++attempt) {
    const std::uint64_t head = load64(head_offset);
    store32(this->chunk(chunk), wire::free_link(chunk, static_cast<std::uint32_t>(head)));
    const std::uint64_t tag = (head >> 32) + 1;
    if (compare_exchange64(head_offset, head, (tag << 32) | (std::uint64_t{chunk} + 1))) {
      return true;
    }
  }
  return false;
}

}  // namespace trapline::consume
