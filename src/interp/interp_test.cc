#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "interp/arithmetic.h"
#include "interp/environment.h"
#include "interp/run.h"
#include "plan/layout.h"
#include "wire/dynvar.h"
#include "wire/key.h"

namespace trapline::interp {
namespace {

using plan::Fault;
using plan::Instruction;
using plan::Op;
using plan::ValueKind;
using plan::ValueType;
using testing::ElementsAre;

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

ValueType integer(std::uint32_t size = 8, bool is_signed = true) {
  return {ValueKind::kInteger, is_signed, size};
}
ValueType string(std::uint32_t size = 256) { return {ValueKind::kString, false, size}; }

// Target memory as pages, and a log of everything a clause does.
class FakeWorld : public Environment {
 public:
  std::optional<std::uint64_t> argument(unsigned n) override {
    if (n == 9) return std::nullopt;
    return 100 + n;
  }
  std::uint64_t builtin(plan::Builtin which) override {
    return 1000 + static_cast<std::uint64_t>(which);
  }
  std::uint64_t epid(std::uint32_t clause) override { return 7000 + clause; }
  std::string_view builtin_string(plan::Builtin) override { return name; }
  std::span<std::byte> globals() override {
    return std::as_writable_bytes(std::span(globals_words));
  }
  std::span<std::byte> self_area() override {
    return std::as_writable_bytes(std::span(self_words));
  }
  std::uint64_t thread_key() override { return tid; }
  bool read_target(RemoteAddr address, std::span<std::byte> out) override {
    const std::uint64_t at = address.value();
    if (at < base || at + out.size() > base + memory.size()) return false;
    std::memcpy(out.data(), memory.data() + (at - base), out.size());
    return true;
  }
  bool write_target(RemoteAddr address, std::span<const std::byte> bytes) override {
    const std::uint64_t at = address.value();
    if (at < base || at + bytes.size() > base + memory.size()) return false;
    std::memcpy(memory.data() + (at - base), bytes.data(), bytes.size());
    return true;
  }
  bool is_progeny_of(std::int64_t pid) override { return pid == 1; }
  bool raise(int signal) override {
    log.push_back("raise " + std::to_string(signal));
    return may_raise;
  }
  bool may_raise = true;
  std::optional<std::uint64_t> user_stack(plan::Builtin which) override {
    if (which == plan::Builtin::kUserCaller) return 77;
    return std::nullopt;
  }
  std::optional<std::uint64_t> user_register(plan::UserRegister which) override {
    if (which == plan::UserRegister::kRip) return 0x401000;
    return std::nullopt;
  }
  void chill(std::chrono::nanoseconds time) override {
    log.push_back("chill " + std::to_string(time.count()));
  }
  void aggregate(std::uint32_t aggregation, std::span<const std::uint64_t> key, std::int64_t value,
                 std::int64_t weight) override {
    std::string line = "@" + std::to_string(aggregation) + "[";
    for (const auto word : key) line += std::to_string(word) + " ";
    log.push_back(line + "] " + std::to_string(value) + " " + std::to_string(weight));
  }
  bool reserve(std::uint32_t) override { return has_room; }
  void commit(std::uint32_t clause, std::span<const std::byte> payload,
              std::uint32_t speculation) override {
    committed[clause].assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    log.push_back("commit " + std::to_string(clause) +
                  (speculation != 0 ? " speculation " + std::to_string(speculation) : ""));
  }
  void fault(std::uint32_t, Fault fault, std::uint32_t instruction,
             std::uint64_t address) override {
    log.push_back("fault " + std::to_string(static_cast<int>(fault)) + " at " +
                  std::to_string(instruction));
    fault_address = address;
  }
  void exit(std::int64_t status) override { log.push_back("exit " + std::to_string(status)); }
  void dynamic_drop() override { log.push_back("dynamic drop"); }
  void aggregation_drop() override { log.push_back("aggregation drop"); }
  void speculation_drop() override { log.push_back("speculation drop"); }

