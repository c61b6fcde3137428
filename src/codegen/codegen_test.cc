// Compiled bodies, run in this process: the frame (registers, states, slots, levels), direct and
// keyed aggregations.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "codegen/test_plan.h"
#include "codegen/test_target.h"
#include "wire/bins.h"

namespace trapline::codegen::test {
namespace {

using plan::AggregationKind;
using plan::Builtin;
using plan::Program;
using plan::Scope;

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }

Program count_arg0_keyed() {
  Program program;
  const auto count = add_aggregation(program, AggregationKind::kCount, {integer()});
  ClauseBuilder clause;
  const Reg key = clause.argument(0);
  clause.reserve();
  clause.aggregate(program, count, plan::kNoReg, {{key, integer()}});
  program.clauses.push_back(clause.done());
  return program;
}

Program count_direct() {
  Program program;
  const auto count = add_aggregation(program, AggregationKind::kCount);
  ClauseBuilder clause;
  clause.reserve();
  clause.aggregate(program, count);
  program.clauses.push_back(clause.done());
  return program;
}

Program quantize_arg0() {
  Program program;
  const auto sizes = add_aggregation(program, AggregationKind::kQuantize);
  ClauseBuilder clause;
  const Reg value = clause.argument(0);
  clause.reserve();
  clause.aggregate(program, sizes, value);
  program.clauses.push_back(clause.done());
  return program;
}

const std::vector<BodyRequest> kOneBody = {{SiteKind::kEntry, {0}}};

// -------------------------------------------------------------------------------------------------------
// the frame

TEST(Body, DirectCountCounts) {
  Target target(count_direct(), kOneBody);
  for (int i = 0; i < 1000; ++i) target.fire({});
  EXPECT_EQ(target.direct(0), 1000u);
  ASSERT_EQ(target.slots().size(), 1u);
  EXPECT_EQ(target.slots()[0]->depth, 0u);
  EXPECT_EQ(target.header().drops_no_slot, 0u);
}

TEST(Body, QuantizePutsEachValueIntoItsBin) {
  Target target(quantize_arg0(), kOneBody);
  const std::int64_t values[] = {0, 1, 2, 3, 4, 1000, -1, -7, INT64_MAX, INT64_MIN, 1LL << 62};
  std::map<std::uint32_t, std::uint64_t> expected;
  for (const std::int64_t value : values) {
    target.fire({u(value)});
    ++expected[wire::quantize_bin(value)];
  }
  EXPECT_EQ(target.direct(0, 0), 1u);  // there was data
  for (std::uint32_t bin = 0; bin < wire::kQuantizeBins; ++bin) {
    EXPECT_EQ(target.direct(0, 1 + bin), expected[bin]) << "bin " << bin;
  }
}

TEST(Body, PreservesEveryRegisterButR11) {
  Program program = count_arg0_keyed();
  ClauseBuilder clause;  // a record, a fault-prone load and a string besides
  add_string(program, "hello");
  const Reg a = clause.argument(0);
  const Reg seven = clause.argument(7);
  clause.reserve();
  clause.field(a, integer());
  clause.field(clause.string(0), text());
  clause.field(seven, integer());
  program.clauses.push_back(clause.done());
  Target target(program, {{SiteKind::kEntry, {0, 1}}});
  for (int round = 0; round < 3; ++round) {  // the first makes slots, chunks and entries
    CallFrame frame{};
    for (std::size_t i = 0; i < frame.in.size(); ++i) frame.in[i] = 0x1111111111111111u * (i + 1);
    for (std::size_t i = 0; i < frame.vector_in.size(); ++i)
      frame.vector_in[i] = static_cast<unsigned char>(i * 7);
    trapline_test_call(target.body(), &target.site(), &frame);
    frame.in[kR10] = reinterpret_cast<std::uint64_t>(&target.site());
    for (std::size_t i = 0; i < frame.in.size(); ++i) {
      if (i == kR11) continue;
      EXPECT_EQ(frame.in[i], frame.out[i]) << "register " << i;
    }
    EXPECT_EQ(frame.vector_in, frame.vector_out);
  }
  EXPECT_EQ(target.records().size(), 3u);
}

TEST(Body, StaysWithinTheStackAndFreeOfUnplannedCalls) {
  Target target(quantize_arg0(), kOneBody);
  EXPECT_LE(target.object().max_stack, kMaxBodyStack);
  EXPECT_TRUE(target.object().calls_gettid);
  EXPECT_FALSE(target.object().calls_process_vm_readv);
  EXPECT_FALSE(target.object().calls_clock_gettime);
  RecordProperty("stack", static_cast<int>(target.object().max_stack));
}

TEST(Body, DoesNothingUnlessAliveAndActive) {
  Target target(count_direct(), kOneBody);
  target.alive() = 0;
  target.fire({});
  target.alive() = 1;
  target.header().state = 0;
  target.fire({});
  target.header().state = wire::kActive | wire::kExiting;
  target.fire({});
  EXPECT_EQ(target.slots().size(), 0u);
  target.header().state = wire::kActive;
  target.fire({});
  EXPECT_EQ(target.direct(0), 1u);
}

thread_local volatile std::uint32_t muted = 0;

TEST(Body, AThreadThatIsMutedFiresNothing) {
  std::uint64_t thread_pointer;
  asm("mov %%fs:0, %0" : "=r"(thread_pointer));
  Target target(count_direct(), kOneBody,
                {.mute_offset = static_cast<std::int32_t>(reinterpret_cast<std::uint64_t>(&muted) -
                                                          thread_pointer)});
  target.fire({});
  muted = 1;
  target.fire({});
  std::thread other([&] { target.fire({}); });
  other.join();
  muted = 0;
  target.fire({});
  EXPECT_EQ(target.slots().size(), 2u);
  EXPECT_EQ(target.direct(0), 3u);
}

TEST(Body, EarlyThreadsAreKnownByTheirIds) {
  Target target(count_arg0_keyed(), kOneBody);
  target.header().state = wire::kActive | wire::kEarly;
  target.fire({5});
  target.fire({5});
  ASSERT_EQ(target.slots().size(), 1u);
  EXPECT_EQ(target.slots()[0]->owner,
            wire::kOwnerIsTid | static_cast<std::uint64_t>(::syscall(SYS_gettid)));
  target.header().state = wire::kActive;
  target.fire({5});
  EXPECT_EQ(target.slots().size(), 2u);
  const auto sums = target.summed();
  EXPECT_EQ(sums.at({0, {5}}), Words{3});
}

TEST(Body, EveryNestedFiringTakesTheNextLevel) {
  Target target(count_arg0_keyed(), kOneBody);
  target.fire({1});
  wire::Slot& slot = *target.slots()[0];
  for (std::uint32_t depth = 1; depth < wire::kLevels; ++depth) {
    slot.depth = depth;  // as if a signal handler had interrupted a body
    target.fire({1});
    EXPECT_EQ(slot.depth, depth);
    EXPECT_NE(slot.levels[depth].tables[0], 0u);
  }
  slot.depth = wire::kLevels;
  target.fire({1});
  EXPECT_EQ(slot.drops_level, 1u);
  EXPECT_EQ(slot.depth, wire::kLevels);
  slot.depth = 0;
  EXPECT_EQ(target.summed().at({0, {1}}), Words{wire::kLevels});
}

TEST(Body, OddEpochsHaveTablesOfTheirOwn) {
  Target target(count_arg0_keyed(), kOneBody);
  target.fire({1});
  target.header().epoch = 3;
  target.fire({1});
  target.fire({2});
  EXPECT_EQ(target.summed(0).at({0, {1}}), Words{1});
  EXPECT_EQ(target.summed(1).at({0, {1}}), Words{1});
  EXPECT_EQ(target.summed(1).at({0, {2}}), Words{1});
  EXPECT_EQ(target.slots()[0]->levels[0].entered, 0u);
}

TEST(Body, NoSlotIsACountedDrop) {
  Target target(count_direct(), kOneBody);
  for (std::uint32_t i = 0; i < target.layout().slot_count; ++i) target.slot(i).owner = 1;
  target.fire({});
  EXPECT_EQ(target.header().drops_no_slot, 1u);
}

TEST(Body, FindsItsSlotBehindForeignOnes) {
  Target target(count_direct(), kOneBody);
  target.fire({});
  wire::Slot* first = target.slots()[0];
  const std::uint64_t owner = first->owner;
  first->owner = 1;  // another thread's now
  target.fire({});
  target.fire({});
  ASSERT_EQ(target.slots().size(), 2u);
  wire::Slot* second = target.slots()[target.slots()[0] == first ? 1 : 0];
  EXPECT_EQ(second->owner, owner);
  EXPECT_EQ(target.direct(0), 3u);
  EXPECT_EQ(target.header().drops_no_slot, 0u);
}

// ----------------------------------------------------------------------------------------------
// keyed aggregations

TEST(Aggregation, CountByIntegerKey) {
  Target target(count_arg0_keyed(), kOneBody);
  for (std::uint64_t i = 0; i < 3000; ++i) target.fire({i % 7 * 16});
  const auto sums = target.summed();
  EXPECT_EQ(sums.size(), 7u);
  for (std::uint64_t key = 0; key < 7; ++key) {
    EXPECT_EQ(sums.at({0, {key * 16}})[0], 3000 / 7 + (key < 3000 % 7 ? 1 : 0));
  }
}

TEST(Aggregation, AFullTableGoesOnInANewChunk) {
  Target target(count_arg0_keyed(), kOneBody);
  constexpr std::uint64_t kKeys = 20000;
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < kKeys; ++i) target.fire({i * 4096});
  }
  const auto sums = target.summed();
  ASSERT_EQ(sums.size(), kKeys);
  for (const auto& [key, value] : sums) EXPECT_EQ(value, Words{2});
  EXPECT_EQ(target.slots()[0]->drops_aggregation, 0u);
}

