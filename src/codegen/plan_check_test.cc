// What compile() refuses, bodies that need much of everything, and the linker of emitted objects.

#include <gtest/gtest.h>

#include "codegen/object_reader.h"
#include "codegen/stack_bound.h"
#include "codegen/test_plan.h"
#include "codegen/test_target.h"

namespace trapline::codegen::test {
namespace {

using plan::AggregationKind;
using plan::Program;
using plan::Scope;

const std::vector<BodyRequest> kOneBody = {{SiteKind::kEntry, {0}}};

wire::Layout layout_for(const Program& program) {
  wire::LayoutRequest request;
  request.strings_size = 4096;
  request.globals_size = program.globals_size;
  request.direct_size = program.direct_size;
  request.self_size = program.self_size;
  request.scratch_size = scratch_size(program);
  return wire::make_layout(request);
}

// Compiles a program after `damage` was done to it.
template <typename Damage>
ErrorCode refusal(Program program, Damage damage) {
  EXPECT_TRUE(plan::lay_out(program, {}).has_value());
  const wire::Layout layout = layout_for(program);
  damage(program);
  const auto compiled = compile(program, layout, kOneBody);
  EXPECT_FALSE(compiled.has_value());
  return compiled ? ErrorCode::kOs : compiled.error().code();
}

Program sample() {
  Program program;
  add_string(program, "constant");
  const auto array = add_array(program, Scope::kGlobal, text(), {text()});
  const auto count = add_aggregation(program, AggregationKind::kCount, {text()});
  ClauseBuilder clause;
  const Reg a = clause.argument(0);
  const Reg name = clause.string(0);
  clause.predicate(a);
  clause.reserve();
  clause.field(a, integer(4));
  clause.field(name, text(16));
  clause.store_element(program, array, {{name, text()}},
                       clause.load_element(program, array, {{name, text()}}));
  clause.aggregate(program, count, plan::kNoReg, {{name, text()}});
  program.clauses.push_back(clause.done());
  return program;
}

plan::Instruction& find(Program& program, Op op) {
  for (auto& instruction : program.clauses[0].code) {
    if (instruction.op == op) return instruction;
  }
  ADD_FAILURE();
  return program.clauses[0].code[0];
}

TEST(PlanCheck, AcceptsTheSample) {
  Program program = sample();
  ASSERT_TRUE(plan::lay_out(program, {}).has_value());
  const auto compiled = compile(program, layout_for(program), kOneBody);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().text();
  EXPECT_LE(compiled->max_stack, kMaxBodyStack);
  EXPECT_EQ(compiled->code.offset, 0u);
  EXPECT_LE(compiled->code.size, compiled->constants.offset);
  EXPECT_EQ(compiled->constants.offset + compiled->constants.size, compiled->bytes.size());
}

TEST(PlanCheck, RefusesWhatBreaksThePlansRules) {
  const ErrorCode internal = ErrorCode::kInternal;
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.clauses[0].code.pop_back(); }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kField).a = 1000; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kField).immediate = 9; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kJumpIfZero).target = 0; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kJumpIfZero).target = 1000; }),
            internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kString).immediate = 1; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kArgument).immediate = 10; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kStoreElement).variable = 5; }),
            internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kStoreElement).scratch = plan::kNone; }),
            internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kLoadElement).scratch += 1000; }),
            internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kAggregate).operands.clear(); }),
            internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { find(p, Op::kAggregate).variable = 1; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.aggregations[0].value_words = 7; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.variables[0].cell_size = 32; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.variables[0].capacity = 3; }), internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.variables[0].offset = p.globals_size; }),
            internal);
  EXPECT_EQ(refusal(sample(),
                    [](Program& p) { p.clauses[0].fields[1].offset = p.clauses[0].record_size; }),
            internal);
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.globals_size = 1 << 30; }), internal);
}

TEST(PlanCheck, WhatTheTracerAloneCanTellIsRefusedInBodies) {
  const auto with = [](Op op, std::int64_t immediate) {
    return refusal(sample(), [&](Program& p) {
      plan::Instruction& instruction = find(p, Op::kArgument);
      instruction.op = op;
      instruction.immediate = immediate;
    });
  };
  EXPECT_EQ(with(Op::kRegister, 0), ErrorCode::kUnsupported);
  EXPECT_EQ(with(Op::kRegister, 1000), ErrorCode::kInternal);
  EXPECT_EQ(with(Op::kBuiltin, static_cast<std::int64_t>(plan::Builtin::kUserStackDepth)),
            ErrorCode::kUnsupported);
}

TEST(PlanCheck, AStringRegisterMustHoldAnAddressOfOurs) {
  // The string's register is also written from an argument.
  EXPECT_EQ(
      refusal(sample(), [](Program& p) { find(p, Op::kArgument).dst = find(p, Op::kString).dst; }),
      ErrorCode::kInternal);
  // It comes from the target by way of a move.
  EXPECT_EQ(refusal(sample(),
                    [](Program& p) {
                      auto& string = find(p, Op::kString);
                      string.op = Op::kMove;
                      string.a = find(p, Op::kArgument).dst;
                    }),
            ErrorCode::kInternal);
}

