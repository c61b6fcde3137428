// Values, aggregations and actions as JSON, for -x format=json and the protocol of trapline serve.
//
//   VALUE        an integer of magnitude up to 2^53 is a number, a greater one
//                {"integer":"18446744073709551615"}, so that no reader rounds it. A string is a
//                string if it is UTF-8, else, like bytes, {"hex":"00ff..."}.
//   ACTION       {"trace":VALUE}  {"printf":"text","values":[VALUE...]}  {"exit":0}
//                {"printa":[{AGGREGATION}...]}
//   AGGREGATION  "name":"a","function":"count","normal":1,"types":["int"...],
//                "entries":[{"key":[VALUE...],"value":DATUM}...]
//                "types" has one of "int", "uint", "string", "bytes" for each component of the key.
//   DATUM        count, sum, min, max: VALUE. avg: {"count","sum"}.
//                stddev: {"count","sum","squares"}, squares always {"integer":"..."}: it has 128
//                bits. Histograms: an array of {"low":VALUE,"high":VALUE,"count":VALUE} over the
//                bins that are not empty, ascending; low and high are the least and the greatest
//                value of the bin, both included; null: no bound.
//
// Values of aggregations are not divided: "normal" is the divisor that normalize() set.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "consume/aggregation_store.h"
#include "consume/record.h"
#include "consume/value.h"
#include "plan/plan.h"
#include "report/print_options.h"

namespace trapline::report {

std::string json_value(const consume::Value& value);
// {"id":1,"provider":"dtrace","module":"","function":"","name":"BEGIN"}
std::string json_probe(const plan::ProbeName& probe);
// The members of an AGGREGATION, without braces. Precondition: the index is one of the program's.
std::string json_aggregation(const plan::Program& program, std::uint32_t index,
                             const consume::AggregationStore& store,
                             const consume::SortOptions& sort);
// "record":0,"aggregation":0,... without braces.
std::string json_drops(const consume::Drops& drops);

// The ACTIONs of one firing, in order.
class JsonActions {
 public:
  void trace(const consume::Value& value);
  void printf(const plan::Action& action, std::span<const consume::Value> fields,
              const PrintOptions& options);
  void printa(const plan::Program& program, const plan::Action& action,
              const consume::AggregationStore& store, const consume::SortOptions& sort);
  void exit(std::int32_t status);

  // "[ACTION...]", and begins anew.
  std::string take();

 private:
  void add(const std::string& action);

  std::string list_;
};

}  // namespace trapline::report
