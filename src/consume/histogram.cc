#include "consume/histogram.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace trapline::consume {
namespace {

std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out;
  return __builtin_mul_overflow(a, b, &out) ? ~std::uint64_t{0} : out;
}

std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t out = 1;
  // Past 64 doublings it is saturated, or base is 0 or 1 and it does not change any more.
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(exponent, 64); ++i) {
    out = saturating_multiply(out, base);
  }
  return out;
}

std::uint32_t quantize_bin(std::int64_t value) {
  if (value == 0) return kQuantizeZero;
  const auto log = static_cast<std::uint32_t>(std::bit_width(magnitude(value)) - 1);
  if (value > 0) return kQuantizeZero + 1 + log;
  return log >= kQuantizeZero ? 0 : kQuantizeZero - 1 - log;
}

std::uint32_t lquantize_bin(const plan::Aggregation& aggregation, std::int64_t value) {
  const std::int64_t base = aggregation.parameters[0];
  const auto levels = static_cast<std::uint64_t>(aggregation.parameters[2]);
  const auto step =
      static_cast<std::uint64_t>(std::max<std::int64_t>(1, aggregation.parameters[1]));
  if (value < base) return 0;
  const std::uint64_t level =
      (static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(base)) / step;
  return static_cast<std::uint32_t>(std::min(level, levels) + 1);
}

std::uint32_t llquantize_bin(const plan::Aggregation& aggregation, std::int64_t value) {
  const LlquantizeShape shape = llquantize_shape(aggregation);
  const std::uint64_t size = magnitude(value);
  if (size < shape.lowest) return shape.zero;
  std::uint64_t distance = std::uint64_t{shape.bins_per_order} * (shape.high - shape.low + 1) + 1;
  std::uint64_t ceiling = saturating_multiply(shape.lowest, shape.factor);
  for (std::uint32_t order = shape.low; order <= shape.high; ++order) {
    if (size < ceiling) {
      const std::uint64_t index = order == 0
                                      ? size * shape.steps / ceiling
                                      : size / std::max<std::uint64_t>(1, ceiling / shape.steps);
      distance = std::uint64_t{order - shape.low} * shape.bins_per_order + index -
                 shape.steps_per_factor + 1;
      break;
    }
    ceiling = saturating_multiply(ceiling, shape.factor);
  }
  distance = std::min<std::uint64_t>(distance, shape.zero);
  return static_cast<std::uint32_t>(value < 0 ? shape.zero - distance : shape.zero + distance);
}

}  // namespace

std::uint32_t bin_of(const plan::Aggregation& aggregation, std::int64_t value) {
  switch (aggregation.kind) {
    case plan::AggregationKind::kLquantize:
      return lquantize_bin(aggregation, value);
    case plan::AggregationKind::kLlquantize:
      return llquantize_bin(aggregation, value);
    default:
      return quantize_bin(value);
  }
}

std::int64_t quantize_value(std::uint32_t bin) {
  if (bin == kQuantizeZero) return 0;
  if (bin > kQuantizeZero) return std::int64_t{1} << std::min(bin - kQuantizeZero - 1, 62u);
  return -(std::int64_t{1} << (kQuantizeZero - 1 - bin));
}

LlquantizeShape llquantize_shape(const plan::Aggregation& aggregation) {
  LlquantizeShape shape;
  shape.factor = static_cast<std::uint64_t>(std::max<std::int64_t>(2, aggregation.parameters[0]));
  shape.low =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(aggregation.parameters[1], 0, 64));
  shape.high = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(aggregation.parameters[2], shape.low, 64));
  shape.steps = static_cast<std::uint64_t>(std::max<std::int64_t>(1, aggregation.parameters[3]));
  shape.steps_per_factor = shape.steps / shape.factor;
  shape.bins_per_order = static_cast<std::uint32_t>(shape.steps - shape.steps_per_factor);
  shape.zero = 1 + (shape.high - shape.low + 1) * shape.bins_per_order;
  shape.total = 2 * shape.zero + 1;
  shape.lowest = power(shape.factor, shape.low);
  shape.overflow = power(shape.factor, std::uint64_t{shape.high} + 1);
  return shape;
}

