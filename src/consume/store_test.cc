#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "consume/aggregation_store.h"
#include "consume/histogram.h"
#include "consume/statistics.h"
#include "wire/bins.h"
#include "wire/key.h"

namespace trapline::consume {
namespace {

using plan::AggregationKind;
using testing::ElementsAre;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

plan::Aggregation make(AggregationKind kind, std::vector<plan::ValueType> keys = {}) {
  plan::Aggregation out;
  out.kind = kind;
  out.keys = std::move(keys);
  out.bins = 127;
  return out;
}
plan::ValueType integer(std::uint32_t size = 8, bool is_signed = true) {
  return {plan::ValueKind::kInteger, is_signed, size};
}
plan::Aggregation llquantize(std::int64_t factor, std::int64_t low, std::int64_t high,
                             std::int64_t steps) {
  plan::Aggregation out = make(AggregationKind::kLlquantize);
  out.parameters[0] = factor;
  out.parameters[1] = low;
  out.parameters[2] = high;
  out.parameters[3] = steps;
  out.bins = llquantize_shape(out).total;
  return out;
}
plan::Aggregation lquantize(std::int64_t base, std::int64_t step, std::int64_t levels) {
  plan::Aggregation out = make(AggregationKind::kLquantize);
  out.parameters[0] = base;
  out.parameters[1] = step;
  out.parameters[2] = levels;
  out.bins = static_cast<std::uint32_t>(levels + 2);
  return out;
}

Key key(std::initializer_list<std::int64_t> words) {
  Key out;
  for (const auto word : words) out.push_back(static_cast<std::uint64_t>(word));
  return out;
}

struct Fixture {
  explicit Fixture(std::vector<plan::Aggregation> aggregations) {
    program.aggregations = std::move(aggregations);
    store = std::make_unique<AggregationStore>(program);
  }
  // First key component of each row, in order.
  std::vector<std::int64_t> keys(std::vector<std::uint32_t> which, SortOptions sort = {}) {
    std::vector<std::int64_t> out;
    for (const auto& row : store->rows(which, sort))
      out.push_back(row.components->at(0).as_signed());
    return out;
  }
  std::int64_t value(std::uint32_t index, std::uint64_t normal = 1) {
    const auto rows = store->rows(std::vector{index}, {});
    if (rows.size() != 1) return -999;
    return scalar_value(program.aggregations[index].kind, *rows[0].data[0], normal);
  }
  plan::Program program;
  std::unique_ptr<AggregationStore> store;
};

TEST(Store, ProcessorsAreKeptApartAndTogether) {
  plan::Aggregation least = make(AggregationKind::kMin, {integer(), integer(4)});
  least.per_processor = true;
  plan::Aggregation bins = make(AggregationKind::kQuantize, {integer(4)});
  bins.per_processor = true;
  bins.sparse = true;
  Fixture f({least, bins});
  f.program.processors = 2;
  const std::uint64_t five[] = {5};
  EXPECT_TRUE(f.store->merge(0, key({7, 0}), five));
  EXPECT_TRUE(f.store->update(0, key({7, 1}), 3, 1));
  EXPECT_FALSE(f.store->merge(0, key({7, 2}), five));  // no such processor
  EXPECT_FALSE(f.store->merge(0, key({}), five));
  EXPECT_TRUE(f.store->merge(1, key({1, 64}), five));
  const auto rows = f.store->rows(std::vector<std::uint32_t>{0}, {});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].components->size(), 1u);
  EXPECT_EQ(rows[0].data[0]->value, 3);
  EXPECT_EQ(rows[0].by_processor[0]->at(0).value, 5);
  EXPECT_EQ(rows[0].by_processor[0]->at(1).value, 3);
  const auto histogram = f.store->rows(std::vector<std::uint32_t>{1}, {});
  ASSERT_EQ(histogram.size(), 1u);
  EXPECT_EQ(histogram[0].data[0]->bin(64), 5);
  EXPECT_EQ(histogram[0].by_processor[0]->at(1).bin(64), 5);
  f.store->clear(0);
  const auto cleared = f.store->rows(std::vector<std::uint32_t>{0}, {});
  ASSERT_EQ(cleared.size(), 1u);
  EXPECT_TRUE(cleared[0].by_processor[0]->empty());
}