TEST(Aggregation, AnEmptyPoolIsACountedDrop) {
  Target target(count_arg0_keyed(), kOneBody, {.buffer_bytes = 16 * wire::kChunkSize});
  constexpr std::uint64_t kKeys = 60000;
  for (std::uint64_t i = 0; i < kKeys; ++i) target.fire({i});
  std::uint64_t counted = 0;
  for (const auto& [key, value] : target.summed()) counted += value[0];
  const std::uint64_t drops = target.slots()[0]->drops_aggregation;
  EXPECT_GT(drops, 0u);
  EXPECT_EQ(counted + drops, kKeys);
}

TEST(Aggregation, KeysOfSeveralComponents) {
  Program program;
  add_string(program, "a string constant");
  const auto count =
      add_aggregation(program, AggregationKind::kCount, {integer(4, false), integer(2)});
  const auto sum =
      add_aggregation(program, AggregationKind::kSum, {integer(), text(), integer(), integer()});
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  const Reg b = clause.argument(1);
  const Reg s = clause.string(0);
  clause.reserve();
  clause.aggregate(program, count, plan::kNoReg, {{a, integer(4, false)}, {b, integer(2)}});
  clause.aggregate(program, sum, b, {{a, integer()}, {s, text()}, {b, integer()}, {a, integer()}});
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  for (int i = 0; i < 5; ++i) target.fire({u(-1), u(-2)});
  target.fire({3, 4});
  const auto sums = target.summed();
  EXPECT_EQ(sums.size(), 4u);
  EXPECT_EQ(sums.at({count, {0xffffffff, u(-2)}}), Words{5});
  EXPECT_EQ(sums.at({count, {3, 4}}), Words{1});
  Words key = {u(-1)};
  std::vector<std::uint64_t> encoded(8);
  wire::KeyWriter writer(encoded.data(), 8);
  writer.append_string("a string constant", 256);
  key.insert(key.end(), encoded.begin(), encoded.begin() + writer.count());
  key.push_back(u(-2));
  key.push_back(u(-1));
  EXPECT_EQ(sums.at({sum, key}), Words{u(-10)});
}

