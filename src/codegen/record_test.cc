// Records, faults, exit, chunk rollover, time, and threads with signals under epoch flips.

#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <x86intrin.h>

#include <atomic>
#include <thread>

#include "codegen/test_plan.h"
#include "codegen/test_target.h"

namespace trapline::codegen::test {
namespace {

using plan::AggregationKind;
using plan::Builtin;
using plan::Fault;
using plan::Program;
using plan::Scope;

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }

const std::vector<BodyRequest> kOneBody = {{SiteKind::kEntry, {0}}};

Program record_arg0() {
  Program program;
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  clause.reserve();
  clause.field(a, integer());
  program.clauses.push_back(clause.done());
  return program;
}

TEST(Record, CarriesFieldsAndWhoAndWhere) {
  Program program;
  add_string(program, "one");
  add_string(program, "a text that is longer than its field");
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  clause.reserve();
  clause.field(a, integer(1));
  clause.field(a, integer(2));
  clause.field(a, integer(4));
  clause.field(a, integer(8));
  clause.field(clause.string(0), text(16));
  clause.field(clause.string(1), text(8));
  clause.field(clause.builtin(Builtin::kProbeFunction), text(16));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  const std::uint64_t before = __rdtsc();
  target.fire({0x1122334455667788});
  const std::uint64_t after = __rdtsc();
  const auto records = target.records();
  ASSERT_EQ(records.size(), 1u);
  const Record& record = records[0];
  EXPECT_EQ(record.header.kind, wire::kRecordData);
  EXPECT_EQ(record.header.clause, 0u);
  EXPECT_EQ(record.header.probe, 7u);
  EXPECT_EQ(record.header.tid, static_cast<std::uint32_t>(::syscall(SYS_gettid)));
  EXPECT_GE(record.header.tsc, before);
  EXPECT_LE(record.header.tsc, after);
  EXPECT_LT(record.header.cpu, static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  EXPECT_EQ(record.header.size % 8, 0u);
  const auto& fields = target.program().clauses[0].fields;
  EXPECT_EQ(record.get<std::uint8_t>(fields[0].offset), 0x88u);
  EXPECT_EQ(record.get<std::uint16_t>(fields[1].offset), 0x7788u);
  EXPECT_EQ(record.get<std::uint32_t>(fields[2].offset), 0x55667788u);
  EXPECT_EQ(record.get<std::uint64_t>(fields[3].offset), 0x1122334455667788u);
  EXPECT_EQ(record.text(fields[4].offset), "one");
  EXPECT_EQ(record.text(fields[5].offset), "a text ");
  EXPECT_EQ(record.text(fields[6].offset), "malloc");
}

TEST(Record, PredicatesDecideAndABareRecordIsARecord) {
  Program program;
  ClauseBuilder odd;
  const Reg bit = odd.binary(Op::kAnd, odd.argument(0), odd.constant(1));
  odd.predicate(bit);
  odd.reserve();
  odd.record();
  program.clauses.push_back(odd.done());
  Target target(program, kOneBody);
  for (std::uint64_t i = 0; i < 10; ++i) target.fire({i});
  const auto records = target.records();
  EXPECT_EQ(records.size(), 5u);
  for (const auto& record : records) EXPECT_EQ(record.header.size, sizeof(wire::RecordHeader));
}

TEST(Record, RingsGrowByChunksInOrder) {
  Target target(record_arg0(), kOneBody);
  constexpr std::uint64_t kCount = 20000;
  for (std::uint64_t i = 0; i < kCount; ++i) target.fire({i});
  const auto records = target.records();
  ASSERT_EQ(records.size(), kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(records[i].get<std::uint64_t>(0), i);
}

TEST(Record, AnEmptyPoolDropsTheClauseAndCounts) {
  Program program = record_arg0();
  const auto after = add_aggregation(program, AggregationKind::kCount);
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  clause.reserve();
  clause.field(a, integer());
  clause.aggregate(program, after);
  program.clauses[0] = clause.done();
  Target target(program, kOneBody, {.buffer_bytes = 0});
  constexpr std::uint64_t kCount = 40000;
  for (std::uint64_t i = 0; i < kCount; ++i) target.fire({i});
  const std::uint64_t drops = target.slots()[0]->drops_record;
  EXPECT_GT(drops, 0u);
  EXPECT_EQ(target.records().size() + drops, kCount);
  EXPECT_EQ(target.direct(after) + drops, kCount);
}

TEST(Record, ChunksGoBackAndForthBetweenBodiesAndTheTracer) {
  Target target(record_arg0(), kOneBody, {.buffer_bytes = 0});
  std::uint64_t expected = 0;
  wire::Slot* slot = nullptr;
  std::uint32_t reading = 0;
  std::uint32_t used = 0;
  for (std::uint64_t i = 0; i < 60000; ++i) {
    target.fire({i});
    if (i % 5000 != 4999) continue;
    slot = target.slots()[0];
    if (reading == 0) reading = slot->levels[0].ring_first;
    while (true) {  // drain as the tracer does, giving full chunks back
      auto* ring = reinterpret_cast<wire::RingChunk*>(target.chunk(reading - 1));
      for (; used < ring->committed; used += 40) {
        std::uint64_t value;
        std::memcpy(&value, target.chunk(reading - 1) + wire::RingChunk::kDataOffset + used + 32,
                    8);
        ASSERT_EQ(value, expected++);
      }
      if (ring->next == 0) break;
      const std::uint32_t next = ring->next;
      std::uint64_t& pool = target.header().free_chunks;
      ring->next = wire::free_link(reading - 1, static_cast<std::uint32_t>(pool));
      pool = ((pool >> 32) + 1) << 32 | reading;
      reading = next;
      used = 0;
    }
  }
  EXPECT_EQ(expected, 60000u);
  EXPECT_EQ(slot->drops_record, 0u);
}

// ----------------------------------------------------------------------------------------------------
// faults, exit

TEST(Fault, ThrowsTheRecordAwayAndTheNextClauseRuns) {
  Program program;
  const auto before = add_aggregation(program, AggregationKind::kCount);
  const auto after = add_aggregation(program, AggregationKind::kCount);
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  clause.reserve();
  clause.aggregate(program, before);
  clause.field(a, integer());
  const Reg quotient = clause.binary(Op::kDivSigned, clause.constant(100), a);
  clause.field(quotient, integer());
  clause.aggregate(program, after);
  program.clauses.push_back(clause.done());
  ClauseBuilder second;
  const Reg b = second.argument(0);
  second.reserve();
  second.field(b, integer());
  program.clauses.push_back(second.done());
  Target target(program, {{SiteKind::kEntry, {0, 1}}});
  target.fire({5});
  target.fire({0});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].get<std::int64_t>(8), 20);
  EXPECT_EQ(records[1].header.clause, 1u);
  EXPECT_EQ(records[2].header.kind, wire::kRecordFault);
  EXPECT_EQ(records[2].header.clause, 0u);
  const auto payload = records[2].get<wire::FaultPayload>(0);
  EXPECT_EQ(payload.fault, static_cast<std::uint32_t>(Fault::kDivideByZero));
  EXPECT_EQ(target.program().clauses[0].code[payload.instruction].op, Op::kDivSigned);
  EXPECT_EQ(payload.address, 0u);
  EXPECT_EQ(records[3].header.clause, 1u);
  EXPECT_EQ(target.direct(before), 2u);
  EXPECT_EQ(target.direct(after), 1u);
}

TEST(Fault, BadAddressesFaultWithTheirAddress) {
  Program program;
  ClauseBuilder clause;
  const Reg value = clause.load_memory(clause.argument(0), 4, true);
  clause.reserve();
  clause.field(value, integer());
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  const std::int32_t readable = -77;
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{16}, std::uint64_t{1} << 63,
                                      ~std::uint64_t{0}, std::uint64_t{0x7fffffffeffe}}) {
    target.fire({address});
  }
  target.fire({reinterpret_cast<std::uint64_t>(&readable)});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(records[i].header.kind, wire::kRecordFault) << i;
    EXPECT_EQ(records[i].get<wire::FaultPayload>(0).fault,
              static_cast<std::uint32_t>(Fault::kBadAddress));
  }
  EXPECT_EQ(records[2].get<wire::FaultPayload>(0).address, std::uint64_t{1} << 63);
  EXPECT_EQ(records[5].get<std::int64_t>(0), -77);
  EXPECT_TRUE(target.object().calls_process_vm_readv);
}

