#include "report/json_output.h"

#include <array>
#include <limits>
#include <utility>

#include "consume/histogram.h"
#include "consume/statistics.h"
#include "report/format.h"
#include "report/json_text.h"
#include "report/text_output.h"

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

std::string json_value(const Value& value) {
  if (value.type.kind == plan::ValueKind::kInteger) {
    return value.type.is_signed ? json_integer(value.as_signed()) : json_unsigned(value.integer);
  }
  if (value.type.kind == plan::ValueKind::kBytes) return json_hex(value.bytes);
  return json_string(value.bytes);
}

std::string json_values(std::span<const Value> values) {
  std::string out = "[";
  for (const Value& value : values) {
    if (out.size() > 1) out += ',';
    out += json_value(value);
  }
  return out + ']';
}

std::string json_probe(const plan::ProbeName& probe) {
  return "{\"id\":" + std::to_string(probe.id) + ",\"provider\":" + json_string(probe.provider) +
         ",\"module\":" + json_string(probe.module) +
         ",\"function\":" + json_string(probe.function) + ",\"name\":" + json_string(probe.name) +
         "}";
}

std::string firing_members(const FiringInfo& firing) {
  return "\"probe\":" + json_probe(*firing.probe) + ",\"clause\":" + std::to_string(firing.clause) +
         ",\"cpu\":" + std::to_string(firing.cpu) + ",\"tid\":" + std::to_string(firing.tid);
}

// The value of the bin that is nearest to zero; "null": below the lowest.
std::string bin_low(const plan::Aggregation& aggregation, std::uint32_t bin) {
  switch (aggregation.kind) {
    case AggregationKind::kLquantize:
      if (bin == 0) return "null";
      return json_integer(aggregation.parameters[0] +
                          (static_cast<std::int64_t>(bin) - 1) * aggregation.parameters[1]);
    case AggregationKind::kLlquantize: {
      const auto shape = consume::llquantize_shape(aggregation);
      if (bin == shape.zero) return "0";
      const std::uint32_t distance = bin > shape.zero ? bin - shape.zero : shape.zero - bin;
      const bool outermost = bin == 0 || bin + 1 == shape.total;
      const std::uint64_t low =
          outermost ? shape.overflow : consume::llquantize_value(shape, distance).value_or(0);
      return bin > shape.zero ? json_unsigned(low) : json_negated(low);
    }
    default:
      return json_integer(consume::quantize_value(bin));
  }
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
             ",\"squares\":\"" + decimal(datum.squares) + "\"}";
    default:
      break;
  }
  std::string out = "[";
  for (const auto& [bin, count] : datum.bins) {
    if (out.size() > 1) out += ',';
    out += "{\"low\":" + bin_low(aggregation, bin) + ",\"count\":" + json_integer(count) + "}";
  }
  return out + ']';
}

}  // namespace

JsonOutput::JsonOutput(const plan::Program& program, ByteSink& out, PrintOptions options)
    : program_(program), out_(out), options_(std::move(options)) {}

std::string JsonOutput::aggregation(std::uint32_t index, consume::AggregationStore& store) const {
  const plan::Aggregation& aggregation = program_.aggregations[index];
  std::string out = "\"name\":" + json_string(aggregation.name) + ",\"function\":\"" +
                    std::string(function_name(aggregation.kind)) +
                    "\",\"normal\":" + json_unsigned(store.normal(index)) + ",\"entries\":[";
  bool first = true;
  for (const auto& row : store.rows(std::array{index}, options_.sort)) {
    if (!std::exchange(first, false)) out += ',';
    out += "{\"key\":" + json_values(*row.components) +
           ",\"value\":" + json_datum(aggregation, *row.data[0]) + "}";
  }
  return out + "]";
}

void JsonOutput::add_action(const std::string& action) {
  if (std::exchange(has_actions_, true)) line_ += ',';
  line_ += action;
}

Result<> JsonOutput::begin_firing(const FiringInfo& firing) {
  line_ = "{\"type\":\"firing\"," + firing_members(firing) +
          ",\"tsc\":" + json_unsigned(firing.tsc) + ",\"actions\":[";
  has_actions_ = false;
  return {};
}

Result<> JsonOutput::trace(const Value& value) {
  add_action("{\"trace\":" + json_value(value) + "}");
  return {};
}

Result<> JsonOutput::printf(const plan::Action& action, std::span<const Value> fields) {
  std::string text;
  append_format(text, action.format, {fields, {}, &options_});
  std::string values = "[";
  for (const std::uint32_t field : action.fields) {
    if (field >= fields.size()) continue;
    if (values.size() > 1) values += ',';
    values += json_value(fields[field]);
  }
  add_action("{\"printf\":" + json_string(text) + ",\"values\":" + values + "]}");
  return {};
}

Result<> JsonOutput::printa(const plan::Action& action, std::span<const Value>,
                            consume::AggregationStore& store) {
  std::string list;
  for (const std::uint32_t index : action.aggregations) {
    if (index >= program_.aggregations.size()) continue;
    if (!list.empty()) list += ',';
    list += "{" + aggregation(index, store) + "}";
    if (!store.empty(index)) store.set_printed(index);
  }
  add_action("{\"printa\":[" + list + "]}");
  return {};
}

Result<> JsonOutput::exit(std::int32_t status) {
  add_action("{\"exit\":" + std::to_string(status) + "}");
  return {};
}

Result<> JsonOutput::end_firing() {
  line_ += "]}\n";
  return out_.write(std::exchange(line_, {}));
}

Result<> JsonOutput::fault(const FaultInfo& fault) {
  return out_.write("{\"type\":\"error\"," + firing_members(fault.firing) +
                    ",\"code\":" + std::to_string(static_cast<std::uint32_t>(fault.fault)) +
                    ",\"instruction\":" + std::to_string(fault.instruction) +
                    ",\"address\":" + json_unsigned(fault.address) +
                    ",\"message\":" + json_string(fault_message(fault)) + "}\n");
}

Result<> JsonOutput::drops(const consume::Drops& drops) {
  if (!drops.any()) return {};
  return out_.write("{\"type\":\"drops\",\"record\":" + json_unsigned(drops.record) +
                    ",\"aggregation\":" + json_unsigned(drops.aggregation) + ",\"dynamic\":" +
                    json_unsigned(drops.dynamic) + ",\"level\":" + json_unsigned(drops.level) +
                    ",\"no_slot\":" + json_unsigned(drops.no_slot) +
                    ",\"malformed\":" + json_unsigned(drops.malformed) + "}\n");
}

Result<> JsonOutput::finish(consume::AggregationStore& store) {
  for (std::uint32_t index = 0; index < program_.aggregations.size(); ++index) {
    if (store.printed(index) || store.empty(index)) continue;
    TL_TRY(out_.write("{\"type\":\"aggregation\"," + aggregation(index, store) + "}\n"));
  }
  return flush();
}

Result<> JsonOutput::flush() { return out_.flush(); }

}  // namespace trapline::report
