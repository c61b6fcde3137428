// What instructions compute: arithmetic, arguments, strings, memory, variables, arrays.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <random>
#include <thread>

#include "codegen/test_plan.h"
#include "codegen/test_target.h"

namespace trapline::codegen::test {
namespace {

using plan::AggregationKind;
using plan::Fault;
using plan::Program;
using plan::Scope;

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }
std::int64_t s(std::uint64_t value) { return static_cast<std::int64_t>(value); }

constexpr std::uint8_t kSizes[] = {1, 2, 4, 8};
const std::vector<BodyRequest> kOneBody = {{SiteKind::kEntry, {0}}};

// -------------------------------------------------------------------------------------------------------
// arithmetic

struct Operation {
  Op op;
  std::function<std::uint64_t(std::uint64_t, std::uint64_t)> compute;
};

TEST(Arithmetic, EveryOperationOnManyValues) {
  const std::vector<Operation> operations = {
      {Op::kAdd, [](auto a, auto b) { return a + b; }},
      {Op::kSub, [](auto a, auto b) { return a - b; }},
      {Op::kMul, [](auto a, auto b) { return a * b; }},
      {Op::kAnd, [](auto a, auto b) { return a & b; }},
      {Op::kOr, [](auto a, auto b) { return a | b; }},
      {Op::kXor, [](auto a, auto b) { return a ^ b; }},
      {Op::kShiftLeft, [](auto a, auto b) { return a << (b & 63); }},
      {Op::kShiftRight, [](auto a, auto b) { return a >> (b & 63); }},
      {Op::kShiftRightSigned, [](auto a, auto b) { return u(s(a) >> (b & 63)); }},
      {Op::kEqual, [](auto a, auto b) { return u(a == b); }},
      {Op::kNotEqual, [](auto a, auto b) { return u(a != b); }},
      {Op::kLess, [](auto a, auto b) { return u(s(a) < s(b)); }},
      {Op::kLessEqual, [](auto a, auto b) { return u(s(a) <= s(b)); }},
      {Op::kLessUnsigned, [](auto a, auto b) { return u(a < b); }},
      {Op::kLessEqualUnsigned, [](auto a, auto b) { return u(a <= b); }},
      {Op::kNegate, [](auto a, auto) { return 0 - a; }},
      {Op::kComplement, [](auto a, auto) { return ~a; }},
      {Op::kMove, [](auto a, auto) { return a; }},
  };
  Program program;
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  const Reg b = clause.argument(1);
  clause.reserve();
  for (const auto& operation : operations)
    clause.field(clause.binary(operation.op, a, b), integer());
  for (const std::uint8_t size : kSizes) {
    clause.field(clause.extend(a, size, true), integer());
    clause.field(clause.extend(a, size, false), integer());
  }
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);

  std::mt19937_64 random(3);
  std::vector<std::uint64_t> values = {
      0, 1, 2, 63, 64, ~std::uint64_t{0}, u(INT64_MIN), u(INT64_MAX), 0x80, 0x8000, 0x80000000};
  for (int i = 0; i < 10; ++i) values.push_back(random());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
  for (const auto left : values) {
    for (const auto right : values) {
      pairs.emplace_back(left, right);
      target.fire({left, right});
    }
  }
  const auto records = target.records();
  ASSERT_EQ(records.size(), pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [left, right] = pairs[i];
    for (std::size_t n = 0; n < operations.size(); ++n) {
      ASSERT_EQ(records[i].get<std::uint64_t>(n * 8), operations[n].compute(left, right))
          << "operation " << n << " of " << left << " and " << right;
    }
    const std::size_t extended = operations.size() * 8;
    EXPECT_EQ(records[i].get<std::int64_t>(extended), static_cast<std::int8_t>(left));
    EXPECT_EQ(records[i].get<std::uint64_t>(extended + 8), static_cast<std::uint8_t>(left));
    EXPECT_EQ(records[i].get<std::int64_t>(extended + 16), static_cast<std::int16_t>(left));
    EXPECT_EQ(records[i].get<std::uint64_t>(extended + 24), static_cast<std::uint16_t>(left));
    EXPECT_EQ(records[i].get<std::int64_t>(extended + 32), static_cast<std::int32_t>(left));
    EXPECT_EQ(records[i].get<std::uint64_t>(extended + 40), static_cast<std::uint32_t>(left));
    EXPECT_EQ(records[i].get<std::uint64_t>(extended + 48), left);
  }
}

