#include "consume/drainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "consume/statistics.h"
#include "consume/test_arena.h"

namespace trapline::consume {
namespace {

using plan::AggregationKind;
using testing::ElementsAre;

plan::Program make_program() {
  plan::Program program;
  program.clauses.resize(2);
  for (auto& clause : program.clauses) {
    clause.has_record = true;
    clause.record_size = 8;
    clause.fields = {{0, {}}};
  }
  const auto add = [&](AggregationKind kind, bool direct, std::uint32_t words) {
    plan::Aggregation aggregation;
    aggregation.kind = kind;
    aggregation.bins = 127;
    aggregation.value_words = kind == AggregationKind::kQuantize ? 127 : 1;
    if (direct) {
      aggregation.direct = true;
      aggregation.direct_offset = program.direct_size;
      aggregation.direct_words = words;
      program.direct_size += words * 8;
    } else {
      aggregation.keys = {{}};
    }
    program.aggregations.push_back(aggregation);
  };
  add(AggregationKind::kCount, false, 0);
  add(AggregationKind::kMin, false, 0);
  add(AggregationKind::kCount, true, 1);
  add(AggregationKind::kSum, true, 2);
  add(AggregationKind::kQuantize, true, 128);
  return program;
}

class DrainerTest : public testing::Test {
 protected:
  DrainerTest()
      : program(make_program()),
        arena({.direct_size = program.direct_size, .buffer_bytes = 32 * wire::kChunkSize}),
        store(program) {
    auto made = Drainer::create(arena.bytes(), arena.layout(), program);
    EXPECT_TRUE(made) << made.error().text();
    drainer.emplace(std::move(*made));
    drainer->set_barrier([this]() -> Result<> {
      ++barriers;
      if (at_barrier) at_barrier();
      return {};
    });
  }

  DrainResult drain(DrainKind kind = DrainKind::kRunning,
                    std::uint64_t horizon = ~std::uint64_t{0}) {
    return drainer->drain(store, kind, horizon);
  }
  static std::vector<std::uint64_t> times(const DrainResult& result) {
    std::vector<std::uint64_t> out;
    for (const auto& record : result.records) out.push_back(record.tsc);
    return out;
  }
  std::map<std::int64_t, std::int64_t> counts(std::uint32_t aggregation = 0) {
    std::map<std::int64_t, std::int64_t> out;
    for (const auto& row : store.rows(std::vector{aggregation}, {})) {
      out[row.components->empty() ? 0 : row.components->at(0).as_signed()] =
          scalar_value(program.aggregations[aggregation].kind, *row.data[0], 1);
    }
    return out;
  }

  plan::Program program;
  TestArena arena;
  AggregationStore store;
  std::optional<Drainer> drainer;
  int barriers = 0;
  std::function<void()> at_barrier;
};

TEST_F(DrainerTest, TakesRecordsOfAllThreadsLevelsAndTheEarlySlotByTime) {
  BodyWriter a(arena, 5), b(arena, 9, 2), early(arena, arena.layout().slot_count);
  a.record(0, 10, 1);
  a.record(1, 40, 2);
  b.record(0, 20, 3);
  early.record(0, 30, 4);
  const auto first = drain();
  EXPECT_THAT(times(first), ElementsAre(10, 20, 30, 40));
  ASSERT_EQ(first.records.size(), 4u);
  EXPECT_EQ(first.records[3].clause, 1);
  EXPECT_EQ(first.records[3].tid, 105u);
  EXPECT_EQ(first.records[3].probe, 3u);
  EXPECT_EQ(decode_field(program.clauses[1].fields[0], first.records[3].payload).integer, 2u);
  EXPECT_TRUE(drain().records.empty()) << "a record is taken once";
  a.record(0, 50, 5);
  EXPECT_THAT(times(drain()), ElementsAre(50));
  EXPECT_FALSE(drainer->total_drops().any());
}

TEST_F(DrainerTest, NeverReordersOneThread) {
  BodyWriter a(arena, 1), b(arena, 2);
  a.record(0, 100, 1);
  a.record(0, 5, 2);  // its clock went back
  b.record(0, 50, 3);
  EXPECT_THAT(times(drain()), ElementsAre(50, 100, 5));
}

TEST_F(DrainerTest, HoldsLaterRecordsBackForOneRound) {
  BodyWriter a(arena, 1);
  a.record(0, 10, 1);
  a.record(0, 99, 2);
  a.record(0, 11, 3);
  EXPECT_THAT(times(drain(DrainKind::kRunning, 50)), ElementsAre(10));
  EXPECT_THAT(times(drain(DrainKind::kRunning, 50)), ElementsAre(99, 11));
  a.record(0, 99, 4);
  EXPECT_THAT(times(drain(DrainKind::kFinal, 50)), ElementsAre(99));
}

TEST_F(DrainerTest, GivesConsumedChunksBackToThePool) {
  BodyWriter a(arena, 1);
  std::uint64_t sent = 0;
  std::uint64_t seen = 0;
  const std::uint32_t all = arena.free_chunks();
  // Far more than the pool holds at once.
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 8000; ++i) sent += a.record(0, sent, sent);
    for (const auto& record : drain().records) {
      ASSERT_EQ(record.tsc, seen);
      ++seen;
    }
  }
  EXPECT_EQ(sent, 320000u);
  EXPECT_EQ(seen, sent);
  EXPECT_EQ(arena.free_chunks(), all - 1) << "the level keeps the one that it writes";
}

