// Does what a record asks of the tracer: the clause's actions, in source order.
//
// A record that belongs to a speculation is kept until a commit() or discard() of it comes.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
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

  // What actions need of the session.
  struct Session {
    // setopt(). Errors: the text says why not.
    std::function<Result<>(std::string_view name, std::string_view value)> set_option;
    // The speculation of `token` in process `source` is over and its records are dealt with.
    std::function<void(std::uint32_t source, std::uint32_t token)> free_speculation;
    std::uint64_t specsize = 0;  // bytes of records that a speculation keeps
  };
  void set_session(Session session) { session_ = std::move(session); }

  struct Outcome {
    std::optional<std::int32_t> exit_status;  // an exit() action was among the record's actions
  };

  // A data record's actions, or a fault record's message. A record that cannot be from this
  // program's bodies (its probe or clause does not exist) is reported as damaged (Output::drops).
  // Errors: the output's.
  Result<Outcome> run(const consume::Record& record);

  // Speculative records beyond specsize since the last call.
  consume::Drops take_drops() { return std::exchange(drops_, {}); }

  // The probe that a record names; nullptr: none.
  const plan::ProbeName* probe_of(const consume::Record& record) const;

 private:
  Result<Outcome> run_actions(const plan::Clause& clause, const FiringInfo& firing,
                              const consume::Record& record);
  Result<> run_action(const plan::Action& action, std::span<const consume::Value> fields,
                      const FiringInfo& firing, std::uint32_t source, Outcome& outcome);
  Result<> run_text_action(const plan::Action& action, std::span<const consume::Value> fields,
                           const FiringInfo& firing);
  Result<> set_option(const plan::Action& action, std::span<const consume::Value> fields,
                      const FiringInfo& firing);
  void keep(const consume::Record& record);
  Result<> end_speculation(plan::ActionKind kind, std::uint32_t source, std::uint32_t token,
                           Outcome& outcome);
  Result<> run_fault(const FiringInfo& firing, const consume::Record& record);

  const plan::Program& program_;
  const std::vector<plan::ProbeName>& probes_;
  consume::AggregationStore& store_;
  Output& output_;
  Session session_;
  struct Speculation {
    std::vector<consume::Record> records;
    std::uint64_t bytes = 0;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Speculation> speculations_;  // source, token
  consume::Drops drops_;
};

}  // namespace trapline::report