TEST(Arithmetic, DivisionNeverFaultsTheProcessor) {
  Program program;
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  const Reg b = clause.argument(1);
  clause.reserve();
  for (const Op op : {Op::kDivSigned, Op::kRemSigned, Op::kDivUnsigned, Op::kRemUnsigned}) {
    clause.field(clause.binary(op, a, b), integer());
  }
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.fire({u(-7), 2});
  target.fire({u(INT64_MIN), u(-1)});
  target.fire({u(INT64_MIN), 0});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].get<std::int64_t>(0), -3);
  EXPECT_EQ(records[0].get<std::int64_t>(8), -1);
  EXPECT_EQ(records[0].get<std::uint64_t>(16), u(-7) / 2);
  EXPECT_EQ(records[0].get<std::uint64_t>(24), 1u);
  EXPECT_EQ(records[1].get<std::int64_t>(0), INT64_MIN);
  EXPECT_EQ(records[1].get<std::int64_t>(8), 0);
  EXPECT_EQ(records[2].header.kind, wire::kRecordFault);
}

TEST(Arithmetic, JumpsChooseBetweenValues) {
  Program program;
  ClauseBuilder clause;  // arg0 ? 10 : 20
  const Reg result = clause.reg();
  const auto choose = [&](std::int64_t value) {
    const Reg constant = clause.constant(value);
    auto& move = clause.emit(Op::kMove);
    move.a = constant;
    move.dst = result;
  };
  const Reg condition = clause.argument(0);
  clause.reserve();
  const std::size_t otherwise = clause.jump(Op::kJumpIfZero, condition);
  choose(10);
  const std::size_t done = clause.jump(Op::kJump);
  clause.land(otherwise);
  choose(20);
  clause.land(done);
  clause.field(result, integer());
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.fire({1});
  target.fire({0});
  EXPECT_EQ(target.records()[0].get<std::int64_t>(0), 10);
  EXPECT_EQ(target.records()[1].get<std::int64_t>(0), 20);
}

// --------------------------------------------------------------------------------------------------------
// arguments

TEST(Argument, TenOfAnEntryProbe) {
  Program program;
  ClauseBuilder clause;
  clause.reserve();
  for (int n = 0; n < 10; ++n) clause.field(clause.argument(n), integer());
  program.clauses.push_back(clause.done());
  Target target(program, {{SiteKind::kEntry, {0}}, {SiteKind::kReturn, {0}}});
  CallFrame frame = target.frame({100, 101, 102, 103, 104, 105});
  frame.stack = {0xdead, 106, 107, 108, 109};
  trapline_test_call(target.body(0), &target.site(), &frame);
  trapline_test_call(target.body(1), &target.site(), &frame);
  const auto records = target.records();
  ASSERT_EQ(records.size(), 2u);
  for (std::size_t n = 0; n < 10; ++n) EXPECT_EQ(records[0].get<std::uint64_t>(n * 8), 100 + n);
  EXPECT_EQ(records[1].get<std::uint64_t>(0), 0x42u);
  EXPECT_EQ(records[1].get<std::uint64_t>(8), 100u);
  for (std::size_t n = 2; n < 10; ++n) EXPECT_EQ(records[1].get<std::uint64_t>(n * 8), 0u);
}

TEST(Argument, TheTrampolinesPushesAreSteppedOver) {
  Program program;
  ClauseBuilder clause;
  clause.reserve();
  clause.field(clause.argument(6), integer());
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.site().stack_adjust = 16;
  CallFrame frame = target.frame({});
  frame.stack = {1, 2, 3, 4, 5};  // two words pushed, then the return address, then arg6
  trapline_test_call(target.body(), &target.site(), &frame);
  EXPECT_EQ(target.records()[0].get<std::uint64_t>(0), 4u);
}

// -------------------------------------------------------------------------------------------------
// strings and memory

TEST(Text, CompareLengthJoin) {
  Program program;
  program.strsize = 12;
  for (const char* constant : {"abc", "abd", "ab", "", "abcdefgh"}) add_string(program, constant);
  ClauseBuilder clause;
  clause.reserve();
  std::vector<std::int64_t> expected;
  const char* const constants[] = {"abc", "abd", "ab", "", "abcdefgh"};
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) {
      clause.field(clause.binary(Op::kCompareString, clause.string(a), clause.string(b)),
                   integer());
      const int order = std::strcmp(constants[a], constants[b]);
      expected.push_back(order < 0 ? -1 : order > 0);
    }
    clause.field(clause.unary(Op::kStringLength, clause.string(a)), integer());
    expected.push_back(static_cast<std::int64_t>(std::strlen(constants[a])));
  }
  clause.field(clause.join(clause.string(0), clause.string(4), 12), text(12));
  clause.field(clause.join(clause.string(3), clause.string(2), 12), text(12));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.fire({});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 1u);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(records[0].get<std::int64_t>(i * 8), expected[i]) << i;
  EXPECT_EQ(records[0].text(expected.size() * 8), "abcabcdefgh");
  EXPECT_EQ(records[0].text(expected.size() * 8 + 12), "ab");
}

