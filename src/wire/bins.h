// The bins of the histogram aggregations: which bin a value belongs to, and what values a bin
// stands for.
//
// Shared by probe bodies, the interpreter and the reporter, so that they cannot disagree.
// Freestanding.
//
//   quantize    127 bins: -2^62 .. -1, 0, 1 .. 2^62. A value belongs to the greatest power of two
//   that is not above
//               it; a negative one mirrors it. INT64_MIN belongs to the last bin, -2^62.
//   lquantize   levels + 2 bins: below base, base + i * step .., from base + levels * step on.
//   llquantize  Oracle's symmetric layout, in numerical order: negative overflow, the negative
//   bins, one bin around
//               zero (in the middle), the positive bins, positive overflow. A magnitude m holds the
//               values from factor^m to factor^(m+1) in `steps` equal parts; those which overlap
//               with the magnitude below (steps / factor of them) have no bin. In magnitude 0 with
//               steps > factor, parts are narrower than 1: bins that no integer can reach exist and
//               have no label.
//
// Source: the documentation and behaviour of Oracle's DTrace; docs/compat.md lists the differences
// to other dialects.

#pragma once

#include <stdint.h>

namespace trapline::wire {

// ----------------------------------------------------------------------------------------------------
// quantize

inline constexpr uint32_t kQuantizeBins = 127;
inline constexpr uint32_t kQuantizeZero = 63;

constexpr uint32_t quantize_bin(int64_t value) {
  const int64_t sign = value >> 63;
  uint64_t magnitude =
      (static_cast<uint64_t>(value) ^ static_cast<uint64_t>(sign)) - static_cast<uint64_t>(sign);
  magnitude -= magnitude >> 63;  // only INT64_MIN has this bit
  // The position of the highest bit of 2m+1 is floor(log2 m) + 1, and 0 for m = 0.
  const int64_t distance = 63 - __builtin_clzll(2 * magnitude + 1);
  return static_cast<uint32_t>(static_cast<int64_t>(kQuantizeZero) + ((distance ^ sign) - sign));
}

// The label of a bin: the value in it that is nearest to zero.
constexpr int64_t quantize_label(uint32_t bin) {
  if (bin == kQuantizeZero) return 0;
  if (bin > kQuantizeZero) return int64_t{1} << (bin - kQuantizeZero - 1);
  return -(int64_t{1} << (kQuantizeZero - 1 - bin));
}

// ---------------------------------------------------------------------------------------------------
// lquantize

constexpr uint32_t lquantize_bins(uint32_t levels) { return levels + 2; }

// Precondition: step > 0.
constexpr uint32_t lquantize_bin(int64_t value, int64_t base, int64_t step, uint32_t levels) {
  if (value < base) return 0;
  // The difference of two int64_t fits in uint64_t.
  const uint64_t level =
      (static_cast<uint64_t>(value) - static_cast<uint64_t>(base)) / static_cast<uint64_t>(step);
  return level >= levels ? levels + 1 : static_cast<uint32_t>(level) + 1;
}

// The least value of a bin; of bin 0 ("less than"), and of the last ("at least"), the bound.
constexpr int64_t lquantize_label(uint32_t bin, int64_t base, int64_t step) {
  return bin == 0 ? base : base + static_cast<int64_t>(bin - 1) * step;
}

// --------------------------------------------------------------------------------------------------
// llquantize

struct LlquantizeShape {
  uint32_t factor;  // at least 2
  uint32_t low;     // lowest and highest magnitude; low <= high
  uint32_t high;
  uint32_t steps;  // divides, or is a multiple of, factor
};

// Bins of a magnitude on one side of zero.
constexpr uint32_t llquantize_bins_per_magnitude(const LlquantizeShape& shape) {
  return shape.steps - shape.steps / shape.factor;
}

// The bin around zero.
constexpr uint32_t llquantize_zero(const LlquantizeShape& shape) {
  return 1 + (shape.high - shape.low + 1) * llquantize_bins_per_magnitude(shape);
}

constexpr uint32_t llquantize_bins(const LlquantizeShape& shape) {
  return 2 * llquantize_zero(shape) + 1;
}

// base^exponent, or the greatest uint64_t where it does not fit.
constexpr uint64_t saturating_power(uint64_t base, uint32_t exponent) {
  uint64_t power = 1;
  for (uint32_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(power, base, &power)) return ~uint64_t{0};
  }
  return power;
}

// Precondition: factor >= 2, steps >= 1.
constexpr uint32_t llquantize_bin(int64_t value, const LlquantizeShape& shape) {
  const uint32_t zero = llquantize_zero(shape);
  const uint64_t magnitude =
      value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  uint64_t limit = saturating_power(shape.factor, shape.low);
  if (magnitude < limit) return zero;
  const uint32_t overlap = shape.steps / shape.factor;
  uint32_t distance = zero;  // of the overflow bins
  for (uint32_t m = shape.low; m <= shape.high; ++m) {
    if (__builtin_mul_overflow(limit, static_cast<uint64_t>(shape.factor), &limit))
      limit = ~uint64_t{0};
    if (magnitude < limit) {
      const uint64_t unit = limit / shape.steps;
      const uint64_t part =
          m == 0 || unit == 0 ? magnitude * shape.steps / limit : magnitude / unit;
      // Where steps does not divide the magnitude (refused by the compiler), the last part takes
      // the rest.
      const uint64_t last = shape.steps - 1;
      const uint64_t kept = (part < last ? part : last) - overlap;
      distance =
          1 + (m - shape.low) * llquantize_bins_per_magnitude(shape) + static_cast<uint32_t>(kept);
      break;
    }
  }
  return value < 0 ? zero - distance : zero + distance;
}

// What a bin stands for, as its magnitude's least value; its sign is that of bin - llquantize_zero.
struct LlquantizeLabel {
  uint64_t magnitude;  // of the bin around zero, and of the overflow bins, the bound
  bool exists;         // false: a filler that no integer can reach
};

constexpr LlquantizeLabel llquantize_label(uint32_t bin, const LlquantizeShape& shape) {
  const uint32_t zero = llquantize_zero(shape);
  if (bin == zero) return {saturating_power(shape.factor, shape.low), true};
  const uint32_t distance = bin > zero ? bin - zero : zero - bin;
  if (distance >= zero) return {saturating_power(shape.factor, shape.high + 1), true};
  const uint32_t per_magnitude = llquantize_bins_per_magnitude(shape);
  const uint32_t m = shape.low + (distance - 1) / per_magnitude;
  const uint64_t part = (distance - 1) % per_magnitude + shape.steps / shape.factor;
  const uint64_t least = saturating_power(shape.factor, m);
  const uint64_t limit = saturating_power(shape.factor, m + 1);
  if (m == 0) {
    const uint64_t scaled = part * limit;
    if (scaled % shape.steps != 0 && part > shape.steps / shape.factor) return {0, false};
    return {scaled / shape.steps > least ? scaled / shape.steps : least, true};
  }
  const uint64_t low = part * (limit / shape.steps);
  return {low > least ? low : least, true};
}

}  // namespace trapline::wire
