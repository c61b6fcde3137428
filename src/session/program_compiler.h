// From the programs of a command line (or of a client) to one compiled program: reading, cpp, the
// front end, and the diagnostics as text.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "plan/options.h"
#include "plan/plan.h"

namespace trapline::session {

enum class ProgramKind : std::uint8_t { kScript, kName, kFunction, kModule, kProvider, kId };

struct ProgramText {
  ProgramKind kind = ProgramKind::kScript;
  std::string
      text;  // a script's path; else a probe specifier with an optional predicate and action
};

struct CompileInput {
  std::vector<ProgramText> programs;       // one program in the end; clauses in this order
  std::vector<std::string> arguments;      // $1, $2, ...
  std::vector<std::string> cpp_arguments;  // for option cpp
  std::optional<Pid> target;               // $target
  std::string_view message_name;           // what messages begin with: "dtrace"
};

struct CompiledProgram {
  std::unique_ptr<plan::Program> program;
  plan::Options options;  // those given, and what the program's pragmas set
};

struct CompileOutput {
  std::optional<CompiledProgram> compiled;  // none: `messages` say why
  std::string messages;                     // whole lines for standard error; warnings too
};

CompileOutput compile_programs(const CompileInput& input, const plan::Options& options);

}  // namespace trapline::session
