// The seam between what happened (records, aggregations, losses) and how it is written: as DTrace's
// text or as JSON.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "consume/aggregation_store.h"
#include "consume/record.h"
#include "consume/value.h"
#include "plan/plan.h"
#include "report/print_options.h"

namespace trapline::report {

// One firing of one clause.
struct FiringInfo {
  const plan::ProbeName* probe = nullptr;  // never null
  std::uint32_t clause = 0;
  std::uint32_t cpu = 0;
  std::uint32_t tid = 0;
  std::uint64_t tsc = 0;
};

struct FaultInfo {
  FiringInfo firing;
  plan::Fault fault = plan::Fault::kNoFault;
  std::uint32_t instruction = 0;
  std::uint64_t address = 0;
};

// Calls come in this order: for each record begin_firing, its actions, end_firing; anything else
// between records; finish once, last. Errors are those of the sinks.
class Output {
 public:
  virtual ~Output() = default;

  virtual Result<> begin_firing(const FiringInfo& firing) = 0;
  virtual Result<> trace(const consume::Value& value) = 0;
  // `fields`: all of the clause's fields, decoded.
  virtual Result<> printf(const plan::Action& action, std::span<const consume::Value> fields) = 0;
  virtual Result<> printa(const plan::Action& action, std::span<const consume::Value> fields,
                          consume::AggregationStore& store) = 0;
  // `shown`: how many of the bytes.
  virtual Result<> tracemem(const consume::Value& bytes, std::size_t shown);
  // What lies at an address; the default prints it as a printf() would.
  virtual Result<> print(const plan::Action& action, const consume::Value& address,
                         const consume::Value& bytes, const ctypes::TypeTable& types);
  // A command for the shell, run once all output so far is out. What became of it is its own
  // business, as in DTrace.
  virtual Result<> system(const std::string& command);
  // Where text goes from now on; empty: back to where it went first. The default: there is no text
  // to redirect. Errors: the file cannot be opened.
  virtual Result<> freopen(const std::string& path);
  virtual Result<> ftruncate() { return {}; }
  virtual Result<> exit(std::int32_t status) = 0;
  virtual Result<> end_firing() = 0;

  virtual Result<> fault(const FaultInfo& fault) = 0;
  // An action that the tracer could not do.
  virtual Result<> failed(const FiringInfo& firing, const std::string& text) = 0;
  virtual Result<> drops(const consume::Drops& new_drops) = 0;
  // The end of tracing: all aggregations that no printa() has printed.
  virtual Result<> finish(consume::AggregationStore& store) = 0;
  virtual Result<> flush() = 0;

  // setopt() and the like change them while running.
  virtual void set_options(const PrintOptions& options) = 0;
  virtual const PrintOptions& options() const = 0;
};

}  // namespace trapline::report
