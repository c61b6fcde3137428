// Bars have 40 columns. Where all counts have one sign a full bar is the sum of all magnitudes;
// where both occur there is a bar of 20 on either side. Bars are of the counts as they are, the
// numbers beside them are divided by `normal`.

#include "report/histogram_text.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "consume/histogram.h"
#include "consume/statistics.h"
#include "report/text.h"

namespace trapline::report {
namespace {

using consume::Datum;

constexpr unsigned kBar = 40;

struct Range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

struct Scale {
  bool positive = false;
  bool negative = false;
  long double total = 0;
};

Scale scale_of(const Datum& datum) {
  Scale scale;
  for (const auto& [bin, count] : datum.bins) {
    scale.positive |= count > 0;
    scale.negative |= count < 0;
    scale.total += std::fabs(static_cast<long double>(count));
  }
  return scale;
}

unsigned bar_length(std::int64_t count, const Scale& scale, unsigned full) {
  if (count == 0 || scale.total == 0) return 0;
  const long double part = std::fabs(static_cast<long double>(count)) * full / scale.total;
  return std::min(full, static_cast<unsigned>(part + 0.5L));
}

void append_row(std::string& out, const std::string& label, std::int64_t count, const Scale& scale,
                std::uint64_t normal) {
  append(out, "%16s ", label.c_str());
  const auto shown = static_cast<long long>(consume::normalized(count, normal));
  if (!scale.negative) {
    const unsigned length = bar_length(count, scale, kBar);
    out += '|' + std::string(length, '@') + std::string(kBar - length, ' ');
  } else if (!scale.positive) {
    const unsigned length = bar_length(count, scale, kBar);
    out += std::string(kBar - length, ' ') + std::string(length, '@') + '|';
  } else {
    const unsigned half = kBar / 2;
    const unsigned length = bar_length(count, scale, half);
    const std::string bar(length, '@');
    const std::string rest(half - length, ' ');
    const std::string blank(half, ' ');
    out += count <= 0 ? rest + bar + '|' + blank : blank + '|' + bar + rest;
  }
  append(out, " %-9lld\n", shown);
}

Range range_of(const plan::Aggregation& aggregation, const Datum& datum, Range empty) {
  if (datum.bins.empty()) return empty;
  const std::uint32_t first = datum.bins.front().first;
  const std::uint32_t last = datum.bins.back().first;
  return {first == 0 ? 0 : first - 1, std::min(last + 1, aggregation.bins - 1)};
}

std::string quantize_label(std::uint32_t bin) {
  return std::to_string(consume::quantize_value(bin));
}

std::string lquantize_label(const plan::Aggregation& aggregation, std::uint32_t bin) {
  const std::int64_t base = aggregation.parameters[0];
  const std::int64_t step = aggregation.parameters[1];
  const std::int64_t levels = aggregation.parameters[2];
  if (bin == 0) return "< " + std::to_string(base);
  if (bin > levels) return ">= " + std::to_string(base + levels * step);
  return std::to_string(base + (bin - 1) * step);
}

// A label is cut to 15 characters, as DTrace's are.
std::string cut(std::string label) {
  label.resize(std::min<std::size_t>(label.size(), 15));
  return label;
}

// nullopt: the bin stands for no integer.
std::optional<std::string> llquantize_label(const consume::LlquantizeShape& shape,
                                            std::uint32_t bin, bool negative_in_range) {
  if (bin == shape.zero) {
    if (shape.lowest == 1) return "0";
    return cut((negative_in_range ? "abs() < " : "< ") + std::to_string(shape.lowest));
  }
  if (bin == 0) return cut("<= -" + std::to_string(shape.overflow));
  if (bin + 1 == shape.total) return cut(">= " + std::to_string(shape.overflow));
  const std::uint32_t distance = bin > shape.zero ? bin - shape.zero : shape.zero - bin;
  const auto value = consume::llquantize_value(shape, distance);
  if (!value) return std::nullopt;
  return cut((bin < shape.zero ? "-" : "") + std::to_string(*value));
}

void append_llquantize(std::string& out, const plan::Aggregation& aggregation, const Datum& datum,
                       const Scale& scale, std::uint64_t normal) {
  const auto shape = consume::llquantize_shape(aggregation);
  const Range range = range_of(aggregation, datum, {shape.zero, shape.zero + 2});
  const auto reach = static_cast<std::uint32_t>(shape.steps_per_factor);
  for (std::uint32_t bin = range.first; bin <= range.last; ++bin) {
    auto label = llquantize_label(shape, bin, range.first < shape.zero);
    // At the ends a bin that stands for nothing borrows the label of the next one outwards that
    // stands for something.
    for (std::uint32_t i = 1; !label && i < reach; ++i) {
      if (bin == range.first && bin >= i) label = llquantize_label(shape, bin - i, true);
      if (bin == range.last && bin + i < shape.total)
        label = llquantize_label(shape, bin + i, true);
      if (bin != range.first && bin != range.last) break;
    }
    if (label) append_row(out, *label, datum.bin(bin), scale, normal);
  }
}

}  // namespace

void append_histogram(std::string& out, const plan::Aggregation& aggregation, const Datum& datum,
                      std::uint64_t normal) {
  const Scale scale = scale_of(datum);
  append(out, "\n%16s %41s %-9s\n", "value", "------------- Distribution -------------", "count");
  switch (aggregation.kind) {
    case plan::AggregationKind::kLlquantize:
      append_llquantize(out, aggregation, datum, scale, normal);
      return;
    case plan::AggregationKind::kLquantize: {
      const Range range = range_of(aggregation, datum, {0, 2});
      for (std::uint32_t bin = range.first; bin <= range.last; ++bin) {
        append_row(out, lquantize_label(aggregation, bin), datum.bin(bin), scale, normal);
      }
      return;
    }
    default: {
      const Range range =
          range_of(aggregation, datum, {consume::kQuantizeZero - 1, consume::kQuantizeZero + 1});
      for (std::uint32_t bin = range.first; bin <= range.last; ++bin) {
        append_row(out, quantize_label(bin), datum.bin(bin), scale, normal);
      }
    }
  }
}

}  // namespace trapline::report