TEST(Exit, EndsTracingAfterItsRecordAndSkipsLaterClauses) {
  Program program;
  const auto count = add_aggregation(program, AggregationKind::kCount);
  ClauseBuilder clause;
  const Reg status = clause.constant(3);
  clause.reserve();
  clause.field(status, integer(4));
  clause.exit(status);
  clause.aggregate(program, count);
  program.clauses.push_back(clause.done());
  ClauseBuilder later;
  later.reserve();
  later.record();
  program.clauses.push_back(later.done());
  Target target(program, {{SiteKind::kEntry, {0, 1}}});
  target.fire({});
  target.fire({});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].get<std::int32_t>(0), 3);
  EXPECT_EQ(target.direct(count), 1u);
  EXPECT_EQ(target.header().state, wire::kActive | wire::kExiting);
  EXPECT_EQ(target.slots()[0]->depth, 0u);
  EXPECT_EQ(target.slots()[0]->levels[0].entered, 0u);
}

// ---------------------------------------------------------------------------------------------------------
// builtins

TEST(Builtin_, IntegersAndTime) {
  Program program;
  ClauseBuilder clause;
  clause.reserve();
  for (const auto which :
       {Builtin::kPid, Builtin::kPpid, Builtin::kTid, Builtin::kUid, Builtin::kGid, Builtin::kCpu,
        Builtin::kProbeId, Builtin::kTimestamp, Builtin::kWallTimestamp, Builtin::kTimestamp,
        Builtin::kVirtualTimestamp}) {
    clause.field(clause.builtin(which), integer());
  }
  for (const auto which : {Builtin::kExecname, Builtin::kProbeProvider, Builtin::kProbeModule,
                           Builtin::kProbeFunction, Builtin::kProbeName}) {
    clause.field(clause.builtin(which), text(32));
  }
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.fire({});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 1u);
  const auto value = [&](std::size_t field) { return records[0].get<std::int64_t>(field * 8); };
  EXPECT_EQ(value(0), 4242);
  EXPECT_EQ(value(1), 4241);
  EXPECT_EQ(value(2), ::syscall(SYS_gettid));
  EXPECT_EQ(value(3), 1000);
  EXPECT_EQ(value(4), 1001);
  EXPECT_EQ(value(6), 31);
  EXPECT_EQ(u(value(7)), 1000 + (records[0].header.tsc - 500) * 3 / 2);
  EXPECT_EQ(value(8), value(7) + 1000000);
  EXPECT_EQ(value(9), value(7));
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  EXPECT_GT(value(10), 0);
  EXPECT_LE(value(10), now.tv_sec * 1000000000 + now.tv_nsec);
  const char* const expected[] = {"tested", "pid4242", "libc.so.6", "malloc", "entry"};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(records[0].text(88 + i * 32), expected[i]);
}

