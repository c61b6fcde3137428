// The numbers that printing and sorting derive from a Datum.

#pragma once

#include <cstdint>

#include "consume/aggregation_store.h"

namespace trapline::consume {

// The single number that count, sum, min, max, avg and stddev print, divided by `normal`. Division
// truncates towards zero and is signed. Histograms: 0.
std::int64_t scalar_value(plan::AggregationKind kind, const Datum& datum, std::uint64_t normal);

// value / normal, signed; normal over INT64_MAX gives 0.
std::int64_t normalized(std::int64_t value, std::uint64_t normal);

std::int64_t average(const Datum& datum, std::uint64_t normal);
// sqrt(mean of squares - square of mean), each truncated to an integer, exact in 128 bits.
std::uint64_t standard_deviation(const Datum& datum, std::uint64_t normal);

bool is_histogram(plan::AggregationKind kind);

// How DTrace orders two values of one aggregation: -1, 0, 1. Histograms compare by the sum over
// their bins of the bin's value times its count, then by the count at zero.
int compare_values(const plan::Aggregation& aggregation, const Datum& a, const Datum& b);

// Keys: component by component from `key_position` on, wrapping; integers as unsigned numbers of
// their size, strings and bytes bytewise.
int compare_keys(const std::vector<Value>& a, const std::vector<Value>& b,
                 std::uint32_t key_position);

}  // namespace trapline::consume
