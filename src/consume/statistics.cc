#include "consume/statistics.h"

#include <limits>

#include "consume/histogram.h"

namespace trapline::consume {
namespace {

using Wide = unsigned __int128;

std::uint64_t integer_root(Wide square) {
  Wide root = 0;
  Wide bit = Wide{1} << 126;
  while (bit > square) bit >>= 2;
  while (bit != 0) {
    if (square >= root + bit) {
      square -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
    bit >>= 2;
  }
  return static_cast<std::uint64_t>(root);
}

// Never overflows: INT64_MIN / -1 cannot be asked for, counts and normals being positive where it
// matters.
std::int64_t divide(std::int64_t value, std::int64_t by) {
  if (by == 0) return 0;
  if (by == -1) return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value));
  return value / by;
}

template <typename T>
int order(T a, T b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// What a bin counts for in the ordering of histograms.
long double bin_value(const plan::Aggregation& aggregation, const LlquantizeShape& shape,
                      std::uint32_t bin) {
  switch (aggregation.kind) {
    case plan::AggregationKind::kLquantize: {
      const auto base = static_cast<long double>(aggregation.parameters[0]);
      const auto step = static_cast<long double>(aggregation.parameters[1]);
      const auto levels = aggregation.parameters[2];
      if (bin == 0) return base - 1;
      if (bin == levels + 1) return base + step * static_cast<long double>(levels) + 1;
      return base + step * static_cast<long double>(bin - 1);
    }
    case plan::AggregationKind::kLlquantize: {
      if (bin == shape.zero) return 0;
      const std::uint32_t distance = bin > shape.zero ? bin - shape.zero : shape.zero - bin;
      const auto value = static_cast<long double>(llquantize_value(shape, distance).value_or(0));
      return bin > shape.zero ? value : -value;
    }
    default:
      return static_cast<long double>(quantize_value(bin));
  }
}

// The bin whose count decides between equal sums; kNone: there is none.
std::uint32_t zero_bin(const plan::Aggregation& aggregation, const LlquantizeShape& shape) {
  if (aggregation.kind == plan::AggregationKind::kQuantize) return kQuantizeZero;
  if (aggregation.kind == plan::AggregationKind::kLlquantize) return shape.zero;
  for (std::uint32_t bin = 0; bin < aggregation.bins; ++bin) {
    if (bin_value(aggregation, shape, bin) == 0) return bin;
  }
  return plan::kNone;
}

int compare_histograms(const plan::Aggregation& aggregation, const Datum& a, const Datum& b) {
  LlquantizeShape shape;
  if (aggregation.kind == plan::AggregationKind::kLlquantize) shape = llquantize_shape(aggregation);
  const auto sum = [&](const Datum& datum) {
    long double total = 0;
    for (const auto& [bin, weight] : datum.bins) {
      total += bin_value(aggregation, shape, bin) * static_cast<long double>(weight);
    }
    return total;
  };
  if (const int by_sum = order(sum(a), sum(b)); by_sum != 0) return by_sum;
  const std::uint32_t zero = zero_bin(aggregation, shape);
  return order(a.bin(zero), b.bin(zero));
}

std::uint64_t as_unsigned_of_size(const Value& value) {
  if (value.type.size == 0 || value.type.size >= 8) return value.integer;
  return value.integer & ((std::uint64_t{1} << (8 * value.type.size)) - 1);
}

int compare_components(const Value& a, const Value& b) {
  if (a.type.kind == plan::ValueKind::kInteger) {
    return order(as_unsigned_of_size(a), as_unsigned_of_size(b));
  }
  const int bytes = a.bytes.compare(b.bytes);  // char_traits<char> compares unsigned
  return order(bytes, 0);
}

}  // namespace

bool is_histogram(plan::AggregationKind kind) {
  return kind == plan::AggregationKind::kQuantize || kind == plan::AggregationKind::kLquantize ||
         kind == plan::AggregationKind::kLlquantize;
}

std::int64_t normalized(std::int64_t value, std::uint64_t normal) {
  if (normal <= 1) return value;
  if (normal > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return 0;
  return value / static_cast<std::int64_t>(normal);
}

std::int64_t average(const Datum& datum, std::uint64_t normal) {
  return divide(normalized(datum.value, normal), datum.count);
}

std::uint64_t standard_deviation(const Datum& datum, std::uint64_t normal) {
  if (datum.count == 0) return 0;
  const Wide mean_of_squares =
      datum.squares / (normal == 0 ? 1 : normal) / static_cast<std::uint64_t>(datum.count);
  const std::int64_t mean = average(datum, normal);
  const std::uint64_t size =
      mean < 0 ? 0 - static_cast<std::uint64_t>(mean) : static_cast<std::uint64_t>(mean);
  const Wide square_of_mean = Wide{size} * size;
  // Normalizing divides squares once but the mean twice over; and a forged arena may hold any
  // numbers.
  if (square_of_mean > mean_of_squares) return 0;
  return integer_root(mean_of_squares - square_of_mean);
}

std::int64_t scalar_value(plan::AggregationKind kind, const Datum& datum, std::uint64_t normal) {
  switch (kind) {
    case plan::AggregationKind::kCount:
      return normalized(datum.count, normal);
    case plan::AggregationKind::kSum:
    case plan::AggregationKind::kMin:
    case plan::AggregationKind::kMax:
      return normalized(datum.value, normal);
    case plan::AggregationKind::kAvg:
      return average(datum, normal);
    case plan::AggregationKind::kStddev:
      return static_cast<std::int64_t>(standard_deviation(datum, normal));
    default:
      return 0;
  }
}

int compare_values(const plan::Aggregation& aggregation, const Datum& a, const Datum& b) {
  if (is_histogram(aggregation.kind)) return compare_histograms(aggregation, a, b);
  if (aggregation.kind == plan::AggregationKind::kStddev) {
    return order(standard_deviation(a, 1), standard_deviation(b, 1));
  }
  return order(scalar_value(aggregation.kind, a, 1), scalar_value(aggregation.kind, b, 1));
}

int compare_keys(const std::vector<Value>& a, const std::vector<Value>& b,
                 std::uint32_t key_position) {
  if (a.size() != b.size()) return order(a.size(), b.size());
  const std::size_t first = key_position < a.size() ? key_position : 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t at = (first + i) % a.size();
    if (const int result = compare_components(a[at], b[at]); result != 0) return result;
  }
  return 0;
}

}  // namespace trapline::consume
