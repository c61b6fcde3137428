#include "statistics.h"

#include <algorithm>
#include <cstddef>

namespace trapline::bench {

namespace {

// Linear between the two nearest values. Precondition: sorted, not empty.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

}  // namespace

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)};
}

}  // namespace trapline::bench