TEST(Aggregation, EveryKindWithoutKeys) {
  Program program;
  std::vector<std::uint32_t> numbers;
  for (const auto kind : {AggregationKind::kSum, AggregationKind::kMin, AggregationKind::kMax,
                          AggregationKind::kAvg, AggregationKind::kStddev}) {
    numbers.push_back(add_aggregation(program, kind));
  }
  const auto linear = add_aggregation(program, AggregationKind::kLquantize, {}, {-10, 5, 4});
  const auto log = add_aggregation(program, AggregationKind::kLlquantize, {}, {10, 0, 3, 20});
  ClauseBuilder clause;
  const Reg value = clause.argument(0);
  const Reg weight = clause.argument(1);
  clause.reserve();
  for (const auto number : numbers) clause.aggregate(program, number, value);
  clause.aggregate(program, linear, value, {}, weight);
  clause.aggregate(program, log, value);
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  const std::int64_t values[] = {5, -3, 900, -11, 1LL << 40};
  for (const std::int64_t v : values) target.fire({u(v), 3});

  EXPECT_EQ(target.direct(numbers[0], 0), 1u);
  EXPECT_EQ(target.direct(numbers[0], 1), u(5 - 3 + 900 - 11 + (1LL << 40)));
  std::map<std::uint32_t, Words> found;
  target.for_each_entry(0, [&](std::uint32_t number, Words key, Words value_words) {
    EXPECT_TRUE(key.empty());
    found[number] = value_words;
  });
  EXPECT_EQ(found[numbers[1]], Words{u(-11)});
  EXPECT_EQ(found[numbers[2]], Words{u(1LL << 40)});
  EXPECT_EQ(found[numbers[3]], (Words{5, u(891 + (1LL << 40))}));
  // 25 + 9 + 810000 + 121 + 2^80
  EXPECT_EQ(found[numbers[4]], (Words{5, u(891 + (1LL << 40)), 810155, 1 << 16}));
  for (const std::int64_t v : values) {
    EXPECT_EQ(target.direct(linear, 1 + wire::lquantize_bin(v, -10, 5, 4)) % 3, 0u);
    EXPECT_GE(target.direct(log, 1 + wire::llquantize_bin(v, {10, 0, 3, 20})), 1u);
  }
}

