// printf's and printa's formats over recorded values.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "consume/aggregation_store.h"
#include "consume/value.h"
#include "plan/plan.h"
#include "report/print_options.h"

namespace trapline::report {

// A width or precision that stands in the format is cut to kMaxWidth, one that was recorded, which
// the traced process may have chosen, to kMaxRecordedWidth.
inline constexpr int kMaxWidth = 64 * 1024 * 1024;
inline constexpr int kMaxRecordedWidth = 64 * 1024;

// What the %@ conversions of a printa() show, one an aggregation of the call.
struct AggregationValue {
  const plan::Aggregation* aggregation = nullptr;
  const consume::Datum* datum = nullptr;  // nullptr: no such key, shown as 0
  std::uint64_t normal = 1;
};

struct FormatInput {
  // printf: the clause's fields. printa: the key's components. An index past the end shows as an
  // empty value.
  std::span<const consume::Value> values;
  std::span<const AggregationValue> aggregations;
  const PrintOptions* options = nullptr;
};

void append_format(std::string& out, std::span<const plan::FormatItem> items,
                   const FormatInput& input);

}  // namespace trapline::report
