#include "report/json_output.h"

#include <utility>

#include "report/json_text.h"
#include "report/text_output.h"

namespace trapline::report {
namespace {

using consume::Value;

std::string firing_members(const FiringInfo& firing) {
  return "\"probe\":" + json_probe(*firing.probe) + ",\"clause\":" + std::to_string(firing.clause) +
         ",\"cpu\":" + std::to_string(firing.cpu) + ",\"tid\":" + std::to_string(firing.tid);
}

}  // namespace

JsonOutput::JsonOutput(const plan::Program& program, ByteSink& out, PrintOptions options)
    : program_(program), out_(out), options_(std::move(options)) {}

Result<> JsonOutput::begin_firing(const FiringInfo& firing) {
  line_ = "{\"type\":\"firing\"," + firing_members(firing) +
          ",\"tsc\":" + json_unsigned(firing.tsc) + ",\"actions\":";
  return {};
}

Result<> JsonOutput::trace(const Value& value) {
  actions_.trace(value);
  return {};
}

Result<> JsonOutput::printf(const plan::Action& action, std::span<const Value> fields) {
  actions_.printf(action, fields, options_);
  return {};
}

Result<> JsonOutput::printa(const plan::Action& action, std::span<const Value>,
                            consume::AggregationStore& store) {
  actions_.printa(program_, action, store, options_.sort);
  for (const std::uint32_t index : action.aggregations) {
    if (!store.empty(index)) store.set_printed(index);
  }
  return {};
}

Result<> JsonOutput::exit(std::int32_t status) {
  actions_.exit(status);
  return {};
}

Result<> JsonOutput::end_firing() {
  line_ += actions_.take() + "}\n";
  return out_.write(std::exchange(line_, {}));
}

Result<> JsonOutput::fault(const FaultInfo& fault) {
  return out_.write("{\"type\":\"error\"," + firing_members(fault.firing) +
                    ",\"code\":" + std::to_string(static_cast<std::uint32_t>(fault.fault)) +
                    ",\"instruction\":" + std::to_string(fault.instruction) +
                    ",\"address\":" + json_unsigned(fault.address) +
                    ",\"message\":" + json_message(fault_message(fault)) + "}\n");
}

Result<> JsonOutput::failed(const FiringInfo& firing, const std::string& text) {
  return out_.write("{\"type\":\"error\"," + firing_members(firing) +
                    ",\"message\":" + json_message(text) + "}\n");
}

Result<> JsonOutput::drops(const consume::Drops& drops) {
  if (!drops.any()) return {};
  return out_.write("{\"type\":\"drops\"," + json_drops(drops) + "}\n");
}

Result<> JsonOutput::finish(consume::AggregationStore& store) {
  for (std::uint32_t index = 0; index < program_.aggregations.size(); ++index) {
    if (store.printed(index) || store.empty(index)) continue;
    TL_TRY(out_.write("{\"type\":\"aggregation\"," +
                      json_aggregation(program_, index, store, options_.sort) + "}\n"));
  }
  return flush();
}

Result<> JsonOutput::flush() { return out_.flush(); }

}  // namespace trapline::report
