// The rows of quantize(), lquantize() and llquantize().

#pragma once

#include <cstdint>
#include <string>

#include "consume/aggregation_store.h"
#include "plan/plan.h"

namespace trapline::report {

// A newline, the heading, one row a bin from the one before the first that is not empty to the one
// after the last. Precondition: the aggregation is a histogram.
void append_histogram(std::string& out, const plan::Aggregation& aggregation,
                      const consume::Datum& datum, std::uint64_t normal);

}  // namespace trapline::report