TEST(Store, MergesEachFunctionExactly) {
  Fixture f({make(AggregationKind::kCount), make(AggregationKind::kSum),
             make(AggregationKind::kMin), make(AggregationKind::kMax),
             make(AggregationKind::kAvg)});
  for (const std::int64_t v : {5, -7, 3}) {
    for (std::uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(f.store->update(i, {}, i == 0 ? 1 : v, 1));
  }
  const std::uint64_t more[] = {2, static_cast<std::uint64_t>(-100)};
  ASSERT_TRUE(f.store->merge(0, {}, std::span(more, 1)));
  ASSERT_TRUE(f.store->merge(2, {}, std::span(more + 1, 1)));
  ASSERT_TRUE(f.store->merge(4, {}, more));
  EXPECT_EQ(f.value(0), 5);
  EXPECT_EQ(f.value(1), 1);
  EXPECT_EQ(f.value(2), -100);
  EXPECT_EQ(f.value(3), 5);
  EXPECT_EQ(f.value(4), (1 - 100) / 5);
}

TEST(Store, StandardDeviationIsExactIn128Bits) {
  Fixture f({make(AggregationKind::kStddev)});
  for (std::int64_t i = 0; i < 10; ++i) f.store->update(0, {}, -5000000000 - 100 * i, 1);
  EXPECT_EQ(f.value(0), 287);
  f.store->truncate(0, std::nullopt);
  f.store->update(0, {}, kMin, 1);
  f.store->update(0, {}, kMin, 1);
  const std::uint64_t same[] = {1, static_cast<std::uint64_t>(kMin), 0, std::uint64_t{1} << 62};
  ASSERT_TRUE(f.store->merge(0, {}, same));
  // The sum of three INT64_MIN has wrapped: what is left of it is printed, and nothing crashes.
  EXPECT_GE(f.value(0), 0);
}

TEST(Store, RefusesWhatDoesNotFit) {
  Fixture f({make(AggregationKind::kCount, {integer()})});
  const std::uint64_t words[] = {1, 2};
  EXPECT_FALSE(f.store->update(1, {}, 1, 1));
  EXPECT_FALSE(f.store->update(0, {}, 1, 1)) << "a component is missing";
  EXPECT_FALSE(f.store->update(0, words, 1, 1)) << "one too many";
  EXPECT_FALSE(f.store->merge(0, std::span(words, 1), words)) << "too many value words";
  EXPECT_TRUE(f.store->empty(0));
}

TEST(Store, ClearKeepsKeysAndSetsTheIdentity) {
  Fixture f({make(AggregationKind::kMin, {integer()}), make(AggregationKind::kMax),
             make(AggregationKind::kQuantize)});
  f.store->update(0, key({1}), 5, 1);
  f.store->update(0, key({2}), 6, 1);
  f.store->update(1, {}, 5, 1);
  f.store->update(2, {}, 5, 1);
  for (std::uint32_t i = 0; i < 3; ++i) f.store->clear(i);
  EXPECT_EQ(f.store->entry_count(0), 2u);
  EXPECT_EQ(f.store->rows(std::vector<std::uint32_t>{0}, {})[0].data[0]->value, kMax);
  EXPECT_EQ(f.value(1), kMin);
  EXPECT_TRUE(f.store->rows(std::vector<std::uint32_t>{2}, {})[0].data[0]->bins.empty());
  f.store->update(1, {}, -3, 1);
  EXPECT_EQ(f.value(1), -3);
}

TEST(Store, TruncateKeepsTheHighestOrTheLowest) {
  Fixture f({make(AggregationKind::kSum, {integer()})});
  const auto fill = [&] {
    f.store->truncate(0, std::nullopt);
    for (std::int64_t i = 1; i <= 5; ++i) f.store->update(0, key({i}), i == 4 ? 3 : i, 1);
  };
  fill();
  f.store->truncate(0, 2);  // of the equal 3 and 4 the one with the higher key stays
  EXPECT_THAT(f.keys({0}), ElementsAre(4, 5));
  fill();
  f.store->truncate(0, -3);
  EXPECT_THAT(f.keys({0}), ElementsAre(1, 2, 3));
  fill();
  f.store->truncate(0, 0);
  EXPECT_TRUE(f.store->empty(0));
  fill();
  f.store->truncate(0, kMin);
  EXPECT_EQ(f.store->entry_count(0), 5u);
}

TEST(Store, SortsByValueKeyPositionAndReverse) {
  Fixture f({make(AggregationKind::kSum, {integer(), integer()})});
  f.store->update(0, key({1, 9}), 30, 1);
  f.store->update(0, key({2, 8}), 10, 1);
  f.store->update(0, key({3, 7}), 20, 1);
  f.store->update(0, key({-1, 6}), 20, 1);
  EXPECT_THAT(f.keys({0}), ElementsAre(2, 3, -1, 1)) << "keys compare as unsigned numbers";
  EXPECT_THAT(f.keys({0}, {.reversed = true}), ElementsAre(1, -1, 3, 2));
  EXPECT_THAT(f.keys({0}, {.by_key = true}), ElementsAre(1, 2, 3, -1));
  EXPECT_THAT(f.keys({0}, {.by_key = true, .key_position = 1}), ElementsAre(-1, 3, 2, 1));
  EXPECT_THAT(f.keys({0}, {.by_key = true, .key_position = 2}), ElementsAre(1, 2, 3, -1))
      << "past the end counts as 0";
}

TEST(Store, JoinsSeveralByKeyAndSortsByPosition) {
  Fixture f({make(AggregationKind::kSum, {integer()}), make(AggregationKind::kSum, {integer()})});
  f.store->update(0, key({1}), 5, 1);
  f.store->update(0, key({2}), 4, 1);
  f.store->update(1, key({2}), 9, 1);
  f.store->update(1, key({3}), -1, 1);
  EXPECT_THAT(f.keys({0, 1}), ElementsAre(3, 2, 1));
  EXPECT_THAT(f.keys({0, 1}, {.position = 1}), ElementsAre(3, 1, 2));
  const auto rows = f.store->rows(std::vector<std::uint32_t>{0, 1}, {});
  EXPECT_EQ(rows[0].data[0], nullptr);
  EXPECT_EQ(rows[0].data[1]->value, -1);
  EXPECT_EQ(f.store->rows(std::vector<std::uint32_t>{1, 1}, {}).size(), 2u);
}

TEST(Store, SortsHistogramsBySumThenByTheCountAtZero) {
  auto aggregation = make(AggregationKind::kQuantize, {integer()});
  Fixture f({aggregation});
  f.store->update(0, key({1}), 8, 3);
  f.store->update(0, key({2}), 1, 24);
  f.store->update(0, key({2}), 0, 1);
  f.store->update(0, key({3}), -4, 1);
  EXPECT_THAT(f.keys({0}), ElementsAre(3, 1, 2));
}

TEST(Store, SparseHistogramsCarryTheBinInTheirKey) {
  auto aggregation = lquantize(0, 1, 5000);
  aggregation.sparse = true;
  aggregation.keys = {integer()};
  Fixture f({aggregation});
  const std::uint64_t weight[] = {4};
  EXPECT_TRUE(f.store->merge(0, key({7, 5001}), weight));
  EXPECT_TRUE(f.store->merge(0, key({7, 12}), weight));
  EXPECT_FALSE(f.store->merge(0, key({7, 5002}), weight)) << "no such bin";
  EXPECT_FALSE(f.store->merge(0, {}, weight));
  f.store->update(0, key({7}), 11, 2);
  const auto rows = f.store->rows(std::vector<std::uint32_t>{0}, {});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0].data[0]->bins, ElementsAre(std::pair(12u, 6), std::pair(5001u, 4)));
}