// Two pages of which the second may be unreadable.
class Pages {
 public:
  Pages()
      : base_(static_cast<char*>(
            ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { ::munmap(base_, 8192); }
  char* end_of_first() const { return base_ + 4096; }
  void forbid_second() { ::mprotect(base_ + 4096, 4096, PROT_NONE); }

 private:
  char* base_;
};

TEST(CopyIn, StringsEndAtTheirNulEvenBeforeABadPage) {
  Program program;
  program.strsize = 64;
  ClauseBuilder clause;
  const Reg copied = clause.copy_in_string(clause.argument(0), plan::kNoReg, 64);
  const Reg limited = clause.copy_in_string(clause.argument(0), clause.argument(1), 64);
  clause.reserve();
  clause.field(copied, text(64));
  clause.field(limited, text(64));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  Pages pages;
  char* text_at = pages.end_of_first() - 6;
  std::strcpy(text_at, "over the edge");
  target.fire({reinterpret_cast<std::uint64_t>(text_at), 5});
  target.fire({reinterpret_cast<std::uint64_t>(text_at), 1});
  pages.forbid_second();
  target.fire({reinterpret_cast<std::uint64_t>(text_at), 5});
  std::memcpy(text_at, "edge\0", 6);
  target.fire({reinterpret_cast<std::uint64_t>(text_at), 1000});
  target.fire({reinterpret_cast<std::uint64_t>(text_at), 0});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].text(0), "over the edge");
  EXPECT_EQ(records[0].text(64), "over");
  EXPECT_EQ(records[1].text(64), "");
  EXPECT_EQ(records[2].header.kind, wire::kRecordFault);
  EXPECT_EQ(records[2].get<wire::FaultPayload>(0).fault,
            static_cast<std::uint32_t>(Fault::kBadAddress));
  EXPECT_EQ(records[3].text(0), "edge");
  EXPECT_EQ(records[3].text(64), "edge");
  EXPECT_EQ(records[4].header.kind, wire::kRecordFault);
}

TEST(CopyIn, BytesAreReadThroughAndScratchIsBounded) {
  Program program;
  program.scratchsize = 64;
  ClauseBuilder clause;
  const Reg size = clause.argument(1);
  const Reg copied = clause.binary(Op::kCopyIn, clause.argument(0), size);
  const Reg again = clause.binary(Op::kCopyIn, copied, clause.constant(8));
  const Reg second =
      clause.load_memory(clause.binary(Op::kAdd, again, clause.constant(4)), 4, false);
  clause.reserve();
  clause.field(second, integer());
  clause.field(copied, bytes(8));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  const std::uint32_t words[] = {11, 22, 33, 44};
  target.fire({reinterpret_cast<std::uint64_t>(words), 16});
  target.fire({reinterpret_cast<std::uint64_t>(words), 65});
  target.fire({reinterpret_cast<std::uint64_t>(words), u(-1)});
  target.fire({reinterpret_cast<std::uint64_t>(words), 57});  // leaves no room for the second copy
  target.fire({8, 16});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].get<std::uint64_t>(0), 22u);
  EXPECT_EQ(records[0].get<std::uint32_t>(8), 11u);
  for (const std::size_t i : {1u, 2u, 3u}) {
    EXPECT_EQ(records[i].get<wire::FaultPayload>(0).fault,
              static_cast<std::uint32_t>(Fault::kNoScratch))
        << i;
  }
  EXPECT_EQ(records[4].get<wire::FaultPayload>(0).fault,
            static_cast<std::uint32_t>(Fault::kBadAddress));
  EXPECT_EQ(records[4].get<wire::FaultPayload>(0).address, 8u);
}

