#include "report/record_interpreter.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "report/format.h"

namespace trapline::report {

using consume::Record;
using consume::Value;
using plan::ActionKind;

namespace {

constexpr std::uint64_t kRecordOverhead = 32;  // what a kept record costs beside its data

}  // namespace

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
  if (record.speculation != 0) {
    keep(record);
    return Outcome{};
  }
  return run_actions(program_.clauses[record.clause], firing, record);
}

void RecordInterpreter::keep(const Record& record) {
  Speculation& speculation = speculations_[{record.source, record.speculation}];
  const std::uint64_t size = record.payload.size() + kRecordOverhead;
  if (speculation.bytes + size > session_.specsize) {
    ++drops_.speculative;
    return;
  }
  speculation.bytes += size;
  speculation.records.push_back(record);
}

Result<> RecordInterpreter::end_speculation(ActionKind kind, std::uint32_t source,
                                            std::uint32_t token, Outcome& outcome) {
  if (token == 0) return {};  // it was not active
  const auto found = speculations_.find({source, token});
  Speculation speculation;
  if (found != speculations_.end()) {
    speculation = std::move(found->second);
    speculations_.erase(found);
  }
  if (session_.free_speculation) session_.free_speculation(source, token);
  if (kind == ActionKind::kDiscard) return {};
  for (Record& record : speculation.records) {
    record.speculation = 0;
    TL_TRY_ASSIGN(const Outcome inner, run(record));
    if (inner.exit_status) outcome.exit_status = inner.exit_status;
  }
  return {};
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
  // What only ends speculations prints nothing of its own.
  const bool shows =
      clause.actions.empty() ||
      !std::ranges::all_of(clause.actions, [](const plan::Action& action) {
        return action.kind == ActionKind::kCommit || action.kind == ActionKind::kDiscard;
      });
  if (shows) TL_TRY(output_.begin_firing(firing));
  for (const auto& action : clause.actions)
    TL_TRY(run_action(action, fields, firing, record.source, outcome));
  if (shows) TL_TRY(output_.end_firing());
  return outcome;
}

// system() and freopen(): their text is made as printf() makes it.
Result<> RecordInterpreter::run_text_action(const plan::Action& action,
                                            std::span<const Value> fields,
                                            const FiringInfo& firing) {
  std::string text;
  append_format(text, action.format, {fields, {}, &output_.options()});
  if (action.kind == ActionKind::kSystem) return output_.system(text);
  if (text == "." || text == "..")
    return output_.failed(firing, "couldn't freopen() \"" + text + "\"");
  const auto done = output_.freopen(text);
  if (done) return {};
  return output_.failed(firing, done.error().text());
}

Result<> RecordInterpreter::set_option(const plan::Action& action, std::span<const Value> fields,
                                       const FiringInfo& firing) {
  const auto text = [&](std::size_t i) {
    const bool there = i < action.fields.size() && action.fields[i] < fields.size();
    return there ? fields[action.fields[i]].bytes : std::string("1");
  };
  const std::string name = text(0);
  const std::string value = text(1);
  if (!session_.set_option) return {};
  const auto done = session_.set_option(name, value);
  if (done) return {};
  return output_.failed(
      firing, "couldn't set option \"" + name + "\" to \"" + value + "\": " + done.error().text());
}

Result<> RecordInterpreter::run_action(const plan::Action& action, std::span<const Value> fields,
                                       const FiringInfo& firing, std::uint32_t source,
                                       Outcome& outcome) {
  static const Value none;
  const std::uint32_t first = action.fields.empty() ? plan::kNone : action.fields.front();
  const Value& operand = first < fields.size() ? fields[first] : none;
  const std::uint32_t next = action.fields.size() < 2 ? plan::kNone : action.fields[1];
  const Value& second = next < fields.size() ? fields[next] : none;
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
    case ActionKind::kTracemem: {
      std::size_t shown = operand.bytes.size();
      // A negative number of bytes is all of them.
      const bool counts =
          next < fields.size() && (!second.type.is_signed || second.as_signed() >= 0);
      if (counts) shown = std::min<std::uint64_t>(shown, second.integer);
      return output_.tracemem(operand, shown);
    }
    case ActionKind::kPrint: {
      if (program_.types == nullptr) return {};
      Value shown = second;
      shown.bytes.resize(std::min(shown.bytes.size(), output_.options().printsize));
      return output_.print(action, operand, shown, *program_.types);
    }
    case ActionKind::kSystem:
    case ActionKind::kFreopen:
      return run_text_action(action, fields, firing);
    case ActionKind::kFtruncate:
      return output_.ftruncate();
    case ActionKind::kSetopt:
      return set_option(action, fields, firing);
    case ActionKind::kCommit:
    case ActionKind::kDiscard:
      return end_speculation(action.kind, source, static_cast<std::uint32_t>(operand.integer),
                             outcome);
    case ActionKind::kExit:
      outcome.exit_status = static_cast<std::int32_t>(operand.integer);
      return output_.exit(*outcome.exit_status);
  }
  return {};
}

}  // namespace trapline::report
