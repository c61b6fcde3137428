// Does what a record asks of the tracer: the clause's actions, in source order.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "consume/aggregation_store.h"
#include "consume/record.h"
#include "plan/plan.h"
#include "report/output.h"

namespace trapline::report {

class RecordInterpreter {
 public:
  // All are kept by reference and outlive the interpreter. `probes` may grow meanwhile; a record's
  // probe is an index into it.
  RecordInterpreter(const plan::Program& program, const std::vector<plan::ProbeName>& probes,
                    consume::AggregationStore& store, Output& output);

  struct Outcome {
    std::optional<std::int32_t> exit_status;  // an exit() action was among the record's actions
  };

  // A data record's actions, or a fault record's message. A record that cannot be from this
  // program's bodies (its probe or clause does not exist) is reported as damaged (Output::drops).
  // Errors: the output's.
  Result<Outcome> run(const consume::Record& record);

  // The probe that a record names; nullptr: none.
  const plan::ProbeName* probe_of(const consume::Record& record) const;

 private:
  Result<Outcome> run_actions(const plan::Clause& clause, const FiringInfo& firing,
                              const consume::Record& record);
  Result<> run_action(const plan::Action& action, std::span<const consume::Value> fields,
                      Outcome& outcome);
  Result<> run_fault(const FiringInfo& firing, const consume::Record& record);

  const plan::Program& program_;
  const std::vector<plan::ProbeName>& probes_;
  consume::AggregationStore& store_;
  Output& output_;
};

}  // namespace trapline::report