TEST(Builtin_, WithoutATrustedCounterTheKernelGivesTheTime) {
  Program program;
  ClauseBuilder clause;
  clause.reserve();
  clause.field(clause.builtin(Builtin::kTimestamp), integer());
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.header().tsc_mult = 0;
  timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  target.fire({});
  clock_gettime(CLOCK_MONOTONIC, &after);
  const auto records = target.records();
  const auto ns = records[0].get<std::int64_t>(0);
  EXPECT_GE(ns, before.tv_sec * 1000000000 + before.tv_nsec);
  EXPECT_LE(ns, after.tv_sec * 1000000000 + after.tv_nsec);
  EXPECT_EQ(records[0].header.tsc, u(ns));
  EXPECT_TRUE(target.object().calls_clock_gettime);
}

TEST(Builtin_, TheProcessorComesFromTheRseqAreaWhereThereIsOne) {
  Program program;
  ClauseBuilder clause;
  clause.reserve();
  clause.field(clause.builtin(Builtin::kCpu), integer());
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  alignas(8) static thread_local std::uint32_t number;
  number = 77;
  const auto block = static_cast<std::int64_t>(reinterpret_cast<std::uint64_t>(pthread_self()));
  target.header().cpu_offset = static_cast<std::int32_t>(
      static_cast<std::int64_t>(reinterpret_cast<std::uint64_t>(&number)) - block);
  target.fire({});
  number = ~0u;  // not registered with the kernel
  target.fire({});
  const auto records = target.records();
  EXPECT_EQ(records[0].get<std::int64_t>(0), 77);
  EXPECT_EQ(records[0].header.cpu, 77u);
  EXPECT_LT(records[1].get<std::int64_t>(0), sysconf(_SC_NPROCESSORS_CONF));
}