TEST_F(DrainerTest, ReportsRecordsThatFoundNoRoom) {
  BodyWriter a(arena, 1);
  std::uint64_t sent = 0;
  while (a.record(0, sent, sent)) ++sent;
  const auto result = drain();
  EXPECT_EQ(result.records.size(), sent);
  EXPECT_EQ(result.new_drops.record, 1u);
  EXPECT_FALSE(drain().new_drops.any());
  EXPECT_EQ(drainer->total_drops().record, 1u);
}

TEST_F(DrainerTest, TakesFaultRecords) {
  BodyWriter a(arena, 1);
  const wire::FaultPayload payload{4, 17, 0xdead};
  a.record(1, 5, std::as_bytes(std::span(&payload, 1)), wire::kRecordFault);
  const auto result = drain();
  ASSERT_EQ(result.records.size(), 1u);
  EXPECT_EQ(result.records[0].kind, wire::kRecordFault);
  EXPECT_EQ(result.records[0].payload.size(), sizeof payload);
}

TEST_F(DrainerTest, MergesTablesOfManyChunks) {
  BodyWriter a(arena, 1), b(arena, 2, 1);
  a.enter();
  b.enter();
  for (std::uint64_t i = 0; i < 9000; ++i) a.entry(0, i % 3000, 1);
  b.entry(0, 5, 10);
  b.entry(1, 5, static_cast<std::uint64_t>(-2));
  a.entry(1, 5, 7);
  a.leave();
  b.leave();
  const auto before = arena.free_chunks();
  const auto result = drain();
  EXPECT_TRUE(result.busy.empty());
  EXPECT_EQ(store.entry_count(0), 3000u);
  EXPECT_EQ(counts()[5], 13);
  EXPECT_EQ(counts(1)[5], -2);
  EXPECT_GT(arena.free_chunks(), before);
  EXPECT_EQ(arena.free_chunks(), arena.layout().chunk_count);
  EXPECT_EQ(barriers, 1);
  EXPECT_EQ(arena.header().epoch, 3u);
  EXPECT_FALSE(result.new_drops.any());
  drain();
  EXPECT_EQ(counts()[5], 13) << "nothing is merged twice";
}

TEST_F(DrainerTest, LeavesABusyLevelToTheNextRoundAndLosesNothing) {
  BodyWriter a(arena, 1), b(arena, 2);
  a.enter();
  b.enter();
  a.entry(0, 1, 1);
  b.entry(0, 2, 1);
  b.leave();
  auto result = drain();  // a is still inside
  EXPECT_EQ(counts(), (std::map<std::int64_t, std::int64_t>{{2, 1}}));
  ASSERT_EQ(result.busy.size(), 1u);
  EXPECT_EQ(result.busy[0].slot, 1u);
  EXPECT_EQ(result.busy[0].tid, 101u);
  EXPECT_EQ(result.busy[0].rounds, 1u);
  a.entry(0, 1, 1);  // into the same old epoch
  b.enter();
  b.entry(0, 2, 1);
  b.leave();
  a.leave();
  a.enter();  // the new epoch
  a.entry(0, 1, 1);
  result = drain();
  EXPECT_EQ(counts(), (std::map<std::int64_t, std::int64_t>{{1, 2}, {2, 2}}))
      << "the chain that was left behind was taken, the one being written was not";
  ASSERT_EQ(result.busy.size(), 1u);
  a.leave();
  result = drain();
  EXPECT_EQ(counts(), (std::map<std::int64_t, std::int64_t>{{1, 3}, {2, 2}}));
  EXPECT_TRUE(result.busy.empty());
  EXPECT_EQ(arena.free_chunks(), arena.layout().chunk_count);
}

