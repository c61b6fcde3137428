#include "consume/drainer.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "consume/merge.h"

namespace trapline::consume {
namespace {

Result<> global_barrier() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0) {
    return Error::os(errno, "membarrier(GLOBAL_EXPEDITED)");
  }
  return {};
}

template <typename T>
T read_as(std::span<const std::byte> bytes, std::size_t offset) {
  T out;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return out;
}

constexpr std::uint64_t kLine = 64;

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

}  // namespace

Result<Drainer> Drainer::create(std::span<std::byte> arena, const wire::Layout& layout,
                                const plan::Program& program) {
  TL_TRY_ASSIGN(ArenaView view, ArenaView::create(arena, layout));
  for (const auto& aggregation : program.aggregations) {
    const std::uint64_t end =
        std::uint64_t{aggregation.direct_offset} + std::uint64_t{aggregation.direct_words} * 8;
    if (aggregation.direct && (aggregation.direct_offset % 8 != 0 ||
                               aggregation.direct_words == 0 || end > layout.slot_direct_size)) {
      return Error(ErrorCode::kInternal,
                   "the arena has no room for the cells of @" + aggregation.name);
    }
  }
  return Drainer(view, program);
}

Drainer::Drainer(ArenaView arena, const plan::Program& program)
    : arena_(arena),
      program_(&program),
      barrier_(global_barrier),
      slots_(std::size_t{arena.layout().slot_count} + 1),
      taken_(arena.layout().chunk_count),
      buffer_(wire::kChunkSize) {}

DrainResult Drainer::drain(AggregationStore& store, DrainKind kind, std::uint64_t horizon) {
  DrainResult result;
  std::fill(taken_.begin(), taken_.end(), false);
  find_slots();
  result.records = drain_records(kind, horizon);
  drain_tables(store, kind, result);
  drain_direct(store);
  free_taken();
  result.new_drops = read_drops();
  return result;
}

// Not earlier: a body could take such a chunk, fill it, and the same round would find it a second
// time.
void Drainer::free_taken() {
  for (const std::uint32_t chunk : done_) {
    if (!arena_.free_chunk(chunk)) ++malformed_;
  }
  done_.clear();
}

// A slot is claimed with its owner; from then on it is looked at in every round. All words of the
// first line count: one load more costs nothing there, and a slot that its owner gave back is still
// seen.
void Drainer::find_slots() {
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] != nullptr) continue;
    bool used = slot == arena_.layout().slot_count;
    for (std::uint64_t at = 0; at < kLine && !used; at += 8) {
      used = arena_.load64(arena_.slot(slot) + at) != 0;
    }
    if (!used) continue;
    slots_[slot] = std::make_unique<SlotState>();
    slots_[slot]->direct.resize(arena_.layout().slot_direct_size / 8);
  }
}

// Each chunk is taken at most once a round: a forged chain cannot make a round endless, nor free a
// chunk twice.
bool Drainer::claim(std::uint32_t chunk) {
  if (chunk >= taken_.size() || taken_[chunk]) {
    ++malformed_;
    return false;
  }
  taken_[chunk] = true;
  return true;
}

// ------------------------------------------------------------------------------------------------------------
// records

std::vector<Record> Drainer::drain_records(DrainKind kind, std::uint64_t horizon) {
  std::vector<std::vector<Record>> sources;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == nullptr) continue;
    for (std::uint32_t level = 0; level < wire::kLevels; ++level) {
      auto& held = slots_[slot]->levels[level].ring.held;
      std::vector<Record> records = std::exchange(held, {});
      // What was held once goes out now: a forged time stamp must not pile up records for ever.
      const auto old = static_cast<std::ptrdiff_t>(records.size());
      drain_ring(slot, level, records);
      if (kind == DrainKind::kRunning) {
        const auto late = std::find_if(records.begin() + old, records.end(),
                                       [&](const Record& r) { return r.tsc > horizon; });
        held.assign(std::make_move_iterator(late), std::make_move_iterator(records.end()));
        records.erase(late, records.end());
      }
      if (!records.empty()) sources.push_back(std::move(records));
    }
  }
  return merge_by_time(std::move(sources));
}