// ---------------------------------------------------------------------------------------------
// threads and signals

Target* signalled_target = nullptr;
std::atomic<std::uint64_t> signal_fires{0};

void fire_in_handler(int) {
  signalled_target->fire({3});
  signal_fires.fetch_add(1, std::memory_order_relaxed);
}

// What a tracer does to a drained chain: adds it up and gives its chunks back.
void drain(Target& target, std::uint64_t epoch, std::map<std::uint64_t, std::uint64_t>& totals) {
  for (wire::Slot* slot : target.slots()) {
    for (auto& level : slot->levels) {
      const std::uint64_t entered = __atomic_load_n(&level.entered, __ATOMIC_ACQUIRE);
      if (entered != 0 && (entered & 1) == (epoch & 1)) continue;  // busy: next round
      std::uint32_t& chain = level.tables[epoch & 1];
      const std::uint32_t first = __atomic_load_n(&chain, __ATOMIC_ACQUIRE);
      if (first == 0) continue;
      target.read_chain(first,
                        [&](std::uint32_t, Words key, Words value) { totals[key[0]] += value[0]; });
      __atomic_store_n(&chain, 0, __ATOMIC_RELEASE);
      for (std::uint32_t at = first; at != 0;) {
        auto* next = reinterpret_cast<std::uint32_t*>(target.chunk(at - 1));
        const std::uint32_t after = *next;
        std::uint64_t seen = __atomic_load_n(&target.header().free_chunks, __ATOMIC_ACQUIRE);
        do {
          __atomic_store_n(next, wire::free_link(at - 1, static_cast<std::uint32_t>(seen)),
                           __ATOMIC_RELAXED);
        } while (!__atomic_compare_exchange_n(&target.header().free_chunks, &seen,
                                              ((seen >> 32) + 1) << 32 | at, false,
                                              __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
        at = after;
      }
    }
  }
}

// Two threads fire, signal handlers on them fire too, and the tables are flipped and drained all
// the while: every firing is found once.
TEST(Threads, TotalsAreExactUnderSignalsAndEpochFlips) {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) {
    GTEST_SKIP() << "membarrier(GLOBAL_EXPEDITED) is not offered here";
  }
  Program program;
  const auto direct = add_aggregation(program, AggregationKind::kCount);
  const auto keyed = add_aggregation(program, AggregationKind::kCount, {integer()});
  ClauseBuilder clause;
  const Reg key = clause.argument(0);
  clause.reserve();
  clause.aggregate(program, direct);
  clause.aggregate(program, keyed, plan::kNoReg, {{key, integer()}});
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  signalled_target = &target;
  signal_fires = 0;
  struct sigaction action{};
  action.sa_handler = fire_in_handler;
  ::sigaction(SIGUSR1, &action, nullptr);

  constexpr std::uint64_t kFires = 2'000'000;
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      trapline_test_loop(target.body(), &target.site(), kFires / 2, 1000, 0);
      trapline_test_loop(target.body(), &target.site(), kFires / 2, 2000, 0);
      --running;
      while (running.load() >= 0)
        std::this_thread::yield();  // stay, so that signals have someone to reach
    });
  }
  std::map<std::uint64_t, std::uint64_t> totals;
  std::uint64_t epoch = target.header().epoch;
  unsigned flips = 0;
  while (running.load() > 0) {
    for (auto& thread : threads) pthread_kill(thread.native_handle(), SIGUSR1);
    const std::uint64_t old = epoch++;
    __atomic_store_n(&target.header().epoch, epoch, __ATOMIC_RELEASE);
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    drain(target, old, totals);
    ++flips;
  }
  running = -1;
  for (auto& thread : threads) thread.join();
  for (int parity = 0; parity < 2; ++parity)
    drain(target, epoch + static_cast<unsigned>(parity), totals);
  EXPECT_GT(flips, 10u);
  EXPECT_EQ(totals[1000], kFires);
  EXPECT_EQ(totals[2000], kFires);
  EXPECT_EQ(totals[3], signal_fires.load());
  EXPECT_EQ(target.direct(direct), 2 * kFires + signal_fires.load());
  for (wire::Slot* slot : target.slots()) {
    EXPECT_EQ(slot->depth, 0u);
    EXPECT_EQ(slot->drops_aggregation + slot->drops_level, 0u);
  }
}

}  // namespace
}  // namespace trapline::codegen::test
