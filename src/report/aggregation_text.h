// Aggregations without a format: keys, value, newline.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "consume/aggregation_store.h"
#include "report/print_options.h"

namespace trapline::report {

// All rows of one aggregation, or of several joined by key: what printa() prints after its first
// newline, and what the end of tracing prints. Returns how many rows there were.
std::size_t append_aggregations(std::string& out, std::span<const std::uint32_t> aggregations,
                                const consume::AggregationStore& store,
                                const PrintOptions& options);

}  // namespace trapline::report