  std::string name = "main";
  std::uint64_t base = 0x10000;
  std::string memory;
  std::vector<std::uint64_t> globals_words = std::vector<std::uint64_t>(4096);
  std::vector<std::uint64_t> self_words = std::vector<std::uint64_t>(64);
  std::uint64_t tid = 7;
  bool has_room = true;
  std::vector<std::string> log;
  std::map<std::uint32_t, std::string> committed;
  std::uint64_t fault_address = 0;
};

// One clause under construction. Registers are handed out one an instruction.
class Builder {
 public:
  Builder() { program.clauses.emplace_back(); }

  plan::Reg emit(Op op, plan::Reg a = plan::kNoReg, plan::Reg b = plan::kNoReg,
                 std::int64_t immediate = 0) {
    Instruction in;
    in.op = op;
    in.dst = clause().register_count++;
    in.a = a;
    in.b = b;
    in.immediate = immediate;
    clause().code.push_back(in);
    return in.dst;
  }
  plan::Reg constant(std::int64_t value) {
    return emit(Op::kConst, plan::kNoReg, plan::kNoReg, value);
  }
  plan::Reg text(const std::string& value) {
    program.strings.push_back(value);
    return emit(Op::kString, plan::kNoReg, plan::kNoReg,
                static_cast<std::int64_t>(program.strings.size() - 1));
  }
  Instruction& last() { return clause().code.back(); }
  plan::Clause& clause() { return program.clauses.back(); }
  void field(plan::Reg value, ValueType type) {
    clause().has_record = true;
    clause().fields.push_back({clause().record_size, type});
    clause().record_size += (type.size + 7) / 8 * 8;
    emit(Op::kField, value, plan::kNoReg, static_cast<std::int64_t>(clause().fields.size() - 1));
  }
  std::uint32_t variable(plan::Scope scope, ValueType type) {
    auto& size = scope == plan::Scope::kGlobal ? program.globals_size
                 : scope == plan::Scope::kSelf ? program.self_size
                                               : program.this_size;
    plan::Variable variable;
    variable.scope = scope;
    variable.type = type;
    variable.offset = size;
    program.variables.push_back(variable);
    size += static_cast<std::uint32_t>(plan::storage_size(type));
    return static_cast<std::uint32_t>(program.variables.size() - 1);
  }
  std::uint32_t array(plan::Scope scope, ValueType type, std::vector<ValueType> keys) {
    plan::Variable variable;
    variable.scope = scope;
    variable.type = type;
    variable.is_array = true;
    variable.keys = std::move(keys);
    variable.offset = program.globals_size;
    variable.capacity = 16;
    variable.cell_size =
        wire::dynvar_cell_size(64, static_cast<std::uint32_t>(plan::stored_size(type)));
    program.globals_size += variable.capacity * variable.cell_size;
    program.variables.push_back(variable);
    return static_cast<std::uint32_t>(program.variables.size() - 1);
  }
  plan::Reg load(std::uint32_t variable) {
    const plan::Reg out = emit(Op::kLoad);
    last().variable = variable;
    return out;
  }
  void store(std::uint32_t variable, plan::Reg value) {
    emit(Op::kStore, value);
    last().variable = variable;
  }
  plan::Reg element(Op op, std::uint32_t variable, std::vector<plan::Operand> key,
                    plan::Reg value = plan::kNoReg) {
    const plan::Reg out = emit(op, value);
    last().variable = variable;
    last().operands = std::move(key);
    return out;
  }
  Outcome run(FakeWorld& world) {
    if (clause().code.empty() || clause().code.back().op != Op::kEnd) emit(Op::kEnd);
    ThisArea area(program);
    area.begin_firing();
    return interp::run(program, 0, world, area);
  }

