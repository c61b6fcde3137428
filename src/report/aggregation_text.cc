#include "report/aggregation_text.h"

#include "consume/statistics.h"
#include "report/histogram_text.h"
#include "report/text.h"

namespace trapline::report {
namespace {

using consume::Value;
using plan::ValueKind;

constexpr int kKeyWidth = 50;

// DTrace prints keys of one and two bytes as unsigned numbers whatever their type: (char)-2 is 254.
void append_integer_key(std::string& out, const Value& key) {
  switch (key.type.size) {
    case 1:
      return append(out, " %3u", static_cast<unsigned>(key.integer & 0xff));
    case 2:
      return append(out, " %5u", static_cast<unsigned>(key.integer & 0xffff));
    case 4:
      if (key.type.is_signed) return append(out, " %8d", static_cast<int>(key.integer));
      return append(out, " %8u", static_cast<unsigned>(key.integer));
    default:
      if (key.type.is_signed) return append(out, " %16lld", static_cast<long long>(key.integer));
      return append(out, " %16llu", static_cast<unsigned long long>(key.integer));
  }
}

void append_key(std::string& out, const Value& key, const PrintOptions& options) {
  if (key.type.kind == ValueKind::kInteger) return append_integer_key(out, key);
  std::string bytes = key.bytes;
  if (bytes.size() < key.type.size) bytes.resize(key.type.size, '\0');
  if (options.rawbytes) return append_hex_dump(out, bytes);
  append_bytes(out, bytes, kKeyWidth);
}

void append_datum(std::string& out, const plan::Aggregation& aggregation,
                  const consume::Datum* datum, std::uint64_t normal) {
  static const consume::Datum zero;
  const consume::Datum& shown = datum != nullptr ? *datum : zero;
  if (consume::is_histogram(aggregation.kind)) {
    append_histogram(out, aggregation, shown, normal);
    return;
  }
  append(out, " %16lld",
         static_cast<long long>(consume::scalar_value(aggregation.kind, shown, normal)));
}

// Option aggpercpu: a line for each processor, whether it has made an update or not.
void append_processors(std::string& out, const plan::Program& program,
                       const plan::Aggregation& aggregation,
                       const consume::ByProcessor* by_processor, std::uint64_t normal) {
  const consume::Datum initial = consume::AggregationStore::initial(aggregation.kind);
  for (std::uint32_t cpu = 0; cpu < program.processors; ++cpu) {
    append(out, "\n    [CPU %u]", static_cast<unsigned>(cpu));
    const consume::Datum* datum = &initial;
    if (by_processor != nullptr) {
      const auto found = by_processor->find(cpu);
      if (found != by_processor->end()) datum = &found->second;
    }
    append_datum(out, aggregation, datum, normal);
  }
}

}  // namespace

std::size_t append_aggregations(std::string& out, std::span<const std::uint32_t> aggregations,
                                const consume::AggregationStore& store,
                                const PrintOptions& options) {
  const auto rows = store.rows(aggregations, options.sort);
  for (const auto& row : rows) {
    for (const Value& key : *row.components) append_key(out, key, options);
    for (std::size_t i = 0; i < aggregations.size(); ++i) {
      if (aggregations[i] >= store.program().aggregations.size()) continue;
      const plan::Aggregation& aggregation = store.program().aggregations[aggregations[i]];
      const std::uint64_t normal = store.normal(aggregations[i]);
      append_datum(out, aggregation, row.data[i], normal);
      if (aggregation.per_processor)
        append_processors(out, store.program(), aggregation, row.by_processor[i], normal);
    }
    out += '\n';
  }
  return rows.size();
}

}  // namespace trapline::report
