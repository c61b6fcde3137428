#include "report/record_interpreter.h"

#include <algorithm>
#include <cstring>

namespace trapline::report {

using consume::Record;
using consume::Value;
using plan::ActionKind;

RecordInterpreter::RecordInterpreter(const plan::Program& program,
                                     const std::vector<plan::ProbeName>& probes,
                                     consume::AggregationStore& store, Output& output)
    : program_(program), probes_(probes), store_(store), output_(output) {}

const plan::ProbeName* RecordInterpreter::probe_of(const Record& record) const {
  return record.probe < probes_.size() ? &probes_[record.probe] : nullptr;
}

Result<RecordInterpreter::Outcome> RecordInterpreter::run(const Record& record) {
  const plan::ProbeName* probe = probe_of(record);
  if (probe == nullptr || record.clause >= program_.clauses.size()) {
    TL_TRY(output_.drops({.malformed = 1}));
    return Outcome{};
  }
  const FiringInfo firing{probe, record.clause, record.cpu, record.tid, record.tsc};
  if (record.kind == consume::kFaultRecord) {
    TL_TRY(run_fault(firing, record));
    return Outcome{};
  }
  return run_actions(program_.clauses[record.clause], firing, record);
}

Result<> RecordInterpreter::run_fault(const FiringInfo& firing, const Record& record) {
  const auto fields = consume::fault_of(record);
  if (!fields) return output_.drops({.malformed = 1});
  return output_.fault(
      {firing, static_cast<plan::Fault>(fields->fault), fields->instruction, fields->address});
}

Result<RecordInterpreter::Outcome> RecordInterpreter::run_actions(const plan::Clause& clause,
                                                                  const FiringInfo& firing,
                                                                  const Record& record) {
  std::vector<Value> fields;
  fields.reserve(clause.fields.size());
  for (const auto& field : clause.fields) {
    fields.push_back(consume::decode_field(field, record.payload));
  }
  Outcome outcome;
  TL_TRY(output_.begin_firing(firing));
  for (const auto& action : clause.actions) TL_TRY(run_action(action, fields, outcome));
  TL_TRY(output_.end_firing());
  return outcome;
}

Result<> RecordInterpreter::run_action(const plan::Action& action, std::span<const Value> fields,
                                       Outcome& outcome) {
  static const Value none;
  const std::uint32_t first = action.fields.empty() ? plan::kNone : action.fields.front();
  const Value& operand = first < fields.size() ? fields[first] : none;
  const std::uint32_t aggregation =
      action.aggregations.empty() ? plan::kNone : action.aggregations.front();
  switch (action.kind) {
    case ActionKind::kPrintf:
      return output_.printf(action, fields);
    case ActionKind::kTrace:
      return output_.trace(operand);
    case ActionKind::kPrinta:
      return output_.printa(action, fields, store_);
    case ActionKind::kNormalize:
      store_.normalize(aggregation, operand.integer);
      return {};
    case ActionKind::kDenormalize:
      store_.normalize(aggregation, 1);
      return {};
    case ActionKind::kClear:
      store_.clear(aggregation);
      return {};
    case ActionKind::kTruncate:
      store_.truncate(aggregation, action.fields.empty()
                                       ? std::nullopt
                                       : std::optional<std::int64_t>(operand.as_signed()));
      return {};
    case ActionKind::kExit:
      outcome.exit_status = static_cast<std::int32_t>(operand.integer);
      return output_.exit(*outcome.exit_status);
  }
  return {};
}

}  // namespace trapline::report