  plan::Program program;
};

std::uint64_t word(const FakeWorld& world, std::size_t offset = 0) {
  std::uint64_t out = 0;
  const auto found = world.committed.find(0);
  if (found == world.committed.end() || found->second.size() < offset + 8) {
    ADD_FAILURE() << "no such field";
    return 0;
  }
  std::memcpy(&out, found->second.data() + offset, 8);
  return out;
}

std::string text_field(const FakeWorld& world, std::size_t offset = 0) {
  const auto found = world.committed.find(0);
  return found == world.committed.end() ? "(none)" : std::string(found->second.c_str() + offset);
}

// Evaluates `op` over two constants through a whole clause.
std::uint64_t evaluate(Op op, std::int64_t a, std::int64_t b) {
  Builder build;
  build.emit(Op::kReserve);
  const auto result = build.emit(op, build.constant(a), build.constant(b));
  build.field(result, integer());
  FakeWorld world;
  EXPECT_EQ(build.run(world), Outcome::kDone);
  return word(world);
}

TEST(Arithmetic, WrapsAndKeepsSigns) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  EXPECT_EQ(evaluate(Op::kAdd, std::numeric_limits<std::int64_t>::max(), 1), u(kMin));
  EXPECT_EQ(evaluate(Op::kSub, kMin, 1), u(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(evaluate(Op::kMul, -3, 5), u(-15));
  EXPECT_EQ(evaluate(Op::kDivSigned, -7, 2), u(-3));
  EXPECT_EQ(evaluate(Op::kRemSigned, -7, 2), u(-1));
  EXPECT_EQ(evaluate(Op::kDivUnsigned, -7, 2), u(-7) / 2);
  EXPECT_EQ(evaluate(Op::kDivSigned, kMin, -1), u(kMin));
  EXPECT_EQ(evaluate(Op::kRemSigned, kMin, -1), 0u);
  EXPECT_EQ(evaluate(Op::kShiftLeft, 1, 65), 2u);
  EXPECT_EQ(evaluate(Op::kShiftRight, -1, 63), 1u);
  EXPECT_EQ(evaluate(Op::kShiftRightSigned, -8, 1), u(-4));
  EXPECT_EQ(evaluate(Op::kLess, -1, 1), 1u);
  EXPECT_EQ(evaluate(Op::kLessUnsigned, -1, 1), 0u);
  EXPECT_EQ(evaluate(Op::kLessEqual, 2, 2), 1u);
  EXPECT_EQ(evaluate(Op::kNotEqual, 2, 2), 0u);
  EXPECT_EQ(evaluate(Op::kNegate, 5, 0), u(-5));
  EXPECT_EQ(evaluate(Op::kComplement, 0, 0), ~std::uint64_t{0});
}

TEST(Arithmetic, ExtendsBySignedness) {
  EXPECT_EQ(extend(0x1ff, 1, true), ~std::uint64_t{0});
  EXPECT_EQ(extend(0x1ff, 1, false), 0xffu);
  EXPECT_EQ(extend(0x80000000, 4, true), 0xffffffff80000000u);
  EXPECT_EQ(extend(0x8000, 2, false), 0x8000u);
  EXPECT_EQ(extend(~std::uint64_t{0}, 8, false), ~std::uint64_t{0});
}

TEST(Run, DivisionByZeroIsAFaultThatThrowsTheRecordAway) {
  Builder build;
  build.emit(Op::kReserve);
  const auto bad = build.emit(Op::kRemUnsigned, build.constant(1), build.constant(0));
  build.field(bad, integer());
  FakeWorld world;
  EXPECT_EQ(build.run(world), Outcome::kFault);
  EXPECT_THAT(world.log, ElementsAre("fault 4 at 3"));
}

TEST(Run, RegistersOfUserModeThatAreNotKnownAreFaults) {
  const auto run = [](plan::UserRegister which, FakeWorld& world) {
    Builder build;
    build.emit(Op::kReserve);
    const auto value =
        build.emit(Op::kRegister, plan::kNoReg, plan::kNoReg, static_cast<std::int64_t>(which));
    build.field(value, integer());
    return build.run(world);
  };
  FakeWorld known;
  EXPECT_EQ(run(plan::UserRegister::kRip, known), Outcome::kDone);
  EXPECT_EQ(word(known), 0x401000u);
  FakeWorld unknown;
  EXPECT_EQ(run(plan::UserRegister::kTrap, unknown), Outcome::kFault);
  EXPECT_THAT(unknown.log, ElementsAre("fault 3 at 1"));
}

TEST(Run, FramesThatAreNotKnownAreBadStacks) {
  const auto run = [](plan::Builtin which, FakeWorld& world) {
    Builder build;
    build.emit(Op::kReserve);
    const auto value =
        build.emit(Op::kBuiltin, plan::kNoReg, plan::kNoReg, static_cast<std::int64_t>(which));
    build.field(value, integer());
    return build.run(world);
  };
  FakeWorld known;
  EXPECT_EQ(run(plan::Builtin::kUserCaller, known), Outcome::kDone);
  EXPECT_EQ(word(known), 77u);
  FakeWorld unknown;
  EXPECT_EQ(run(plan::Builtin::kUserStackDepth, unknown), Outcome::kFault);
  EXPECT_THAT(unknown.log, ElementsAre("fault 9 at 1"));
}

TEST(Run, AnArgumentThatCannotBeReadIsAFault) {
  const auto run = [](std::int64_t number, FakeWorld& world) {
    Builder build;
    build.emit(Op::kReserve);
    const auto value = build.emit(Op::kArgument, plan::kNoReg, plan::kNoReg, number);
    build.field(value, integer());
    return build.run(world);
  };
  FakeWorld readable;
  EXPECT_EQ(run(8, readable), Outcome::kDone);
  EXPECT_EQ(word(readable), 108u);
  FakeWorld unreadable;
  EXPECT_EQ(run(9, unreadable), Outcome::kFault);
  EXPECT_THAT(unreadable.log, ElementsAre("fault 1 at 1"));
}

TEST(Run, ASignalThatMayNotBeSentIsAFault) {
  Builder build;
  build.emit(Op::kRaise, build.constant(10));
  FakeWorld world;
  world.may_raise = false;
  EXPECT_EQ(build.run(world), Outcome::kFault);
  EXPECT_THAT(world.log, ElementsAre("raise 10", "fault 7 at 1"));
}

TEST(Run, PredicateDecidesBeforeReserve) {
  Builder build;
  build.emit(Op::kJumpIfNotZero, build.emit(Op::kEqual, build.constant(1), build.constant(2)));
  build.last().target = 5;
  build.emit(Op::kEnd);
  build.emit(Op::kReserve);
  build.emit(Op::kEnd);
  FakeWorld world;
  EXPECT_EQ(build.run(world), Outcome::kPredicateFalse);
  EXPECT_THAT(world.log, testing::IsEmpty());
}

TEST(Run, NoRoomEndsTheClauseBeforeAnyEffect) {
  Builder build;
  build.emit(Op::kReserve);
  build.emit(Op::kExit, build.constant(3));
  build.clause().has_record = true;
  FakeWorld world;
  world.has_room = false;
  EXPECT_EQ(build.run(world), Outcome::kDropped);
  EXPECT_THAT(world.log, testing::IsEmpty());
}

TEST(Run, ExitGoesOnToTheEndAndStopsLaterClauses) {
  Builder build;
  build.emit(Op::kReserve);
  build.emit(Op::kExit, build.constant(3));
  build.field(build.constant(3), integer(4));
  build.emit(Op::kEnd);
  build.program.clauses.push_back(build.program.clauses.front());
  FakeWorld world;
  ThisArea area(build.program);
  EXPECT_EQ(run_firing(build.program, std::vector<std::uint32_t>{0, 1}, world, area),
            Outcome::kExit);
  EXPECT_THAT(world.log, ElementsAre("commit 0", "exit 3"));
}

TEST(Run, BackwardJumpsAndMissingEndsAreRefused) {
  Builder build;
  build.constant(1);
  build.emit(Op::kJump);
  build.last().target = 0;
  FakeWorld world;
  EXPECT_EQ(build.run(world), Outcome::kFault);
  EXPECT_THAT(world.log, ElementsAre("fault 3 at 1"));

  plan::Program program;
  program.clauses.emplace_back();
  ThisArea area(program);
  EXPECT_EQ(run(program, 0, world, area), Outcome::kFault);
}

TEST(Variables, AreKeptInTheirScopeByTheirType) {
  Builder build;
  const auto global = build.variable(plan::Scope::kGlobal, integer(2, true));
  const auto self = build.variable(plan::Scope::kSelf, integer(4, false));
  const auto local = build.variable(plan::Scope::kThis, string(8));
  build.clause().scratch_size = build.program.this_size;
  build.emit(Op::kReserve);
  build.store(global, build.constant(0x1ffff));
  build.store(self, build.constant(-1));
  build.store(local, build.text("longer than eight"));
  build.field(build.load(global), integer());
  build.field(build.load(self), integer());
  build.field(build.load(local), string(16));
  FakeWorld world;
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_EQ(word(world), ~std::uint64_t{0});
  EXPECT_EQ(word(world, 8), 0xffffffffu);
  EXPECT_EQ(text_field(world, 16), "longer ");
  EXPECT_EQ(world.globals_words[0], 0xffffu);
}

TEST(Variables, ThisStartsAtZeroEachFiringAndLastsFromClauseToClause) {
  Builder build;
  const auto local = build.variable(plan::Scope::kThis, integer());
  build.clause().scratch_size = build.program.this_size;
  build.emit(Op::kReserve);
  build.store(local, build.emit(Op::kAdd, build.load(local), build.constant(1)));
  build.field(build.load(local), integer());
  build.emit(Op::kEnd);
  build.program.clauses.push_back(build.program.clauses.front());
  FakeWorld world;
  ThisArea area(build.program);
  for (int firing = 0; firing < 2; ++firing) {
    run_firing(build.program, std::vector<std::uint32_t>{0, 1}, world, area);
    EXPECT_EQ(world.committed[0][0], 1);
    EXPECT_EQ(world.committed[1][0], 2);
  }
}

TEST(Arrays, KeepElementsByTupleAndRemoveOnZero) {
  Builder build;
  const auto array = build.array(plan::Scope::kGlobal, integer(), {string(), integer(1)});
  build.emit(Op::kReserve);
  const std::vector<plan::Operand> key{{build.text("abc"), string()},
                                       {build.constant(255), integer(1)}};
  // (char)255 and -1 are one key.
  const std::vector<plan::Operand> same{{build.text("abc"), string()},
                                        {build.constant(-1), integer(1)}};
  build.element(Op::kStoreElement, array, key, build.constant(41));
  build.field(build.element(Op::kLoadElement, array, same), integer());
  build.element(Op::kStoreElement, array, same, build.constant(0));
  build.field(build.element(Op::kLoadElement, array, key), integer());
  FakeWorld world;
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_EQ(word(world), 41u);
  EXPECT_EQ(word(world, 8), 0u);
}

TEST(Arrays, AreSharedWithTheBodiesThroughTheWireFormat) {
  Builder build;
  const auto array = build.array(plan::Scope::kSelf, string(32), {integer()});
  build.emit(Op::kReserve);
  build.field(build.element(Op::kLoadElement, array, {{build.constant(5), integer()}}), string(32));
  FakeWorld world;
  const auto& variable = build.program.variables[array];
  const wire::DynvarTable table{reinterpret_cast<unsigned char*>(world.globals().data()),
                                variable.capacity, variable.cell_size, variable.type.size + 1};
  const std::uint64_t key[] = {world.tid, 5};
  const char text[33] = "\1from a body";
  ASSERT_EQ(
      wire::dynvar_store(table, {key, 2, wire::hash_key(key, 2, 0)}, text, wire::DynvarForm::kText),
      wire::DynvarResult::kDone);
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_EQ(text_field(world), "from a body");
  world.tid = 8;  // what was never stored is NULL, and NULL cannot be printed
  ASSERT_EQ(build.run(world), Outcome::kFault);
  EXPECT_THAT(world.log, ElementsAre("commit 0", "fault 1 at 3"));
}

TEST(Arrays, CountADropWhenFull) {
  FakeWorld world;
  Builder build;
  const auto array = build.array(plan::Scope::kGlobal, integer(), {integer()});
  build.emit(Op::kReserve);
  for (int i = 0; i < 17; ++i) {
    build.element(Op::kStoreElement, array, {{build.constant(i), integer()}}, build.constant(1));
  }
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_THAT(world.log, ElementsAre("dynamic drop"));
}

TEST(Aggregations, HandOverKeysInWireForm) {
  Builder build;
  build.program.aggregations.resize(2);
  build.emit(Op::kReserve);
  build.emit(Op::kAggregate);
  build.last().variable = 0;
  const std::vector<plan::Operand> key{{build.text("abcdefghi"), string()},
                                       {build.constant(-1), integer(4, false)}};
  build.emit(Op::kAggregate, build.constant(-5), build.constant(3));
  build.last().variable = 1;
  build.last().operands = key;
  FakeWorld world;
  ASSERT_EQ(build.run(world), Outcome::kDone);
  std::uint64_t first;
  std::memcpy(&first, "abcdefgh", 8);
  EXPECT_THAT(world.log,
              ElementsAre("@0[] 1 1", "@1[9 " + std::to_string(first) + " 105 4294967295 ] -5 3"));
}

TEST(Aggregations, TooLongAKeyIsADrop) {
  Builder build;
  build.program.aggregations.resize(1);
  build.program.strsize = 10000;
  build.emit(Op::kReserve);
  const auto text = build.text(std::string(9000, 'x'));
  build.emit(Op::kAggregate);
  build.last().variable = 0;
  build.last().operands = {{text, string(10000)}};
  FakeWorld world;
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_THAT(world.log, ElementsAre("aggregation drop"));
}

TEST(Strings, CompareJoinAndMeasure) {
  Builder build;
  build.clause().scratch_size = 16;
  build.program.strsize = 16;
  build.emit(Op::kReserve);
  const auto a = build.text("abc");
  const auto b = build.text("ab\xff");
  build.field(build.emit(Op::kCompareString, a, b), integer());
  build.field(build.emit(Op::kCompareString, b, a), integer());
  build.field(build.emit(Op::kCompareString, a, build.text("abc")), integer());
  build.field(build.emit(Op::kStringLength, a), integer());
  const auto joined = build.emit(Op::kStringJoin, a, build.text("0123456789abcdef"));
  build.last().scratch = 0;
  build.field(joined, string(32));
  build.field(build.emit(Op::kBuiltin, plan::kNoReg, plan::kNoReg,
                         static_cast<std::int64_t>(plan::Builtin::kProbeName)),
              string(16));
  FakeWorld world;
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_EQ(word(world), ~std::uint64_t{0});
  EXPECT_EQ(word(world, 8), 1u);
  EXPECT_EQ(word(world, 16), 0u);
  EXPECT_EQ(word(world, 24), 3u);
  EXPECT_EQ(text_field(world, 32), "abc0123456789ab");
  EXPECT_EQ(text_field(world, 64), "main");
}

TEST(Memory, LoadsFromTheTargetAndFaultsOnWhatIsNotThere) {
  FakeWorld world;
  world.memory = std::string("\xfe\xff\xff\xff rest", 9);
  Builder build;
  build.emit(Op::kReserve);
  build.field(build.emit(Op::kLoadMemory, build.constant(0x10000)), integer());
  build.clause().code[2].size = 4;
  build.clause().code[2].is_signed = true;
  build.emit(Op::kLoadMemory, build.constant(0xdead));
  ASSERT_EQ(build.run(world), Outcome::kFault);
  EXPECT_EQ(world.fault_address, 0xdeadu);
  EXPECT_THAT(world.log, ElementsAre("fault 1 at 5"));
}

TEST(Memory, CopiesIntoScratchThatLoadsReadDirectly) {
  FakeWorld world;
  world.memory = "0123456789";
  Builder build;
  build.program.scratchsize = 16;
  build.emit(Op::kReserve);
  const auto copy = build.emit(Op::kCopyIn, build.constant(0x10002), build.constant(8));
  build.emit(Op::kLoadMemory, build.emit(Op::kAdd, copy, build.constant(1)));
  build.last().size = 1;
  build.field(build.last().dst, integer());
  build.field(build.emit(Op::kCopyInString, copy, build.constant(4)), string(16));
  build.program.strsize = 8;
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_EQ(word(world), static_cast<std::uint64_t>('3'));
  EXPECT_EQ(text_field(world, 8), "234");

  build.emit(Op::kConst);  // the scratch is used up by now
  build.clause().code.insert(build.clause().code.end() - 2, build.clause().code[4 - 1]);
  world.log.clear();
  EXPECT_EQ(build.run(world), Outcome::kFault);
  EXPECT_THAT(world.log, testing::Contains(testing::HasSubstr("fault 5")));
}

TEST(Memory, CopyInStringStopsAtTheNulAndAtItsLimit) {
  FakeWorld world;
  world.base = 0x10ff8;  // the string crosses a page, and ends at the last byte that is there
  world.memory = std::string("0123456789ab", 13);
  Builder build;
  build.program.strsize = 32;
  build.clause().scratch_size = 64;
  build.emit(Op::kReserve);
  const auto all = build.emit(Op::kCopyInString, build.constant(0x10ff8));
  build.last().scratch = 0;
  build.field(all, string(32));
  const auto part = build.emit(Op::kCopyInString, build.constant(0x10ff8), build.constant(5));
  build.last().scratch = 32;
  build.field(part, string(32));
  ASSERT_EQ(build.run(world), Outcome::kFault) << "reads pages, so it needs the page after";
  world.memory.resize(8 + 4096);
  ASSERT_EQ(build.run(world), Outcome::kDone);
  EXPECT_EQ(text_field(world), "0123456789ab");
  EXPECT_EQ(text_field(world, 32), "0123");
}

// Whatever a plan says, the evaluator ends and stays inside its own memory (the sanitizers watch).
TEST(Run, SurvivesRandomPlans) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    Builder build;
    const auto pick = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    build.program.strings = {"", "text"};
    build.variable(plan::Scope::kGlobal, integer(1u << pick(4)));
    build.variable(plan::Scope::kSelf, string(pick(64) + 1));
    build.variable(plan::Scope::kThis, {ValueKind::kBytes, false, pick(64)});
    build.array(plan::Scope::kGlobal, pick(2) != 0 ? integer() : string(pick(100)), {integer()});
    build.program.aggregations.resize(1);
    build.program.strsize = pick(300);
    build.program.scratchsize = pick(300);
    build.clause().scratch_size = pick(300);
    build.clause().fields = {{pick(64), integer(pick(10))}, {pick(64), string(pick(64))}};
    build.clause().record_size = pick(128);
    build.clause().has_record = pick(2) != 0;
    for (int i = 0; i < 40; ++i) {
      const auto reg = [&] { return pick(20) == 0 ? plan::kNoReg : pick(45); };
      build.emit(static_cast<Op>(pick(static_cast<std::uint64_t>(Op::kEnd) + 2)), reg(), reg(),
                 static_cast<std::int64_t>(pick(4) == 0 ? random() : pick(12)));
      auto& in = build.last();
      if (in.op == Op::kEnd && pick(4) != 0) in.op = Op::kReserve;
      in.size = static_cast<std::uint8_t>(pick(10));
      in.is_signed = pick(2) != 0;
      in.target = static_cast<std::uint32_t>(i) + pick(8);
      in.variable = pick(5);
      in.scratch = pick(3) == 0 ? plan::kNone : pick(400);
      in.operands.resize(pick(3), {reg(), pick(2) != 0 ? integer(pick(9)) : string()});
    }
    FakeWorld world;
    world.memory = "target memory";
    build.run(world);
  }
}

}  // namespace
}  // namespace trapline::interp