TEST(Store, NormalizeOnlySetsTheDivisor) {
  Fixture f({make(AggregationKind::kSum)});
  f.store->update(0, {}, -9, 1);
  f.store->normalize(0, 4);
  EXPECT_EQ(f.store->normal(0), 4u);
  EXPECT_EQ(f.value(0, f.store->normal(0)), -2);
  f.store->normalize(0, 0);
  EXPECT_EQ(f.store->normal(0), 1u);
}

TEST(Bins, OfTheConsumerAreThoseOfTheWire) {
  std::mt19937_64 random(3);
  std::vector<std::int64_t> values{0, 1, -1, kMin, kMax, kMin + 1, 2, 3, -2, -3, 10, 99, 100, 101};
  for (int i = 0; i < 2000; ++i) {
    values.push_back(static_cast<std::int64_t>(random() >> (random() % 64)) *
                     (random() % 2 != 0 ? 1 : -1));
  }
  const auto q = make(AggregationKind::kQuantize);
  const std::vector<plan::Aggregation> linear{lquantize(0, 1, 10), lquantize(-100, 7, 30),
                                              lquantize(-2147483648, 65535, 65535)};
  const std::vector<plan::Aggregation> logs{llquantize(10, 0, 6, 10), llquantize(10, 0, 2, 20),
                                            llquantize(2, 0, 62, 2),  llquantize(10, 3, 6, 100),
                                            llquantize(7, 0, 3, 49),  llquantize(8, 1, 4, 4)};
  for (const auto value : values) {
    EXPECT_EQ(bin_of(q, value), wire::quantize_bin(value)) << value;
    for (const auto& a : linear) {
      EXPECT_EQ(bin_of(a, value), wire::lquantize_bin(value, a.parameters[0], a.parameters[1],
                                                      static_cast<std::uint32_t>(a.parameters[2])))
          << value;
    }
    for (const auto& a : logs) {
      const wire::LlquantizeShape shape{
          static_cast<std::uint32_t>(a.parameters[0]), static_cast<std::uint32_t>(a.parameters[1]),
          static_cast<std::uint32_t>(a.parameters[2]), static_cast<std::uint32_t>(a.parameters[3])};
      EXPECT_EQ(bin_of(a, value), wire::llquantize_bin(value, shape))
          << value << " factor " << shape.factor << " low " << shape.low << " steps "
          << shape.steps;
      EXPECT_EQ(a.bins, wire::llquantize_bins(shape));
    }
  }
  for (std::uint32_t bin = 0; bin < kQuantizeBins; ++bin) {
    EXPECT_EQ(quantize_value(bin), wire::quantize_label(bin));
  }
}

