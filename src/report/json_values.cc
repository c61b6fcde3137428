// See json_values.h.

#include "report/json_values.h"

#include <array>
#include <utility>

#include "consume/histogram.h"
#include "report/format.h"
#include "report/json_text.h"

namespace trapline::report {
namespace {

using consume::Datum;
using consume::Value;
using plan::AggregationKind;

std::string_view function_name(AggregationKind kind) {
  static constexpr std::array<std::string_view, 9> kNames{
      "count", "sum", "min", "max", "avg", "stddev", "quantize", "lquantize", "llquantize"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view type_name(const plan::ValueType& type) {
  switch (type.kind) {
    case plan::ValueKind::kInteger:
      return type.is_signed ? "int" : "uint";
    case plan::ValueKind::kString:
      return "string";
    case plan::ValueKind::kBytes:
      return "bytes";
  }
  return "bytes";
}

std::string json_values(std::span<const Value> values) {
  std::string out = "[";
  for (const Value& value : values) {
    if (out.size() > 1) out += ',';
    out += json_value(value);
  }
  return out + ']';
}

std::string bound(const std::optional<consume::BinEdge>& value) {
  return value ? json_wide(*value) : "null";
}

std::string json_datum(const plan::Aggregation& aggregation, const Datum& datum) {
  switch (aggregation.kind) {
    case AggregationKind::kCount:
      return json_integer(datum.count);
    case AggregationKind::kSum:
    case AggregationKind::kMin:
    case AggregationKind::kMax:
      return json_integer(datum.value);
    case AggregationKind::kAvg:
      return "{\"count\":" + json_integer(datum.count) + ",\"sum\":" + json_integer(datum.value) +
             "}";
    case AggregationKind::kStddev:
      return "{\"count\":" + json_integer(datum.count) + ",\"sum\":" + json_integer(datum.value) +
             ",\"squares\":{\"integer\":\"" + decimal(datum.squares) + "\"}}";
    default:
      break;
  }
  std::string out = "[";
  for (const auto& [bin, count] : datum.bins) {
    if (out.size() > 1) out += ',';
    const consume::BinBounds bounds = consume::bin_bounds(aggregation, bin);
    out += "{\"low\":" + bound(bounds.low) + ",\"high\":" + bound(bounds.high) +
           ",\"count\":" + json_integer(count) + "}";
  }
  return out + ']';
}

}  // namespace

std::string json_value(const Value& value) {
  if (value.type.kind == plan::ValueKind::kInteger) {
    return value.type.is_signed ? json_integer(value.as_signed()) : json_unsigned(value.integer);
  }
  if (value.type.kind == plan::ValueKind::kBytes) return json_hex(value.bytes);
  return json_string(value.bytes);
}

std::string json_probe(const plan::ProbeName& probe) {
  return "{\"id\":" + std::to_string(probe.id) + ",\"provider\":" + json_string(probe.provider) +
         ",\"module\":" + json_string(probe.module) +
         ",\"function\":" + json_string(probe.function) + ",\"name\":" + json_string(probe.name) +
         "}";
}

std::string json_aggregation(const plan::Program& program, std::uint32_t index,
                             const consume::AggregationStore& store,
                             const consume::SortOptions& sort) {
  const plan::Aggregation& aggregation = program.aggregations[index];
  std::string out = "\"name\":" + json_string(aggregation.name) + ",\"function\":\"" +
                    std::string(function_name(aggregation.kind)) +
                    "\",\"normal\":" + json_unsigned(store.normal(index)) + ",\"types\":[";
  for (const plan::ValueType& type :
       std::span(aggregation.keys).first(plan::printed_keys(aggregation))) {
    if (&type != aggregation.keys.data()) out += ',';
    out += '"' + std::string(type_name(type)) + '"';
  }
  out += "],\"entries\":[";
  bool first = true;
  for (const auto& row : store.rows(std::array{index}, sort)) {
    if (!std::exchange(first, false)) out += ',';
    out += "{\"key\":" + json_values(*row.components) +
           ",\"value\":" + json_datum(aggregation, *row.data[0]) + "}";
  }
  return out + "]";
}

std::string json_drops(const consume::Drops& drops) {
  return "\"record\":" + json_unsigned(drops.record) +
         ",\"aggregation\":" + json_unsigned(drops.aggregation) +
         ",\"dynamic\":" + json_unsigned(drops.dynamic) +
         ",\"speculation\":" + json_unsigned(drops.speculation) +
         ",\"speculative\":" + json_unsigned(drops.speculative) +
         ",\"level\":" + json_unsigned(drops.level) +
         ",\"no_slot\":" + json_unsigned(drops.no_slot) +
         ",\"samples\":" + json_unsigned(drops.samples) +
         ",\"malformed\":" + json_unsigned(drops.malformed);
}

void JsonActions::add(const std::string& action) {
  list_ += list_.empty() ? '[' : ',';
  list_ += action;
}

void JsonActions::trace(const Value& value) { add("{\"trace\":" + json_value(value) + "}"); }

void JsonActions::printf(const plan::Action& action, std::span<const Value> fields,
                         const PrintOptions& options) {
  std::string text;
  append_format(text, action.format, {fields, {}, &options});
  std::string values = "[";
  for (const std::uint32_t field : action.fields) {
    if (field >= fields.size()) continue;
    if (values.size() > 1) values += ',';
    values += json_value(fields[field]);
  }
  add("{\"printf\":" + json_string(text) + ",\"values\":" + values + "]}");
}

void JsonActions::printa(const plan::Program& program, const plan::Action& action,
                         const consume::AggregationStore& store, const consume::SortOptions& sort) {
  std::string list;
  for (const std::uint32_t index : action.aggregations) {
    if (index >= program.aggregations.size()) continue;
    if (!list.empty()) list += ',';
    list += "{" + json_aggregation(program, index, store, sort) + "}";
  }
  add("{\"printa\":[" + list + "]}");
}

void JsonActions::exit(std::int32_t status) { add("{\"exit\":" + std::to_string(status) + "}"); }

std::string JsonActions::take() {
  if (list_.empty()) return "[]";
  return std::exchange(list_, {}) + ']';
}

}  // namespace trapline::report