TEST(LoadMemory, ExtendsEverySize) {
  Program program;
  ClauseBuilder clause;
  const Reg address = clause.argument(0);
  clause.reserve();
  for (const std::uint8_t size : kSizes) {
    clause.field(clause.load_memory(address, size, true), integer());
    clause.field(clause.load_memory(address, size, false), integer());
  }
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  const std::uint64_t memory = 0xf1f2f3f4f5f6f7f8;
  target.fire({reinterpret_cast<std::uint64_t>(&memory)});
  std::memcpy(target.globals(), &memory, 8);  // the arena itself is read without a system call
  target.fire({reinterpret_cast<std::uint64_t>(target.globals())});
  const auto records = target.records();
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ(records[i].get<std::uint64_t>(0), 0xfffffffffffffff8u);
    EXPECT_EQ(records[i].get<std::uint64_t>(8), 0xf8u);
    EXPECT_EQ(records[i].get<std::uint64_t>(16), 0xfffffffffffff7f8u);
    EXPECT_EQ(records[i].get<std::uint64_t>(24), 0xf7f8u);
    EXPECT_EQ(records[i].get<std::uint64_t>(32), 0xfffffffff5f6f7f8u);
    EXPECT_EQ(records[i].get<std::uint64_t>(40), 0xf5f6f7f8u);
    EXPECT_EQ(records[i].get<std::uint64_t>(48), memory);
    EXPECT_EQ(records[i].get<std::uint64_t>(56), memory);
  }
}

// --------------------------------------------------------------------------------------------------------
// variables

TEST(Variable, GlobalsAndThisOfEverySize) {
  Program program;
  add_string(program, "kept");
  const auto small = add_variable(program, Scope::kGlobal, integer(1));
  const auto words = add_variable(program, Scope::kGlobal, text(16));
  const auto local = add_variable(program, Scope::kThis, integer(2, false));
  const auto local_text = add_variable(program, Scope::kThis, text(16));
  ClauseBuilder first;
  first.reserve();
  first.field(first.load(local), integer());
  first.field(first.binary(Op::kCompareString, first.load(local_text), first.constant(0)),
              integer());
  first.store(small, first.argument(0));
  first.store(words, first.string(0));
  first.store(local, first.argument(0));
  first.store(local_text, first.string(0));
  program.clauses.push_back(first.done());
  ClauseBuilder second;  // sees what the first clause of the same firing left
  second.reserve();
  second.field(second.load(small), integer());
  second.field(second.load(words), text(16));
  second.field(second.load(local), integer());
  second.field(second.load(local_text), text(16));
  program.clauses.push_back(second.done());
  Target target(program, {{SiteKind::kEntry, {0, 1}}});
  target.fire({0x1ffff});
  target.fire({0x1ffff});
  const auto records = target.records();
  ASSERT_EQ(records.size(), 4u);
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_EQ(records[i].get<std::int64_t>(0), 0);
    EXPECT_EQ(records[i].get<std::int64_t>(8), 0);  // NULL
    EXPECT_EQ(records[i + 1].get<std::int64_t>(0), -1);
    EXPECT_EQ(records[i + 1].text(8), "kept");
    EXPECT_EQ(records[i + 1].get<std::int64_t>(24), 0xffff);
    EXPECT_EQ(records[i + 1].text(32), "kept");
  }
}

TEST(Variable, SelfBelongsToAThreadAndEndsWithIt) {
  Program program;
  const auto self = add_variable(program, Scope::kSelf, integer());
  ClauseBuilder clause;
  clause.reserve();
  clause.field(clause.load(self), integer());
  clause.store(self, clause.argument(0));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.fire({1});
  target.fire({2});
  std::thread([&] {
    target.fire({10});
    target.fire({11});
  }).join();
  // Another thread with the same control block.
  for (wire::Slot* slot : target.slots()) slot->tid += 1;
  target.fire({3});
  target.fire({4});
  std::map<std::uint32_t, std::vector<std::int64_t>> seen;
  for (const auto& record : target.records())
    seen[record.header.tid].push_back(record.get<std::int64_t>(0));
  ASSERT_EQ(seen.size(), 2u);
  for (const auto& [tid, values] : seen) {
    if (tid == static_cast<std::uint32_t>(::syscall(SYS_gettid))) {
      EXPECT_EQ(values, (std::vector<std::int64_t>{0, 1, 0, 3}));
    } else {
      EXPECT_EQ(values, (std::vector<std::int64_t>{0, 10}));
    }
  }
}

TEST(Variable, TheIdComesFromTheKernelWhereItsPlaceIsUnknown) {
  Program program;
  const auto self = add_variable(program, Scope::kSelf, integer());
  ClauseBuilder clause;
  clause.reserve();
  clause.field(clause.load(self), integer());
  clause.store(self, clause.argument(0));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  target.header().tid_offset = 0;
  target.fire({5});
  target.fire({6});
  EXPECT_EQ(target.records()[1].get<std::int64_t>(0), 5);
  EXPECT_EQ(target.records()[1].header.tid, static_cast<std::uint32_t>(::syscall(SYS_gettid)));
}

