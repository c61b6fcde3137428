#include "wire/bins.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace trapline::wire {
namespace {

// ----------------------------------------------------------------------------------------------------
// quantize

TEST(Quantize, KnownValues) {
  EXPECT_EQ(quantize_bin(0), 63u);
  EXPECT_EQ(quantize_bin(1), 64u);
  EXPECT_EQ(quantize_bin(2), 65u);
  EXPECT_EQ(quantize_bin(3), 65u);
  EXPECT_EQ(quantize_bin(4), 66u);
  EXPECT_EQ(quantize_bin(-1), 62u);
  EXPECT_EQ(quantize_bin(-2), 61u);
  EXPECT_EQ(quantize_bin(-3), 61u);
  EXPECT_EQ(quantize_bin(INT64_MAX), 126u);
  EXPECT_EQ(quantize_bin(INT64_MIN + 1), 0u);
  EXPECT_EQ(quantize_bin(INT64_MIN), 0u);
}

TEST(Quantize, EachBoundaryStartsItsBin) {
  for (int k = 0; k < 63; ++k) {
    const int64_t power = int64_t{1} << k;
    EXPECT_EQ(quantize_bin(power), 64u + static_cast<uint32_t>(k));
    EXPECT_EQ(quantize_label(quantize_bin(power)), power);
    EXPECT_EQ(quantize_bin(-power), 62u - static_cast<uint32_t>(k));
    EXPECT_EQ(quantize_label(quantize_bin(-power)), -power);
    if (k > 0) {
      EXPECT_EQ(quantize_bin(power - 1), quantize_bin(power) - 1);
      EXPECT_EQ(quantize_bin(-(power - 1)), quantize_bin(-power) + 1);
    }
  }
  EXPECT_EQ(quantize_label(kQuantizeZero), 0);
}

// ---------------------------------------------------------------------------------------------------
// lquantize

TEST(Lquantize, BelowWithinAndAbove) {
  EXPECT_EQ(lquantize_bins(4), 6u);
  EXPECT_EQ(lquantize_bin(-11, -10, 5, 4), 0u);
  EXPECT_EQ(lquantize_bin(-10, -10, 5, 4), 1u);
  EXPECT_EQ(lquantize_bin(-6, -10, 5, 4), 1u);
  EXPECT_EQ(lquantize_bin(-5, -10, 5, 4), 2u);
  EXPECT_EQ(lquantize_bin(9, -10, 5, 4), 4u);
  EXPECT_EQ(lquantize_bin(10, -10, 5, 4), 5u);
  EXPECT_EQ(lquantize_bin(INT64_MAX, -10, 5, 4), 5u);
  EXPECT_EQ(lquantize_bin(INT64_MIN, -10, 5, 4), 0u);
  EXPECT_EQ(lquantize_bin(INT64_MAX, INT64_MIN, 1, 65535), 65536u);
  EXPECT_EQ(lquantize_label(0, -10, 5), -10);
  EXPECT_EQ(lquantize_label(1, -10, 5), -10);
  EXPECT_EQ(lquantize_label(5, -10, 5), 10);
}

// --------------------------------------------------------------------------------------------------
// llquantize

// Every value is at least its bin's label, and below the next existing label.
void check_shape(const LlquantizeShape& shape, const std::vector<int64_t>& values) {
  const uint32_t zero = llquantize_zero(shape);
  const uint32_t bins = llquantize_bins(shape);
  for (const int64_t value : values) {
    const uint32_t bin = llquantize_bin(value, shape);
    ASSERT_LT(bin, bins) << value;
    const uint64_t magnitude =
        value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
    const LlquantizeLabel label = llquantize_label(bin, shape);
    ASSERT_TRUE(label.exists) << value << " fell into a bin that no integer reaches";
    if (bin == zero) {
      EXPECT_LT(magnitude, label.magnitude);
      continue;
    }
    EXPECT_EQ(bin < zero, value < 0) << value;
    EXPECT_GE(magnitude, label.magnitude) << value;
    const bool positive = bin > zero;
    for (uint32_t next = positive ? bin + 1 : bin - 1; next > 0 && next < bins - 1;
         next += positive ? 1 : ~0u) {
      const LlquantizeLabel beyond = llquantize_label(next, shape);
      if (!beyond.exists) continue;
      EXPECT_LT(magnitude, beyond.magnitude) << value;
      break;
    }
  }
}

TEST(Llquantize, KnownLayouts) {
  // factor 10, magnitudes 0 to 1, 10 steps: 1..9, 10..90 by tens.
  const LlquantizeShape shape{10, 0, 1, 10};
  EXPECT_EQ(llquantize_bins_per_magnitude(shape), 9u);
  EXPECT_EQ(llquantize_zero(shape), 19u);
  EXPECT_EQ(llquantize_bins(shape), 39u);
  EXPECT_EQ(llquantize_bin(0, shape), 19u);
  EXPECT_EQ(llquantize_bin(1, shape), 20u);
  EXPECT_EQ(llquantize_bin(9, shape), 28u);
  EXPECT_EQ(llquantize_bin(10, shape), 29u);
  EXPECT_EQ(llquantize_bin(99, shape), 37u);
  EXPECT_EQ(llquantize_bin(100, shape), 38u);
  EXPECT_EQ(llquantize_bin(INT64_MAX, shape), 38u);
  EXPECT_EQ(llquantize_bin(-1, shape), 18u);
  EXPECT_EQ(llquantize_bin(-100, shape), 0u);
  EXPECT_EQ(llquantize_bin(INT64_MIN, shape), 0u);
  EXPECT_EQ(llquantize_label(28, shape).magnitude, 9u);
  EXPECT_EQ(llquantize_label(30, shape).magnitude, 20u);
  EXPECT_EQ(llquantize_label(38, shape).magnitude, 100u);
  EXPECT_EQ(llquantize_label(19, shape).magnitude, 1u);
}

TEST(Llquantize, MagnitudeZeroWithManyStepsHasFillers) {
  const LlquantizeShape shape{10, 0, 2, 20};
  const uint32_t zero = llquantize_zero(shape);
  EXPECT_EQ(llquantize_bin(1, shape), zero + 1);
  EXPECT_EQ(llquantize_bin(2, shape), zero + 3);
  EXPECT_TRUE(llquantize_label(zero + 1, shape).exists);
  EXPECT_FALSE(llquantize_label(zero + 2, shape).exists);
  EXPECT_EQ(llquantize_label(zero + 3, shape).magnitude, 2u);
  EXPECT_EQ(llquantize_bin(10, shape), zero + 19);
  EXPECT_EQ(llquantize_bin(15, shape), zero + 20);
  EXPECT_EQ(llquantize_label(zero + 20, shape).magnitude, 15u);
}

TEST(Llquantize, LabelsHoldForManyShapes) {
  std::mt19937_64 random(1);
  std::vector<int64_t> values = {INT64_MIN, INT64_MIN + 1, INT64_MAX};
  for (int64_t v = -3000; v <= 3000; ++v) values.push_back(v);
  for (int i = 0; i < 4000; ++i) values.push_back(static_cast<int64_t>(random() >> random() % 64));
  for (const LlquantizeShape& shape :
       {LlquantizeShape{10, 0, 6, 20}, LlquantizeShape{10, 0, 1, 10}, LlquantizeShape{10, 2, 5, 5},
        LlquantizeShape{10, 0, 18, 100}, LlquantizeShape{2, 0, 62, 2},
        LlquantizeShape{2, 3, 40, 16}, LlquantizeShape{3, 1, 30, 9},
        LlquantizeShape{10, 3, 9, 1000}, LlquantizeShape{16, 0, 14, 4},
        LlquantizeShape{10, 0, 17, 1}}) {
    check_shape(shape, values);
  }
}

TEST(Llquantize, AMalformedShapeStaysWithinItsBins) {
  const LlquantizeShape shape{7, 0, 22, 5};  // steps neither divides nor is a multiple of factor
  for (const int64_t value :
       {int64_t{1}, int64_t{6}, int64_t{48}, int64_t{343}, INT64_MAX, INT64_MIN}) {
    EXPECT_LT(llquantize_bin(value, shape), llquantize_bins(shape));
  }
}

}  // namespace
}  // namespace trapline::wire