TEST(Aggregation, HistogramsByKeyAndSparseOnes) {
  Program program;
  const auto dense = add_aggregation(program, AggregationKind::kQuantize, {integer()});
  const auto sparse =
      add_aggregation(program, AggregationKind::kLquantize, {integer()}, {0, 1, 5000});
  ASSERT_TRUE(program.aggregations[sparse].sparse);
  ClauseBuilder clause;
  const Reg key = clause.argument(0);
  const Reg value = clause.argument(1);
  clause.reserve();
  clause.aggregate(program, dense, value, {{key, integer()}});
  clause.aggregate(program, sparse, value, {{key, integer()}});
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.fire({1, 100});
  target.fire({1, 101});
  target.fire({1, 100});
  target.fire({2, 9999});
  const auto sums = target.summed();
  EXPECT_EQ(sums.at({dense, {1}})[wire::quantize_bin(100)], 3u);
  EXPECT_EQ(sums.at({dense, {2}})[wire::quantize_bin(9999)], 1u);
  EXPECT_EQ(sums.at({sparse, {1, 101}}), Words{2});
  EXPECT_EQ(sums.at({sparse, {1, 102}}), Words{1});
  EXPECT_EQ(sums.at({sparse, {2, 5001}}), Words{1});
}

}  // namespace
}  // namespace trapline::codegen::test