TEST(Array, StoresLoadsAndRemoves) {
  Program program;
  add_string(program, "value");
  const auto numbers = add_array(program, Scope::kGlobal, integer(4), {integer(), text()});
  const auto texts = add_array(program, Scope::kGlobal, text(), {integer()});
  const auto own = add_array(program, Scope::kSelf, integer(), {integer()});
  ClauseBuilder clause;
  const Reg key = clause.argument(0);
  const Reg value = clause.argument(1);
  const Reg name = clause.builtin(plan::Builtin::kProbeFunction);
  clause.reserve();
  clause.field(clause.load_element(program, numbers, {{key, integer()}, {name, text()}}),
               integer());
  // What was never stored is NULL, which cannot be recorded.
  const Reg word_or_null = clause.load_element(program, texts, {{key, integer()}});
  clause.field(clause.binary(Op::kCompareString, word_or_null, clause.string(0)), integer());
  clause.field(clause.load_element(program, own, {{key, integer()}}), integer());
  clause.store_element(program, numbers, {{key, integer()}, {name, text()}}, value);
  clause.store_element(program, texts, {{key, integer()}}, clause.string(0));
  clause.store_element(program, own, {{key, integer()}}, value);
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody, {.buffer_bytes = 4 << 20, .dynvarsize = 256 << 10});
  target.fire({1, 0x1fffffffe});  // stored as -2 in 4 bytes
  target.fire({2, 7});
  target.fire({1, 0});  // removes
  target.fire({1, 5});
  std::thread([&] { target.fire({2, 9}); }).join();
  const auto& fields = target.program().clauses[0].fields;
  std::vector<std::int64_t> number, mine;
  std::vector<std::int64_t> word;
  const auto main_thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  for (const auto& record : target.records()) {
    if (record.header.tid != main_thread) {
      EXPECT_EQ(record.get<std::int64_t>(fields[0].offset), 7);
      EXPECT_EQ(record.get<std::int64_t>(fields[2].offset), 0);  // self arrays are a thread's own
      continue;
    }
    number.push_back(record.get<std::int64_t>(fields[0].offset));
    word.push_back(record.get<std::int64_t>(fields[1].offset));
    mine.push_back(record.get<std::int64_t>(fields[2].offset));
  }
  EXPECT_EQ(number, (std::vector<std::int64_t>{0, 0, -2, 0}));
  EXPECT_EQ(word, (std::vector<std::int64_t>{-1, -1, 0, 0}));
  EXPECT_EQ(mine, (std::vector<std::int64_t>{0, 0, 0x1fffffffe, 0}));
  for (wire::Slot* slot : target.slots()) EXPECT_EQ(slot->drops_dynamic, 0u);
}

TEST(Array, AFullOneCountsDrops) {
  Program program;
  const auto array = add_array(program, Scope::kGlobal, integer(), {integer()});
  ClauseBuilder clause;
  const Reg key = clause.argument(0);
  clause.reserve();
  clause.store_element(program, array, {{key, integer()}}, clause.constant(1));
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody, {.buffer_bytes = 4 << 20, .dynvarsize = 0});
  const std::uint32_t cells = target.program().variables[array].capacity;
  for (std::uint64_t i = 0; i < cells + 10; ++i) target.fire({i});
  EXPECT_EQ(target.slots()[0]->drops_dynamic, 10u);
}

TEST(Array, TwoThreadsShareOne) {
  Program program;
  const auto array = add_array(program, Scope::kGlobal, integer(), {integer()});
  const auto wrong = add_aggregation(program, AggregationKind::kCount);
  ClauseBuilder clause;  // a[k] is 0 or k + 1000; the second argument says store or remove
  const Reg key = clause.binary(Op::kAnd, clause.argument(0), clause.constant(15));
  const Reg bit = clause.binary(
      Op::kAnd, clause.binary(Op::kShiftRight, clause.argument(0), clause.constant(4)),
      clause.constant(1));
  const Reg good = clause.binary(Op::kAdd, key, clause.constant(1000));
  const Reg found = clause.load_element(program, array, {{key, integer()}});
  clause.store_element(program, array, {{key, integer()}}, clause.binary(Op::kMul, bit, good));
  const Reg bad = clause.binary(Op::kAnd, clause.binary(Op::kNotEqual, found, good),
                                clause.binary(Op::kNotEqual, found, clause.constant(0)));
  clause.predicate(bad);
  clause.reserve();
  clause.aggregate(program, wrong);
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back(
        [&, t] { trapline_test_loop(target.body(), &target.site(), 300000, t * 7, 2 * t + 1); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(target.direct(wrong), 0u);
}

}  // namespace
}  // namespace trapline::codegen::test
