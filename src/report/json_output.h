// The same as JSON: one object a line.
//
//   {"type":"firing",PROBE,"tsc":123,"actions":[ACTION...]}
//   {"type":"aggregation",AGGREGATION}     at the end: those that no printa() has printed
//   {"type":"error",PROBE,"code":1,"instruction":3,"address":0,"message":"error in ..."}
//   {"type":"drops","record":0,"aggregation":0,"dynamic":0,"speculation":0,"speculative":0,
//    "level":0,"no_slot":0,"samples":0,"malformed":0}
//
//   PROBE        "probe":{"id":1,"provider":"dtrace","module":"","function":"","name":"BEGIN"},
//                "clause":0,"cpu":0,"tid":7
//   ACTION, AGGREGATION: see json_values.h

#pragma once

#include <string>

#include "report/json_values.h"
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
  Result<> failed(const FiringInfo& firing, const std::string& text) override;
  Result<> drops(const consume::Drops& new_drops) override;
  Result<> finish(consume::AggregationStore& store) override;
  Result<> flush() override;
  void set_options(const PrintOptions& options) override { options_ = options; }
  const PrintOptions& options() const override { return options_; }

 private:
  const plan::Program& program_;
  ByteSink& out_;
  PrintOptions options_;
  std::string line_;
  JsonActions actions_;
};

}  // namespace trapline::report