TEST_F(DrainerTest, CountsTheRoundsOfALevelThatNeverComesBack) {
  BodyWriter a(arena, 1);
  a.enter();
  a.entry(0, 1, 5);
  drain();
  drain();
  const auto third = drain();
  ASSERT_EQ(third.busy.size(), 1u);
  EXPECT_EQ(third.busy[0].rounds, 3u);
  EXPECT_TRUE(counts().empty());
  EXPECT_EQ(third.busy[0].owner, arena.slot(1).owner);
  drainer->abandon_level(1, 0);
  EXPECT_EQ(drain().new_drops.level, 1u) << "what the firing had not finished";
  EXPECT_EQ(counts()[1], 5);
  EXPECT_TRUE(drain().busy.empty());
}

TEST_F(DrainerTest, ALevelThatEndedBeforeTheThreadWasLookedAtIsNoLoss) {
  BodyWriter a(arena, 1);
  a.enter();
  drain();
  ASSERT_EQ(drain().busy.size(), 1u);
  a.leave();
  drainer->abandon_level(1, 0);
  EXPECT_EQ(drain().new_drops.level, 0u);
}

TEST_F(DrainerTest, TheFinalRoundTakesBusyLevelsToo) {
  BodyWriter a(arena, 1);
  a.enter();
  a.entry(0, 1, 5);
  drain();
  a.entry(0, 1, 5);
  drain(DrainKind::kFinal);
  EXPECT_EQ(counts()[1], 10);
}

TEST_F(DrainerTest, ABodyThatEntersDuringTheFlipIsNotMissed) {
  BodyWriter a(arena, 1);
  at_barrier = [&] {
    a.enter();  // sees the new epoch
    a.entry(0, 1, 1);
  };
  drain();
  EXPECT_TRUE(counts().empty());
  at_barrier = nullptr;
  a.leave();
  drain();
  EXPECT_EQ(counts()[1], 1);
}

// It claims its slot when the round has looked for slots, and writes before the epoch is raised.
TEST_F(DrainerTest, ASlotClaimedInTheMidstOfARoundIsTakenByTheNext) {
  at_barrier = [&] {
    const std::uint64_t raised = arena.header().epoch;
    arena.header().epoch = raised - 1;
    BodyWriter late(arena, 3);
    late.enter();
    late.entry(0, 7, 1);
    late.leave();
    arena.header().epoch = raised;
  };
  drain();
  EXPECT_TRUE(counts().empty());
  at_barrier = nullptr;
  drain();
  EXPECT_EQ(counts(), (std::map<std::int64_t, std::int64_t>{{7, 1}}));
}

TEST_F(DrainerTest, WithoutABarrierNoTableIsTouched) {
  BodyWriter a(arena, 1);
  a.enter();
  a.entry(0, 1, 1);
  a.leave();
  a.record(0, 3, 3);
  drainer->set_barrier([]() -> Result<> { return Error::os(ENOSYS, "membarrier"); });
  const auto result = drain();
  ASSERT_TRUE(result.barrier_error);
  EXPECT_EQ(result.barrier_error->os_errno(), ENOSYS);
  EXPECT_EQ(result.records.size(), 1u);
  EXPECT_TRUE(counts().empty());
  drainer->set_barrier([]() -> Result<> { return {}; });
  drain();
  EXPECT_EQ(counts()[1], 1);
}