// The order of loads: `next` before the last look at `committed`. The writer sets `next` when it
// commits nothing more to that chunk, so a `committed` that was read after `next` was seen is
// final.
void Drainer::drain_ring(std::uint32_t slot, std::uint32_t level, std::vector<Record>& out) {
  RingCursor& cursor = slots_[slot]->levels[level].ring;
  if (cursor.broken) return;
  if (cursor.chunk == 0) {
    const std::uint64_t first = arena_.level(slot, level) + offsetof(wire::Level, ring_first);
    cursor.chunk = arena_.load32(first);
    cursor.offset = 0;
    if (cursor.chunk == 0) return;
  }
  while (true) {
    const std::uint32_t chunk = cursor.chunk - 1;
    if (!claim(chunk)) {
      cursor.broken = true;
      return;
    }
    const std::uint64_t at = arena_.chunk(chunk);
    const std::uint32_t next = arena_.load32(at + offsetof(wire::RingChunk, next));
    const std::uint32_t committed = arena_.load32(at + offsetof(wire::RingChunk, committed));
    take_records(chunk, cursor, committed, out);
    if (next == 0) return;
    cursor.chunk = next;
    cursor.offset = 0;
    done_.push_back(chunk);
  }
}

void Drainer::take_records(std::uint32_t chunk, RingCursor& cursor, std::uint32_t committed,
                           std::vector<Record>& out) {
  if (committed > wire::RingChunk::kDataSize || committed < cursor.offset) {
    ++malformed_;
    return;
  }
  const std::span<std::byte> bytes(buffer_.data(), committed - cursor.offset);
  if (!arena_.copy(arena_.chunk(chunk) + wire::RingChunk::kDataOffset + cursor.offset, bytes)) {
    ++malformed_;
    return;
  }
  cursor.offset = committed;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto left = bytes.subspan(at);
    const auto size = left.size() >= 4 ? read_as<std::uint32_t>(left, 0) : 0;
    if (size < sizeof(wire::RecordHeader) || size % 8 != 0 || size > left.size()) {
      ++malformed_;  // where the next record begins is unknown: the rest of what is committed is
                     // lost
      return;
    }
    if (!make_record(left.first(size), out)) ++malformed_;
    at += size;
  }
}

bool Drainer::make_record(std::span<const std::byte> bytes, std::vector<Record>& out) const {
  const auto header = read_as<wire::RecordHeader>(bytes, 0);
  const auto payload = bytes.subspan(sizeof(wire::RecordHeader));
  if (header.clause >= program_->clauses.size()) return false;
  std::size_t size = 0;
  if (header.kind == wire::kRecordData) {
    const auto& clause = program_->clauses[header.clause];
    size = clause.record_size;
    if (!clause.has_record || payload.size() != round_up(size)) return false;
  } else if (header.kind == wire::kRecordFault) {
    size = sizeof(wire::FaultPayload);
    if (payload.size() != size) return false;
  } else {
    return false;
  }
  Record record;
  record.clause = header.clause;
  record.kind = header.kind;
  record.probe = header.probe;
  record.cpu = header.cpu;
  record.tid = header.tid;
  record.tsc = header.tsc;
  record.speculation = header.speculation;
  record.payload.assign(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(size));
  out.push_back(std::move(record));
  return true;
}

// -------------------------------------------------------------------------------------------------------------
// tables

// Whether nobody writes the level's chain of `parity` now. Once the epoch has the other parity and
// the barrier was passed, that stays so.
bool Drainer::is_quiet(std::uint32_t slot, std::uint32_t level, std::uint32_t parity) const {
  const std::uint64_t entered =
      arena_.load64(arena_.level(slot, level) + offsetof(wire::Level, entered));
  return entered == 0 || (entered & 1) != parity;
}

