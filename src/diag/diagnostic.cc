// The collector: keeps, counts, sorts.

#include "diag/diagnostic.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace trapline::diag {

Diagnostic& Diagnostics::add(Diagnostic diagnostic) {
  const auto same =
      std::find_if(diagnostics_.begin(), diagnostics_.end(), [&](const Diagnostic& other) {
        return other.range == diagnostic.range && other.tag == diagnostic.tag &&
               other.text == diagnostic.text;
      });
  if (same != diagnostics_.end()) return *same;
  if (diagnostic.severity == Severity::kError) ++error_count_;
  if (diagnostics_.size() < cap_) return diagnostics_.emplace_back(std::move(diagnostic));
  ++dropped_;
  overflow_ = std::move(diagnostic);
  return overflow_;
}

Diagnostic& Diagnostics::error(std::string_view tag, Range range, std::string text,
                               std::string hint) {
  return add({.severity = Severity::kError,
              .tag = std::string(tag),
              .range = range,
              .text = std::move(text),
              .hint = std::move(hint),
              .region = {},
              .notes = {}});
}

Diagnostic& Diagnostics::warning(std::string_view tag, Range range, std::string text,
                                 std::string hint) {
  return add({.severity = Severity::kWarning,
              .tag = std::string(tag),
              .range = range,
              .text = std::move(text),
              .hint = std::move(hint),
              .region = {},
              .notes = {}});
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  // By index, so that those of one place stay as they came. (std::stable_sort of libstdc++ 12 warns
  // under clang.)
  std::vector<std::size_t> order(diagnostics_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // kNoSource is the greatest id: what has no place comes last.
  std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    const Range& left = diagnostics_[a].range;
    const Range& right = diagnostics_[b].range;
    return std::tie(left.source, left.begin, a) < std::tie(right.source, right.begin, b);
  });
  std::vector<Diagnostic> result;
  result.reserve(order.size());
  for (const std::size_t index : order) result.push_back(diagnostics_[index]);
  return result;
}

}  // namespace trapline::diag
