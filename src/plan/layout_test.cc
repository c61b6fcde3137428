#include "plan/layout.h"

#include <gtest/gtest.h>

#include "wire/bins.h"

namespace trapline::plan {
namespace {

ValueType integer(std::uint32_t size) {
  ValueType type;
  type.size = size;
  return type;
}
ValueType string(std::uint32_t size) {
  ValueType type;
  type.kind = ValueKind::kString;
  type.size = size;
  return type;
}
Variable variable(Scope scope, ValueType type) {
  Variable out;
  out.name = "v";
  out.scope = scope;
  out.type = type;
  return out;
}

TEST(Layout, ScalarsLieInTheirScopesInOrder) {
  Program program;
  program.variables = {variable(Scope::kGlobal, integer(4)), variable(Scope::kThis, string(31)),
                       variable(Scope::kGlobal, string(31)), variable(Scope::kSelf, integer(1)),
                       variable(Scope::kThis, integer(8)),   variable(Scope::kGlobal, integer(8))};
  ASSERT_TRUE(lay_out(program, {}));
  EXPECT_EQ(program.variables[0].offset, 0u);
  EXPECT_EQ(program.variables[2].offset, 8u);
  EXPECT_EQ(program.variables[5].offset, 40u);
  EXPECT_EQ(program.variables[1].offset, 0u);
  EXPECT_EQ(program.variables[4].offset, 32u);
  EXPECT_EQ(program.globals_size, 48u);
  EXPECT_EQ(program.this_size, 40u);
  EXPECT_EQ(program.self_size, 8u);
}

TEST(Layout, ArraysShareDynvarsizeInPowersOfTwo) {
  Program program;
  Variable array = variable(Scope::kGlobal, integer(8));
  array.is_array = true;
  array.keys = {integer(4), string(31)};
  Variable self_array = array;
  self_array.scope = Scope::kSelf;
  program.variables = {variable(Scope::kGlobal, integer(8)), array, self_array};
  ASSERT_TRUE(lay_out(program, {4096}));
  // header 16 + keys 8 + (8 + 32) + value 8 = 72, to 16; and 8 more for the thread of a self array
  EXPECT_EQ(program.variables[1].cell_size, 80u);
  EXPECT_EQ(program.variables[1].capacity, 16u);
  EXPECT_EQ(program.variables[1].offset, 64u);
  EXPECT_EQ(key_area(program.variables[1]), 48u);
  EXPECT_EQ(key_area(program.variables[2]), 56u);
  EXPECT_EQ(program.variables[2].cell_size, 80u);
  EXPECT_GE(program.variables[2].offset, program.variables[1].offset + 16 * 80);
  EXPECT_GE(program.globals_size, program.variables[2].offset + 16 * 80);

  ASSERT_TRUE(lay_out(program, {1 << 20}));
  EXPECT_EQ(program.variables[1].capacity, 4096u);
}

TEST(Layout, AggregationsAreDirectWhereTheyCanBe) {
  const auto storage = [](AggregationKind kind, std::vector<ValueType> keys = {},
                          std::initializer_list<std::int64_t> parameters = {}) {
    Aggregation aggregation;
    aggregation.kind = kind;
    aggregation.keys = std::move(keys);
    std::size_t i = 0;
    for (std::int64_t value : parameters) aggregation.parameters[i++] = value;
    choose_storage(aggregation);
    return aggregation;
  };
  EXPECT_TRUE(storage(AggregationKind::kCount).direct);
  EXPECT_EQ(storage(AggregationKind::kCount).direct_words, 1u);
  EXPECT_EQ(storage(AggregationKind::kSum).direct_words, 2u);
  EXPECT_EQ(storage(AggregationKind::kQuantize).direct_words, 128u);
  EXPECT_EQ(storage(AggregationKind::kQuantize).value_words, 127u);
  EXPECT_FALSE(storage(AggregationKind::kMin).direct);
  EXPECT_FALSE(storage(AggregationKind::kAvg).direct);
  EXPECT_EQ(storage(AggregationKind::kAvg).value_words, 2u);
  EXPECT_EQ(storage(AggregationKind::kStddev).value_words, 4u);
  EXPECT_FALSE(storage(AggregationKind::kCount, {integer(8)}).direct);
  EXPECT_EQ(storage(AggregationKind::kLquantize, {}, {0, 10, 10}).bins, 12u);
  const Aggregation sparse = storage(AggregationKind::kLquantize, {}, {0, 1, 5000});
  EXPECT_TRUE(sparse.sparse);
  EXPECT_FALSE(sparse.direct);
  EXPECT_EQ(sparse.value_words, 1u);
  EXPECT_EQ(key_area(sparse), 8u);
}

TEST(Layout, LlquantizeHasAsManyBinsAsTheRuntimeThinks) {
  for (const auto& shape :
       {wire::LlquantizeShape{10, 0, 3, 10}, wire::LlquantizeShape{2, 1, 9, 2},
        wire::LlquantizeShape{10, 2, 5, 20}, wire::LlquantizeShape{6, 0, 4, 3}}) {
    const std::int64_t parameters[4] = {shape.factor, shape.low, shape.high, shape.steps};
    EXPECT_EQ(histogram_bins(AggregationKind::kLlquantize, parameters),
              wire::llquantize_bins(shape));
  }
}

TEST(Layout, RecordsAlignTheirFields) {
  Program program;
  program.variables = {variable(Scope::kThis, integer(8))};
  Clause clause;
  clause.fields = {
      {0, integer(1)}, {0, integer(4)}, {0, string(31)}, {0, integer(8)}, {0, integer(2)}};
  clause.scratch_size = 40;
  Instruction instruction;
  instruction.scratch = 16;
  clause.code = {instruction};
  program.clauses = {clause};
  ASSERT_TRUE(lay_out(program, {}));
  const Clause& laid = program.clauses.front();
  EXPECT_EQ(laid.fields[1].offset, 4u);
  EXPECT_EQ(laid.fields[2].offset, 8u);
  EXPECT_EQ(laid.fields[3].offset, 40u);
  EXPECT_EQ(laid.fields[4].offset, 48u);
  EXPECT_EQ(laid.record_size, 56u);
  EXPECT_EQ(laid.scratch_size, 48u);
  EXPECT_EQ(laid.this_size, 8u);
  EXPECT_EQ(laid.code.front().scratch, 24u);
}

TEST(Layout, RefusesWhatGrowsTooLarge) {
  Program records;
  Clause clause;
  clause.fields = {{0, string(40000)}, {0, string(40000)}};
  records.clauses = {clause};
  const auto laid = lay_out(records, {});
  ASSERT_FALSE(laid);
  EXPECT_EQ(laid.error().code(), ErrorCode::kBadInput);

  Program scalars;
  scalars.variables.assign(40, variable(Scope::kThis, string(60000)));
  EXPECT_FALSE(lay_out(scalars, {}));

  Program arrays;
  Variable array = variable(Scope::kGlobal, string(60000));
  array.is_array = true;
  array.keys.assign(20, string(60000));
  arrays.variables = {array};
  EXPECT_FALSE(lay_out(arrays, {}));
}

}  // namespace
}  // namespace trapline::plan