TEST(PlanCheck, ARecordLargerThanAChunkIsNotSupported) {
  EXPECT_EQ(refusal(sample(), [](Program& p) { p.clauses[0].record_size = wire::kChunkSize; }),
            ErrorCode::kUnsupported);
}

TEST(PlanCheck, NothingToCompileIsNoError) {
  Program program = sample();
  ASSERT_TRUE(plan::lay_out(program, {}).has_value());
  const auto compiled = compile(program, layout_for(program), {});
  ASSERT_TRUE(compiled.has_value());
  EXPECT_TRUE(compiled->bytes.empty());
}

// ------------------------------------------------------------------------------------------------------
// large bodies

// So many values are alive at once that they do not fit into the stack that a body may use.
TEST(LargeBody, KeepsItsRegistersInScratch) {
  Program program;
  constexpr int kValues = 80;
  ClauseBuilder clause;
  std::vector<Reg> values;
  const Reg a = clause.argument(0);
  for (int i = 0; i < kValues; ++i)
    values.push_back(clause.binary(Op::kMul, a, clause.constant(i * 2654435761LL + 12345)));
  Reg sum = clause.constant(0);
  for (int i = kValues - 1; i >= 0; --i) {  // in the opposite order, with a memory access between
    sum = clause.binary(Op::kXor, clause.binary(Op::kAdd, sum, sum),
                        values[static_cast<std::size_t>(i)]);
    if (i % 8 == 0)
      sum = clause.binary(Op::kAdd, sum, clause.load_memory(clause.argument(1), 8, false));
  }
  clause.reserve();
  clause.field(sum, integer());
  program.clauses.push_back(clause.done());
  Target target(program, kOneBody);
  EXPECT_LE(target.object().max_stack, kMaxBodyStack);
  const std::uint64_t addend = 77;
  target.fire({3, reinterpret_cast<std::uint64_t>(&addend)});
  std::uint64_t expected = 0;
  for (int i = kValues - 1; i >= 0; --i) {
    expected = (expected + expected) ^ (3 * (static_cast<std::uint64_t>(i) * 2654435761u + 12345));
    if (i % 8 == 0) expected += addend;
  }
  ASSERT_EQ(target.records().size(), 1u);
  EXPECT_EQ(target.records()[0].get<std::uint64_t>(0), expected);
}

TEST(LargeBody, ManyClausesAndBodiesInOneObject) {
  Program program;
  const auto count = add_aggregation(program, AggregationKind::kCount, {integer()});
  std::vector<BodyRequest> bodies;
  for (int i = 0; i < 20; ++i) {
    ClauseBuilder clause;
    const Reg key = clause.constant(i);
    clause.reserve();
    clause.aggregate(program, count, plan::kNoReg, {{key, integer()}});
    program.clauses.push_back(clause.done());
    BodyRequest body;
    for (std::uint32_t n = 0; n <= static_cast<std::uint32_t>(i); ++n) body.clauses.push_back(n);
    bodies.push_back(body);
  }
  Target target(program, bodies);
  for (std::size_t i = 0; i < bodies.size(); ++i) target.fire({}, i);
  const auto sums = target.summed();
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sums.at({count, {i}}), Words{20 - i});
}

// -----------------------------------------------------------------------------------------------------------
// linking

TEST(ObjectReader, RefusesWhatIsNoObject) {
  EXPECT_FALSE(link_object({}).has_value());
  std::vector<std::byte> junk(200, std::byte{0x7f});
  EXPECT_FALSE(link_object(junk).has_value());
}

TEST(StackBound, AddsFramesAlongTheDeepestChain) {
  const CallGraph calls = {{"body", {"a", "b"}}, {"a", {"c"}}, {"b", {}}, {"c", {}}};
  const std::map<std::string, std::uint32_t> frames = {
      {"body", 40}, {"a", 16}, {"b", 50}, {"c", 8}};
  EXPECT_EQ(*stack_bound("body", calls, frames), 8u + 40 + 8 + 50);
  const std::map<std::string, std::uint32_t> deeper = {
      {"body", 40}, {"a", 16}, {"b", 0}, {"c", 80}};
  EXPECT_EQ(*stack_bound("body", calls, deeper), 8u + 40 + 8 + 16 + 8 + 80);
}

TEST(StackBound, RefusesCirclesAndUnknownFrames) {
  EXPECT_FALSE(stack_bound("a", {{"a", {"b"}}, {"b", {"a"}}}, {{"a", 0}, {"b", 0}}).has_value());
  EXPECT_FALSE(stack_bound("a", {{"a", {"b"}}}, {{"a", 0}}).has_value());
}

}  // namespace
}  // namespace trapline::codegen::test
