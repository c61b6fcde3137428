// The same as JSON: one object a line.
//
//   {"type":"firing",PROBE,"tsc":123,"actions":[ACTION...]}
//   {"type":"aggregation",AGGREGATION}     at the end: those that no printa() has printed
//   {"type":"error",PROBE,"code":1,"instruction":3,"address":0,"message":"error in ..."}
//   {"type":"drops","record":0,"aggregation":0,"dynamic":0,"level":0,"no_slot":0,"malformed":0}
//
//   PROBE        "probe":{"id":1,"provider":"dtrace","module":"","function":"","name":"BEGIN"},
//                "clause":0,"cpu":0,"tid":7
//   ACTION       {"trace":VALUE}  {"printf":"text","values":[VALUE...]}  {"exit":0}
//                {"printa":[{AGGREGATION}...]}
//   AGGREGATION  "name":"a","function":"count","normal":1,
//                "entries":[{"key":[VALUE...],"value":DATUM}...]
//   DATUM        count, sum, min, max: VALUE. avg: {"count","sum"}. stddev:
//   {"count","sum","squares"},
//                squares a string of decimal digits (it has 128 bits). Histograms: an array of
//                {"low":VALUE,"count":VALUE} over the bins that are not empty, ascending; "low" is
//                the value of the bin nearest to zero; for lquantize() the least, null below its
//                base.
//   VALUE        an integer of magnitude up to 2^53 is a number, a greater one a string of its
//   decimal
//                digits, so that no reader rounds it. A string is a string if it is UTF-8, else,
//                like bytes, {"hex":"00ff..."}.
//
// Values of aggregations are not divided: "normal" is the divisor that normalize() set.

#pragma once

#include <string>
#include <vector>

#include "report/output.h"
#include "report/sink.h"

namespace trapline::report {

class JsonOutput : public Output {
 public:
  JsonOutput(const plan::Program& program, ByteSink& out, PrintOptions options);

  Result<> begin_firing(const FiringInfo& firing) override;
  Result<> trace(const consume::Value& value) override;
  Result<> printf(const plan::Action& action, std::span<const consume::Value> fields) override;
  Result<> printa(const plan::Action& action, std::span<const consume::Value> fields,
                  consume::AggregationStore& store) override;
  Result<> exit(std::int32_t status) override;
  Result<> end_firing() override;
  Result<> fault(const FaultInfo& fault) override;
  Result<> drops(const consume::Drops& new_drops) override;
  Result<> finish(consume::AggregationStore& store) override;
  Result<> flush() override;
  void set_options(const PrintOptions& options) override { options_ = options; }

 private:
  void add_action(const std::string& action);
  std::string aggregation(std::uint32_t index, consume::AggregationStore& store) const;

  const plan::Program& program_;
  ByteSink& out_;
  PrintOptions options_;
  std::string line_;
  bool has_actions_ = false;
};

}  // namespace trapline::report
