// Takes out of one traced process's arena what its bodies wrote: records, aggregations, drops.
//
// The arena is hostile (see wire/arena.h): indices are copied, checked and the copies used; every
// chain is bounded by the number of chunks; a chunk is taken once a round. Nothing that stands in
// the arena makes the drainer crash, loop for ever or read outside the mapping; nonsense is counted
// (Drops::malformed) and passed over.
//
// One round:
//   1. records: every level's ring from where the last round stopped up to `committed`;
//   2. the epoch is raised, membarrier(GLOBAL_EXPEDITED);
//   3. the table chains of the old parity are merged into the store; a level still busy there is
//      left to a later round;
//   4. direct cells: what they grew by since the last round is merged;
//   5. the chunks that were used up go back to the pool;
//   6. drops.
// The records of the round come merged by time stamp; those of one thread and level are never
// reordered.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "consume/aggregation_store.h"
#include "consume/arena_view.h"
#include "consume/record.h"
#include "plan/plan.h"
#include "wire/arena.h"

namespace trapline::consume {

enum class DrainKind : std::uint8_t {
  kRunning,  // bodies may run meanwhile
  kFinal,    // all bodies have stopped or never will finish: everything is taken
};

// A level that stays inside a body: a long one, or one that was left by siglongjmp.
struct BusyLevel {
  std::uint32_t slot = 0;
  std::uint32_t level = 0;
  std::uint32_t tid = 0;
  std::uint64_t owner = 0;   // wire::Slot::owner
  std::uint64_t drops = 0;   // of the slot, as no level was free
  std::uint32_t rounds = 0;  // how many rounds it has been seen busy in the same epoch
};

struct DrainResult {
  std::vector<Record> records;
  Drops new_drops;              // since the last round
  std::vector<BusyLevel> busy;  // whose tables could not be taken in this round
  // The barrier failed: no tables were taken in this round, all are left to the next; the rest is
  // complete.
  std::optional<Error> barrier_error;
};

class Drainer {
 public:
  using Barrier = std::function<Result<>()>;

  // `arena` is the whole mapping, writable, at least layout.size bytes, and outlives the drainer,
  // as does `program`. `layout` and `program` are the tracer's own copies, never the arena's.
  // Raises no epoch yet: the header's must be 2, as wire::initialize leaves it. Errors: kInternal
  // if layout and program do not fit the mapping.
  static Result<Drainer> create(std::span<std::byte> arena, const wire::Layout& layout,
                                const plan::Program& program);

  // Replaces membarrier; for tests.
  void set_barrier(Barrier barrier) { barrier_ = std::move(barrier); }

  // `horizon`: records with a later time stamp (TSC) are held back for the next round, so that what
  // several threads recorded comes in order across rounds too; kFinal ignores it.
  DrainResult drain(AggregationStore& store, DrainKind kind,
                    std::uint64_t horizon = ~std::uint64_t{0});

  // After the session made sure that the thread, which stands still, has left this level and those
  // above it for good: they are free again. What the firing had not finished is a loss.
  void abandon_level(std::uint32_t slot, std::uint32_t level);

  const Drops& total_drops() const { return drops_; }

 private:
  struct RingCursor {
    std::uint32_t chunk = 0;  // index + 1; 0: no ring seen yet
    std::uint32_t offset = 0;
    bool broken = false;  // its chain makes no sense: not looked at any more
    std::vector<Record> held;
  };
  struct LevelState {
    RingCursor ring;
    // By parity: a chain may have been left behind, because the level was busy; or because its slot
    // was claimed in the midst of the round before, after that had looked for slots.
    bool pending[2] = {true, true};
    std::uint64_t busy_epoch = 0;
    std::uint32_t busy_rounds = 0;
  };
  struct SlotState {
    LevelState levels[wire::kLevels];
    std::vector<std::uint64_t> direct;  // last values seen
    Drops drops;                        // last values seen
  };

  Drainer(ArenaView arena, const plan::Program& program);

  void find_slots();
  std::vector<Record> drain_records(DrainKind kind, std::uint64_t horizon);
  void drain_ring(std::uint32_t slot, std::uint32_t level, std::vector<Record>& out);
  void take_records(std::uint32_t chunk, RingCursor& cursor, std::uint32_t committed,
                    std::vector<Record>& out);
  bool make_record(std::span<const std::byte> bytes, std::vector<Record>& out) const;
  void drain_tables(AggregationStore& store, DrainKind kind, DrainResult& result);
  bool is_quiet(std::uint32_t slot, std::uint32_t level, std::uint32_t parity) const;
  void note_busy(std::uint32_t slot, std::uint32_t level, std::vector<BusyLevel>& busy);
  void take_chain(std::uint32_t slot, std::uint32_t level, std::uint32_t parity,
                  AggregationStore& store);
  void merge_table(std::uint32_t chunk, AggregationStore& store);
  void drain_direct(AggregationStore& store);
  Drops read_drops();
  bool claim(std::uint32_t chunk);
  void free_taken();

  ArenaView arena_;
  const plan::Program* program_;
  Barrier barrier_;
  std::uint64_t epoch_ = 2;                        // what we last stored; never read back
  std::vector<std::unique_ptr<SlotState>> slots_;  // nullptr: never used so far
  std::vector<bool> taken_;                        // chunks taken in this round
  std::vector<std::uint32_t> done_;  // taken chunks that go back to the pool when the round ends
  std::vector<std::byte> buffer_;    // a copy of one chunk
  std::uint64_t abandoned_ = 0;      // levels, since drops were last read
  Drops drops_;
  std::uint64_t last_no_slot_ = 0;
  std::uint64_t malformed_ = 0;
};

}  // namespace trapline::consume