void Drainer::drain_tables(AggregationStore& store, DrainKind kind, DrainResult& result) {
  const auto old_parity = static_cast<std::uint32_t>(epoch_ & 1);
  const auto for_each_level = [&](auto&& function) {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] == nullptr) continue;
      for (std::uint32_t level = 0; level < wire::kLevels; ++level) {
        function(slot, level, slots_[slot]->levels[level]);
      }
    }
  };

  // Chains that a busy level kept in an earlier round. They must go before the epoch gets their
  // parity again.
  for_each_level([&](std::uint32_t slot, std::uint32_t level, LevelState& state) {
    const std::uint32_t other = 1 - old_parity;
    if (kind != DrainKind::kFinal && !state.pending[other]) return;
    if (kind != DrainKind::kFinal && !is_quiet(slot, level, other)) {
      note_busy(slot, level, result.busy);
      return;
    }
    take_chain(slot, level, other, store);
    state.pending[other] = false;
  });

  ++epoch_;
  arena_.store64(offsetof(wire::Header, epoch), epoch_);
  if (auto passed = barrier_(); !passed && kind != DrainKind::kFinal) {
    result.barrier_error = passed.error();
    for_each_level(
        [&](std::uint32_t, std::uint32_t, LevelState& state) { state.pending[old_parity] = true; });
    return;
  }

  for_each_level([&](std::uint32_t slot, std::uint32_t level, LevelState& state) {
    if (kind != DrainKind::kFinal && !is_quiet(slot, level, old_parity)) {
      state.pending[old_parity] = true;
      note_busy(slot, level, result.busy);
      return;
    }
    take_chain(slot, level, old_parity, store);
    state.pending[old_parity] = false;
    if (is_quiet(slot, level, 0) && is_quiet(slot, level, 1)) state.busy_rounds = 0;
  });
}

void Drainer::note_busy(std::uint32_t slot, std::uint32_t level, std::vector<BusyLevel>& busy) {
  LevelState& state = slots_[slot]->levels[level];
  const std::uint64_t entered =
      arena_.load64(arena_.level(slot, level) + offsetof(wire::Level, entered));
  state.busy_rounds = entered == state.busy_epoch ? state.busy_rounds + 1 : 1;
  state.busy_epoch = entered;
  const std::uint32_t tid = arena_.load32(arena_.slot(slot) + offsetof(wire::Slot, tid));
  const std::uint64_t owner = arena_.load64(arena_.slot(slot) + offsetof(wire::Slot, owner));
  const std::uint64_t drops = arena_.load64(arena_.slot(slot) + offsetof(wire::Slot, drops_level));
  busy.push_back({slot, level, tid, owner, drops, state.busy_rounds});
}

void Drainer::take_chain(std::uint32_t slot, std::uint32_t level, std::uint32_t parity,
                         AggregationStore& store) {
  const std::uint64_t head =
      arena_.level(slot, level) + offsetof(wire::Level, tables) + std::uint64_t{parity} * 4;
  std::uint32_t next = arena_.load32(head);
  if (next == 0) return;
  arena_.store32(head, 0);
  while (next != 0) {
    const std::uint32_t chunk = next - 1;
    if (!claim(chunk)) return;
    next = arena_.load32(arena_.chunk(chunk) + offsetof(wire::TableChunk, next));
    merge_table(chunk, store);
    done_.push_back(chunk);
  }
}

void Drainer::merge_table(std::uint32_t chunk, AggregationStore& store) {
  const std::uint64_t at = arena_.chunk(chunk);
  const std::uint32_t used = arena_.load32(at + offsetof(wire::TableChunk, used));
  const std::span<std::byte> bytes(buffer_.data(),
                                   std::min<std::size_t>(used, wire::TableChunk::kDataSize));
  if (used != bytes.size() || !arena_.copy(at + wire::TableChunk::kDataOffset, bytes)) {
    ++malformed_;
    return;
  }
  std::vector<std::uint64_t> words;
  std::size_t offset = 0;
  while (offset < bytes.size()) {
    const auto left = bytes.subspan(offset);
    if (left.size() < sizeof(wire::Entry)) break;
    const auto entry = read_as<wire::Entry>(left, 0);
    if (entry.aggregation >= program_->aggregations.size()) break;
    const std::size_t value_words = program_->aggregations[entry.aggregation].value_words;
    words.resize(entry.key_words + value_words);
    const std::size_t size = sizeof(wire::Entry) + words.size() * 8;
    if (size > left.size()) break;
    if (!words.empty())
      std::memcpy(words.data(), left.data() + sizeof(wire::Entry), words.size() * 8);
    const std::span<const std::uint64_t> all(words);
    if (!store.merge(entry.aggregation, all.first(entry.key_words), all.subspan(entry.key_words))) {
      ++malformed_;
    }
    offset += size;
  }
  if (offset != bytes.size()) ++malformed_;
}

