// What of the options the report looks at.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "consume/aggregation_store.h"
#include "plan/options.h"

namespace trapline::report {

struct PrintOptions {
  bool quiet = false;
  bool flowindent = false;
  bool rawbytes = false;
  bool droptags = false;
  // No CPU and ID columns, as DTrace does where the environment has _DTRACE_TESTING.
  bool testing = false;
  std::size_t printsize = 8192;  // bytes that print() shows
  consume::SortOptions sort;
  // In front of messages on stderr.
  std::string program_name = "dtrace";
  // The name of an address of the traced process for %a and %A: "obj`sym+0x1f". Empty: "0x..." is
  // printed.
  std::function<std::string(std::uint64_t address)> symbol_name;
};

// Reads the options by their names; `testing` and the rest stay as in `base`.
PrintOptions print_options(const plan::Options& options, PrintOptions base = {});

}  // namespace trapline::report