std::optional<std::uint64_t> llquantize_value(const LlquantizeShape& shape,
                                              std::uint32_t distance) {
  if (distance <= 1) return shape.lowest;
  std::uint64_t order = shape.low;
  std::uint64_t first = 2;  // distance of the first bin of the regular part
  if (shape.low == 0 && shape.steps > shape.factor && shape.steps_per_factor != 0) {
    const std::uint64_t last_small = 1 + (shape.factor - 1) * shape.steps_per_factor;
    if (distance <= last_small) {
      if ((distance - 1) % shape.steps_per_factor != 0) return std::nullopt;
      return 1 + (distance - 1) / shape.steps_per_factor;
    }
    order = 1;
    first = last_small + 1;
  }
  if (shape.bins_per_order == 0) return shape.overflow;
  const std::uint64_t index = distance - first;
  order += index / shape.bins_per_order;
  const std::uint64_t step = shape.steps_per_factor + 1 + index % shape.bins_per_order;
  return saturating_multiply(step, power(shape.factor, order + 1) / shape.steps);
}

namespace {

BinBounds quantize_bounds(std::uint32_t bin) {
  const BinEdge value = quantize_value(bin);
  if (value > 0) return {value, 2 * value - 1};
  if (value == 0) return {0, 0};
  if (bin == 0) return {std::numeric_limits<std::int64_t>::min(), value};
  return {2 * value + 1, value};
}

BinBounds lquantize_bounds(const plan::Aggregation& aggregation, std::uint32_t bin) {
  const BinEdge base = aggregation.parameters[0];
  const BinEdge step = std::max<std::int64_t>(1, aggregation.parameters[1]);
  if (bin == 0) return {std::nullopt, base - 1};
  const BinEdge low = base + (BinEdge{bin} - 1) * step;
  if (std::int64_t{bin} > aggregation.parameters[2]) return {low, std::nullopt};
  return {low, low + step - 1};
}

// Of magnitudes, at a distance from the middle. A bin ends where the next one begins that stands
// for an integer.
BinBounds llquantize_magnitudes(const LlquantizeShape& shape, std::uint32_t distance) {
  if (distance >= shape.zero) return {BinEdge{shape.overflow}, std::nullopt};
  const BinEdge low = llquantize_value(shape, distance).value_or(0);
  for (std::uint32_t next = distance + 1; next < shape.zero; ++next) {
    const auto value = llquantize_value(shape, next);
    if (value) return {low, BinEdge{*value} - 1};
  }
  return {low, BinEdge{shape.overflow} - 1};
}

BinBounds llquantize_bounds(const plan::Aggregation& aggregation, std::uint32_t bin) {
  const LlquantizeShape shape = llquantize_shape(aggregation);
  if (bin == shape.zero) return {1 - BinEdge{shape.lowest}, BinEdge{shape.lowest} - 1};
  if (bin > shape.zero) return llquantize_magnitudes(shape, bin - shape.zero);
  const BinBounds mirrored = llquantize_magnitudes(shape, shape.zero - bin);
  return {mirrored.high ? std::optional(-*mirrored.high) : std::nullopt, -*mirrored.low};
}

}  // namespace

BinBounds bin_bounds(const plan::Aggregation& aggregation, std::uint32_t bin) {
  switch (aggregation.kind) {
    case plan::AggregationKind::kLquantize:
      return lquantize_bounds(aggregation, bin);
    case plan::AggregationKind::kLlquantize:
      return llquantize_bounds(aggregation, bin);
    default:
      return quantize_bounds(bin);
  }
}

}  // namespace trapline::consume
