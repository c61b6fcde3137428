// The bins of quantize(), lquantize() and llquantize(): which bin a value falls into, which value a
// bin stands for.
//
// Bins are numbered as the wire has them:
//   quantize    0 ... 62: -2^62 ... -1; 63: 0; 64 ... 126: 1 ... 2^62. A bin holds values whose
//               magnitude is at least the power and less than the next; bin 0 also takes what is
//               below.
//   lquantize   0: below base; 1 ... levels: base + (bin - 1) * step; levels + 1: above.
//   llquantize  symmetric around the middle bin, which has the magnitudes below factor^low; at
//               distance 1 and on, the bins of each order of magnitude; the outermost bins:
//               magnitudes of factor^(high + 1) and more. Where factor^low is 1 and there are more
//               steps than the factor, some bins of the first order stand for no integer.
// This is Oracle's layout. It is written independently of wire/bins.h, which the bodies use; a test
// compares the two.

#pragma once

#include <cstdint>
#include <optional>

#include "plan/plan.h"

namespace trapline::consume {

inline constexpr std::uint32_t kQuantizeBins = 127;
inline constexpr std::uint32_t kQuantizeZero = 63;

// Precondition: `aggregation` is a histogram. The bin is below `aggregation.bins`.
std::uint32_t bin_of(const plan::Aggregation& aggregation, std::int64_t value);

std::int64_t quantize_value(std::uint32_t bin);

// The least and the greatest value that a bin holds, both included; nullopt: no bound on that side.
// 128 bits, as the factors of llquantize() may lead beyond 64.
__extension__ using BinEdge = __int128;
struct BinBounds {
  std::optional<BinEdge> low;
  std::optional<BinEdge> high;
};
BinBounds bin_bounds(const plan::Aggregation& aggregation, std::uint32_t bin);

struct LlquantizeShape {
  std::uint64_t factor = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  std::uint64_t steps = 0;
  std::uint64_t steps_per_factor = 0;  // bins of an order that lower orders already cover
  std::uint32_t bins_per_order = 0;
  std::uint32_t zero = 0;  // the middle bin
  std::uint32_t total = 0;
  std::uint64_t lowest = 0;    // factor^low
  std::uint64_t overflow = 0;  // factor^(high + 1)
};
LlquantizeShape llquantize_shape(const plan::Aggregation& aggregation);
// The lower end of the bin that lies `distance` >= 1 from the middle; nullopt: it stands for no
// integer.
std::optional<std::uint64_t> llquantize_value(const LlquantizeShape& shape, std::uint32_t distance);

}  // namespace trapline::consume