// The value that a bin stands for lies in that bin, and is the least of it by magnitude.
TEST(Bins, LlquantizeValuesLieInTheirBins) {
  for (const auto& a :
       {llquantize(10, 0, 4, 10), llquantize(10, 0, 2, 20), llquantize(10, 0, 3, 100),
        llquantize(2, 0, 30, 4), llquantize(10, 2, 5, 20)}) {
    const auto shape = llquantize_shape(a);
    std::uint32_t labels = 0;
    for (std::uint32_t distance = 1; distance <= shape.zero; ++distance) {
      const auto value = llquantize_value(shape, distance);
      if (!value) continue;
      ++labels;
      const auto low = static_cast<std::int64_t>(*value);
      EXPECT_EQ(bin_of(a, low), shape.zero + distance);
      EXPECT_EQ(bin_of(a, -low), shape.zero - distance);
      EXPECT_NE(bin_of(a, low - 1), shape.zero + distance);
    }
    EXPECT_GT(labels, 5u);
  }
}

// Every value lies within the bounds of its bin, and the bins of a histogram do not overlap.
TEST(Bins, BoundsHoldTheirValues) {
  plan::Aggregation q;
  q.kind = plan::AggregationKind::kQuantize;
  std::vector<std::int64_t> values;
  for (std::int64_t v = -3000; v <= 3000; ++v) values.push_back(v);
  for (int shift = 11; shift < 63; ++shift) {
    for (const std::int64_t off : {-1, 0, 1}) {
      values.push_back((std::int64_t{1} << shift) + off);
      values.push_back(-(std::int64_t{1} << shift) + off);
    }
  }
  values.push_back(std::numeric_limits<std::int64_t>::max());
  values.push_back(std::numeric_limits<std::int64_t>::min());
  std::ranges::sort(values);
  for (const auto& a :
       {q, lquantize(0, 100, 10), lquantize(-50, 51, 7), llquantize(10, 0, 4, 10),
        llquantize(10, 0, 2, 20), llquantize(2, 0, 62, 2), llquantize(10, 3, 6, 100),
        llquantize(7, 0, 3, 49), llquantize(8, 1, 4, 4), llquantize(2, 0, 30, 4)}) {
    std::optional<std::uint32_t> last;
    std::optional<BinBounds> before;
    for (const std::int64_t value : values) {
      const std::uint32_t bin = bin_of(a, value);
      const BinBounds bounds = bin_bounds(a, bin);
      EXPECT_TRUE(!bounds.low || *bounds.low <= value) << value << " in bin " << bin;
      EXPECT_TRUE(!bounds.high || *bounds.high >= value) << value << " in bin " << bin;
      if (last && *last != bin) {
        ASSERT_TRUE(before->high && bounds.low) << value;
        EXPECT_LT(*before->high, *bounds.low) << value;
      }
      last = bin;
      before = bounds;
    }
  }
}

