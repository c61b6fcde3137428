// For tests: an arena in ordinary memory, and a writer that does to it what probe bodies do.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "wire/arena.h"
#include "wire/key.h"
#include "wire/layout.h"

namespace trapline::consume {

class TestArena {
 public:
  explicit TestArena(const wire::LayoutRequest& request) : layout_(wire::make_layout(request)) {
    words_ = std::make_unique<Line[]>(layout_.size / sizeof(Line));
    wire::initialize(reinterpret_cast<unsigned char*>(words_.get()), layout_);
  }

  const wire::Layout& layout() const { return layout_; }
  std::span<std::byte> bytes() {
    return std::as_writable_bytes(std::span(words_.get(), layout_.size / sizeof(Line)));
  }
  wire::Header& header() { return at<wire::Header>(0); }
  wire::Slot& slot(std::uint32_t index) {
    return at<wire::Slot>(layout_.slots + std::uint64_t{index} * layout_.slot_stride);
  }
  std::uint64_t* direct(std::uint32_t slot) {
    return &at<std::uint64_t>(layout_.slots + std::uint64_t{slot} * layout_.slot_stride +
                              layout_.slot_direct);
  }
  std::byte* chunk(std::uint32_t index) {
    return &at<std::byte>(layout_.chunks + std::uint64_t{index} * wire::kChunkSize);
  }
  wire::RingChunk& ring(std::uint32_t index) {
    return *reinterpret_cast<wire::RingChunk*>(chunk(index));
  }
  wire::TableChunk& table(std::uint32_t index) {
    return *reinterpret_cast<wire::TableChunk*>(chunk(index));
  }

  // Length of the free list; more than there are chunks: it has a cycle.
  std::uint32_t free_chunks() {
    std::uint32_t count = 0;
    auto next = static_cast<std::uint32_t>(header().free_chunks);
    while (next != 0 && next <= layout_.chunk_count && count <= layout_.chunk_count) {
      ++count;
      next = wire::free_next(next - 1, ring(next - 1).next);
    }
    return count;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  template <typename T>
  T& at(std::uint64_t offset) {
    return *reinterpret_cast<T*>(bytes().data() + offset);
  }

  wire::Layout layout_;
  std::unique_ptr<Line[]> words_;
};

// One thread's level.
class BodyWriter {
 public:
  BodyWriter(TestArena& arena, std::uint32_t slot, std::uint32_t level = 0)
      : arena_(arena), slot_(slot), level_(level) {
    arena_.slot(slot_).owner = 0x1000 + slot_;
    arena_.slot(slot_).tid = 100 + slot_;
  }

  // The bodies' protocol, with a full fence where theirs is the tracer's membarrier.
  void enter() {
    const std::uint64_t* current = &arena_.header().epoch;
    std::uint64_t epoch = __atomic_load_n(current, __ATOMIC_SEQ_CST);
    while (true) {
      __atomic_store_n(&level().entered, epoch, __ATOMIC_SEQ_CST);
      const std::uint64_t again = __atomic_load_n(current, __ATOMIC_SEQ_CST);
      if (again == epoch) return;
      epoch = again;
    }
  }
  void leave() { __atomic_store_n(&level().entered, std::uint64_t{0}, __ATOMIC_RELEASE); }

  // false: no chunk was left.
  bool record(std::uint16_t clause, std::uint64_t tsc, std::span<const std::byte> payload,
              std::uint16_t kind = wire::kRecordData) {
    const auto size = static_cast<std::uint32_t>(
        sizeof(wire::RecordHeader) +
        wire::round_up_to_word(static_cast<std::uint32_t>(payload.size())));
    std::byte* at = reserve(size);
    if (at == nullptr) return false;
    const wire::RecordHeader header{size, clause, kind, 3, 1, tsc, arena_.slot(slot_).tid, 0};
    std::memcpy(at, &header, sizeof header);
    if (!payload.empty()) std::memcpy(at + sizeof header, payload.data(), payload.size());
    commit();
    return true;
  }
  bool record(std::uint16_t clause, std::uint64_t tsc, std::uint64_t value) {
    return record(clause, tsc, std::as_bytes(std::span(&value, 1)));
  }

  std::byte* reserve(std::uint32_t size) {
    wire::Level& level = this->level();
    if (level.ring_last == 0 || level.ring_used + size > wire::RingChunk::kDataSize) {
      const std::uint32_t taken = pop();
      if (taken == 0) {
        ++arena_.slot(slot_).drops_record;
        return nullptr;
      }
      arena_.ring(taken - 1) = {};
      if (level.ring_last != 0) {
        __atomic_store_n(&arena_.ring(level.ring_last - 1).next, taken, __ATOMIC_RELEASE);
      } else {
        __atomic_store_n(&level.ring_first, taken, __ATOMIC_RELEASE);
      }
      level.ring_last = taken;
      level.ring_used = 0;
    }
    std::byte* at =
        arena_.chunk(level.ring_last - 1) + wire::RingChunk::kDataOffset + level.ring_used;
    level.ring_used += size;
    return at;
  }
  void commit() {
    __atomic_store_n(&arena_.ring(level().ring_last - 1).committed, level().ring_used,
                     __ATOMIC_RELEASE);
  }

  // An entry of the current epoch's table, without looking whether the key is there already.
  bool entry(std::uint16_t aggregation, std::span<const std::uint64_t> key,
             std::span<const std::uint64_t> value) {
    std::uint32_t& chain = level().tables[level().entered & 1];
    const auto size = static_cast<std::uint32_t>(8 + (key.size() + value.size()) * 8);
    if (chain == 0 || arena_.table(chain - 1).used + size > wire::TableChunk::kDataSize) {
      const std::uint32_t taken = pop();
      if (taken == 0) {
        ++arena_.slot(slot_).drops_aggregation;
        return false;
      }
      arena_.table(taken - 1) = {};
      arena_.table(taken - 1).next = chain;
      chain = taken;
    }
    wire::TableChunk& table = arena_.table(chain - 1);
    std::byte* at = arena_.chunk(chain - 1) + wire::TableChunk::kDataOffset + table.used;
    const wire::Entry entry{1, aggregation, static_cast<std::uint16_t>(key.size())};
    std::memcpy(at, &entry, sizeof entry);
    if (!key.empty()) std::memcpy(at + 8, key.data(), key.size_bytes());
    if (!value.empty()) std::memcpy(at + 8 + key.size_bytes(), value.data(), value.size_bytes());
    table.used += size;
    ++table.entries;
    return true;
  }
  bool entry(std::uint16_t aggregation, std::uint64_t key, std::uint64_t value) {
    return entry(aggregation, std::span(&key, 1), std::span(&value, 1));
  }

  wire::Level& level() { return arena_.slot(slot_).levels[level_]; }

 private:
  std::uint32_t pop() {
    std::uint64_t* head = &arena_.header().free_chunks;
    std::uint64_t seen = __atomic_load_n(head, __ATOMIC_ACQUIRE);
    while (true) {
      const auto index = static_cast<std::uint32_t>(seen);
      if (index == 0 || index > arena_.layout().chunk_count) return 0;
      const std::uint32_t next = wire::free_next(
          index - 1, __atomic_load_n(&arena_.ring(index - 1).next, __ATOMIC_RELAXED));
      const std::uint64_t wanted = ((seen >> 32) + 1) << 32 | next;
      if (__atomic_compare_exchange_n(head, &seen, wanted, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
        return index;
      }
    }
  }

  TestArena& arena_;
  std::uint32_t slot_;
  std::uint32_t level_;
};

}  // namespace trapline::consume