TEST_F(DrainerTest, DirectCellsAreReadAsDifferences) {
  BodyWriter a(arena, 1), b(arena, 2);
  arena.direct(1)[0] = 5;
  arena.direct(2)[0] = 7;
  arena.direct(1)[1] = 1;  // sum: updated
  arena.direct(1)[2] = static_cast<std::uint64_t>(-3);
  arena.direct(2)[3] = 1;  // quantize: updated
  arena.direct(2)[4 + 64] = 2;
  drain();
  EXPECT_EQ(counts(2)[0], 12);
  EXPECT_EQ(counts(3)[0], -3);
  EXPECT_THAT(store.rows(std::vector<std::uint32_t>{4}, {})[0].data[0]->bins,
              ElementsAre(std::pair(64u, 2)));
  store.clear(2);
  arena.direct(1)[0] += 1;
  drain();
  EXPECT_EQ(counts(2)[0], 1) << "only what came after the clear";
  store.truncate(2, std::nullopt);
  drain();
  EXPECT_TRUE(store.empty(2)) << "no update, no entry";
  arena.direct(2)[0] += 2;
  drain();
  EXPECT_EQ(counts(2)[0], 2);
}

TEST_F(DrainerTest, SeveralProcessesShareOneStore) {
  TestArena other({.direct_size = program.direct_size, .buffer_bytes = 32 * wire::kChunkSize});
  auto second = Drainer::create(other.bytes(), other.layout(), program);
  ASSERT_TRUE(second);
  second->set_barrier([]() -> Result<> { return {}; });
  BodyWriter a(arena, 1), b(other, 1);
  for (auto* body : {&a, &b}) {
    body->enter();
    body->entry(0, 7, 2);
    body->leave();
  }
  arena.direct(1)[0] = 5;
  other.direct(1)[0] = 6;
  drain();
  second->drain(store, DrainKind::kRunning);
  EXPECT_EQ(counts(), (std::map<std::int64_t, std::int64_t>{{7, 4}}));
  EXPECT_EQ(counts(2)[0], 11);
  store.clear(2);  // of both
  other.direct(1)[0] += 1;
  drain();
  second->drain(store, DrainKind::kRunning);
  EXPECT_EQ(counts(2)[0], 1);
}

TEST_F(DrainerTest, ASumOfZeroIsAnUpdate) {
  BodyWriter a(arena, 1);
  drain();
  EXPECT_TRUE(store.empty(3));
  arena.direct(1)[1] = 1;
  drain();
  EXPECT_EQ(counts(3), (std::map<std::int64_t, std::int64_t>{{0, 0}}));
}

TEST_F(DrainerTest, AddsUpDropsOfEachKind) {
  BodyWriter a(arena, 1), b(arena, 2);
  arena.slot(1).drops_aggregation = 3;
  arena.slot(2).drops_aggregation = 4;
  arena.slot(1).drops_dynamic = 1;
  arena.slot(1).drops_level = 2;
  arena.header().drops_no_slot = 6;
  const Drops expected{.aggregation = 7, .dynamic = 1, .level = 2, .no_slot = 6};
  EXPECT_EQ(drain().new_drops, expected);
  EXPECT_FALSE(drain().new_drops.any());
  arena.slot(2).drops_aggregation += 1;
  EXPECT_EQ(drain().new_drops, Drops{.aggregation = 1});
}

TEST_F(DrainerTest, RefusesALayoutThatDoesNotFit) {
  wire::Layout layout = arena.layout();
  layout.chunk_count += 1;
  EXPECT_FALSE(Drainer::create(arena.bytes(), layout, program));
  layout = arena.layout();
  layout.slot_count = ~0u;
  EXPECT_FALSE(Drainer::create(arena.bytes(), layout, program));
  layout = arena.layout();
  layout.slot_direct_size = 8;
  EXPECT_FALSE(Drainer::create(arena.bytes(), layout, program));
}

// -------------------------------------------------------------------------------------------------------------
// forged

TEST_F(DrainerTest, PassesOverForgedRecords) {
  BodyWriter a(arena, 1);
  a.record(0, 1, 1);
  a.record(7, 2, 2);                             // no such clause
  a.record(0, 3, std::span<const std::byte>());  // wrong size
  a.record(0, 4, 4);
  auto result = drain();
  EXPECT_THAT(times(result), ElementsAre(1, 4));
  EXPECT_EQ(result.new_drops.malformed, 2u);

  std::byte* bad = a.reserve(40);
  const std::uint32_t size = 12;  // smaller than a header
  std::memcpy(bad, &size, sizeof size);
  a.commit();
  a.record(0, 5, 5);
  result = drain();
  EXPECT_TRUE(result.records.empty()) << "where the next record begins is unknown";
  EXPECT_EQ(result.new_drops.malformed, 1u);
  a.record(0, 6, 6);
  EXPECT_THAT(times(drain()), ElementsAre(6)) << "what is committed later is readable again";
}