TEST(Keys, AreTheWires) {
  const std::vector<plan::ValueType> types{integer(4), {plan::ValueKind::kString, false, 256}};
  std::uint64_t words[16];
  wire::KeyWriter writer(words, 16);
  writer.append_integer(static_cast<std::uint64_t>(-5));
  writer.append_string("hello, world", 256);
  const std::span<const std::uint64_t> raw(words, writer.count());
  const auto components = decode_key(types, raw);
  ASSERT_TRUE(components);
  EXPECT_EQ((*components)[0].as_signed(), -5);
  EXPECT_EQ((*components)[1].bytes, "hello, world");
  EXPECT_THAT(encode_key(*components), testing::ElementsAreArray(raw));
  words[1] = ~std::uint64_t{0};
  EXPECT_FALSE(decode_key(types, raw)) << "a forged length";
}

TEST(Fields, AreReadWithinThePayload) {
  const std::uint64_t payload[] = {0xff80, 0};
  const auto bytes = std::as_bytes(std::span(payload));
  EXPECT_EQ(decode_field({0, integer(1)}, bytes).as_signed(), -128);
  EXPECT_EQ(decode_field({0, integer(1, false)}, bytes).integer, 0x80u);
  EXPECT_EQ(decode_field({0, integer(2, false)}, bytes).integer, 0xff80u);
  EXPECT_EQ(decode_field({12, integer(8)}, bytes).integer, 0u);
  EXPECT_EQ(decode_field({4000000000, integer(8)}, bytes).integer, 0u);
  EXPECT_EQ(decode_field({0, {plan::ValueKind::kString, false, 16}}, bytes).bytes, "\x80\xff");
  EXPECT_EQ(decode_field({8, {plan::ValueKind::kBytes, false, 99}}, bytes).bytes.size(), 8u);
}

}  // namespace
}  // namespace trapline::consume
