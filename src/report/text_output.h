// DTrace's text, byte for byte as Oracle's DTrace prints it (see the folder's README for the few
// exceptions).

#pragma once

#include <map>
#include <string>

#include "report/output.h"
#include "report/sink.h"

namespace trapline::report {

class TextOutput : public Output {
 public:
  // `out` gets the data, `err` messages about errors and drops. Both outlive the output.
  TextOutput(const plan::Program& program, ByteSink& out, ByteSink& err, PrintOptions options);

  Result<> begin_firing(const FiringInfo& firing) override;
  Result<> trace(const consume::Value& value) override;
  Result<> printf(const plan::Action& action, std::span<const consume::Value> fields) override;
  Result<> printa(const plan::Action& action, std::span<const consume::Value> fields,
                  consume::AggregationStore& store) override;
  Result<> freopen(const std::string& path) override;
  Result<> ftruncate() override;
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
  struct Flow {
    int indent = 0;
    std::uint32_t last_probe = 0;
    std::uint32_t last_clause = ~std::uint32_t{0};
  };

  void append_heading();
  void append_flow(const FiringInfo& firing);
  Result<> write_pending();

  const plan::Program& program_;
  ByteSink& out_;
  ByteSink& err_;
  PrintOptions options_;
  std::string pending_;  // of the firing that is being written
  bool heading_done_ = false;
  std::map<std::uint32_t, Flow> flows_;  // by thread
};

// Rows of -l.
std::string list_heading();
std::string list_row(const plan::ProbeName& probe);
// "script 'x.d' matched 3 probes" and the like go to stderr as "NAME: ...", where the program is
// not quiet.
std::string matched_message(std::string_view what, std::string_view text, std::uint64_t probes);
// What DTrace says about a fault, without the program's name in front and without a newline.
std::string fault_message(const FaultInfo& fault);

}  // namespace trapline::report