TEST_F(DrainerTest, EndsOnForgedChains) {
  BodyWriter a(arena, 1), b(arena, 2);
  a.record(0, 1, 1);
  arena.ring(a.level().ring_last - 1).next = a.level().ring_last;  // a ring of one
  b.level().ring_first = 0x7fffffff;
  a.enter();
  a.entry(0, 1, 1);
  arena.table(a.level().tables[0] - 1).next = a.level().tables[0];
  a.leave();
  const auto result = drain();
  EXPECT_THAT(times(result), ElementsAre(1));
  EXPECT_EQ(result.new_drops.malformed, 3u);
  EXPECT_EQ(counts()[1], 1);
  drain(DrainKind::kFinal);
}

TEST(ForgedArena, NeitherCrashesNorHangsTheDrainer) {
  std::mt19937_64 random(5);
  const plan::Program program = make_program();
  for (int round = 0; round < 40; ++round) {
    TestArena arena({.direct_size = program.direct_size, .buffer_bytes = 16 * wire::kChunkSize});
    AggregationStore store(program);
    auto drainer = Drainer::create(arena.bytes(), arena.layout(), program);
    ASSERT_TRUE(drainer);
    drainer->set_barrier([]() -> Result<> { return {}; });
    BodyWriter a(arena, 1), b(arena, 2);
    for (std::uint64_t i = 0; i < 3000; ++i) a.record(0, i, i);
    b.enter();
    for (std::uint64_t i = 0; i < 5000; ++i) b.entry(0, i, 1);
    for (int phase = 0; phase < 10; ++phase) {
      for (int i = 0; i < 100; ++i) {
        const bool chunks = random() % 2 != 0;
        const std::uint64_t start = chunks ? arena.layout().chunks : arena.layout().slots;
        const std::uint64_t span = chunks ? 8 * wire::kChunkSize : 3 * arena.layout().slot_stride;
        const std::uint64_t near = random() % 3 == 0 ? span : 256;
        const std::uint64_t part = chunks ? random() % 8 * wire::kChunkSize : 0;
        const std::uint64_t offset = start + (near == 256 ? part : 0) + random() % near / 4 * 4;
        const auto value = static_cast<std::uint32_t>(random() % 2 != 0 ? random() : random() % 40);
        std::memcpy(arena.bytes().data() + offset, &value, sizeof value);
      }
      drainer->drain(store, phase == 9 ? DrainKind::kFinal : DrainKind::kRunning, random());
    }
  }
}

// -------------------------------------------------------------------------------------------------------------
// threads

// Writers that do not wait for the drainer, which runs beside them: each update and each record
// arrives exactly once.
TEST_F(DrainerTest, LosesNothingWhileThreadsWrite) {
  constexpr std::uint64_t kUpdates = 30000;
  std::atomic<int> running{2};
  const auto writer = [&](std::uint32_t slot) {
    BodyWriter body(arena, slot);
    for (std::uint64_t i = 0; i < kUpdates; ++i) {
      bool counted = false;
      bool recorded = false;
      while (!counted || !recorded) {  // the pool may be empty for a while
        body.enter();
        if (!counted) counted = body.entry(0, i % 100, 1);
        if (!recorded) recorded = body.record(0, i, i);
        body.leave();
        if (!counted || !recorded) std::this_thread::yield();
      }
    }
    --running;
  };
  std::map<std::uint32_t, std::uint64_t> seen;
  std::uint64_t disordered = 0;
  const auto take = [&](DrainKind kind) {
    const auto result = drain(kind);
    EXPECT_EQ(result.new_drops.malformed, 0u);
    for (const auto& record : result.records) disordered += record.tsc != seen[record.tid]++;
  };
  std::thread one(writer, 1), two(writer, 2);
  while (running != 0) take(DrainKind::kRunning);
  one.join();
  two.join();
  take(DrainKind::kFinal);
  std::int64_t total = 0;
  for (const auto& [key, count] : counts()) total += count;
  EXPECT_EQ(total, static_cast<std::int64_t>(2 * kUpdates));
  EXPECT_EQ(seen, (std::map<std::uint32_t, std::uint64_t>{{101, kUpdates}, {102, kUpdates}}));
  EXPECT_EQ(disordered, 0u);
  EXPECT_GT(barriers, 2);
}

}  // namespace
}  // namespace trapline::consume