// -------------------------------------------------------------------------------------------
// direct cells, drops, rest

void Drainer::drain_direct(AggregationStore& store) {
  const auto& aggregations = program_->aggregations;
  std::vector<std::uint64_t> deltas;
  for (std::uint32_t index = 0; index < aggregations.size(); ++index) {
    const auto& aggregation = aggregations[index];
    if (!aggregation.direct) continue;
    // Cell 0 of all but count only says that there was an update.
    const std::size_t skipped = aggregation.kind == plan::AggregationKind::kCount ? 0 : 1;
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] == nullptr) continue;
      const std::uint64_t cells =
          arena_.slot(slot) + arena_.layout().slot_direct + aggregation.direct_offset;
      std::uint64_t* last = slots_[slot]->direct.data() + aggregation.direct_offset / 8;
      deltas.clear();
      bool changed = false;
      for (std::size_t i = 0; i < aggregation.direct_words; ++i) {
        const std::uint64_t value = arena_.load64(cells + i * 8);
        changed |= value != last[i];
        if (i >= skipped) deltas.push_back(value - last[i]);
        last[i] = value;
      }
      if (changed && !store.merge(index, {}, deltas)) ++malformed_;
    }
  }
}

Drops Drainer::read_drops() {
  Drops fresh;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == nullptr) continue;
    const std::uint64_t at = arena_.slot(slot);
    Drops now;
    now.record = arena_.load64(at + offsetof(wire::Slot, drops_record));
    now.aggregation = arena_.load64(at + offsetof(wire::Slot, drops_aggregation));
    now.dynamic = arena_.load64(at + offsetof(wire::Slot, drops_dynamic));
    now.speculation = arena_.load64(at + offsetof(wire::Slot, drops_speculation));
    now.level = arena_.load64(at + offsetof(wire::Slot, drops_level));
    fresh += now - slots_[slot]->drops;
    slots_[slot]->drops = now;
  }
  const std::uint64_t no_slot = arena_.load64(offsetof(wire::Header, drops_no_slot));
  fresh.no_slot = no_slot - std::exchange(last_no_slot_, no_slot);
  fresh.malformed = std::exchange(malformed_, 0);
  fresh.level += std::exchange(abandoned_, 0);
  drops_ += fresh;
  return fresh;
}

void Drainer::abandon_level(std::uint32_t slot, std::uint32_t level) {
  if (slot >= slots_.size() || level >= wire::kLevels) return;
  // The thread may have ended its body properly since the level was seen busy: no loss.
  if (arena_.load64(arena_.level(slot, level) + offsetof(wire::Level, entered)) == 0) return;
  for (std::uint32_t l = level; l < wire::kLevels; ++l) {
    const std::uint64_t at = arena_.level(slot, l);
    // Room that was reserved and not filled: the next record goes there.
    const std::uint32_t last = arena_.load32(at + offsetof(wire::Level, ring_last));
    if (last != 0 && last <= arena_.layout().chunk_count) {
      const std::uint32_t committed =
          arena_.load32(arena_.chunk(last - 1) + offsetof(wire::RingChunk, committed));
      arena_.store32(at + offsetof(wire::Level, ring_used),
                     std::min(committed, wire::RingChunk::kDataSize));
    }
    arena_.store64(at + offsetof(wire::Level, entered), 0);
  }
  arena_.store32(arena_.slot(slot) + offsetof(wire::Slot, depth), level);
  ++abandoned_;
}

}  // namespace trapline::consume
