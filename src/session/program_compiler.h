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
#include "diag/diagnostic.h"
#include "plan/options.h"
#include "plan/plan.h"
#include "session/invoker.h"

namespace trapline::session {

enum class ProgramKind : std::uint8_t {
  kScript,  // a file
  kInline,  // the same, given as its text
  kName,
  kFunction,
  kModule,
  kProvider,
  kId,
};

struct ProgramText {
  ProgramKind kind = ProgramKind::kScript;
  std::string text;  // a script's path or text; else a probe specifier with an optional predicate
                     // and action
  std::string name;  // kInline: what messages and $0 call it
};

struct CompileInput {
  std::vector<ProgramText> programs;       // one program in the end; clauses in this order
  std::vector<std::string> arguments;      // $1, $2, ...
  std::vector<std::string> cpp_arguments;  // for option cpp
  std::optional<Pid> target;               // $target
  Invoker invoker = Invoker::self();       // $pid, $ppid
  std::string_view message_name;           // what messages begin with: "dtrace"
};

struct CompiledProgram {
  std::unique_ptr<plan::Program> program;
  plan::Options options;  // those given, and what the program's pragmas set
};

// A diagnostic with its place as numbers: line and column (in bytes) from 1; 0: about the program
// as a whole.
struct PlacedDiagnostic {
  diag::Diagnostic diagnostic;
  std::string file;
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

struct CompileOutput {
  std::optional<CompiledProgram> compiled;    // none: `messages` say why
  std::string messages;                       // whole lines for standard error; warnings too
  std::vector<PlacedDiagnostic> diagnostics;  // the same as data, in source order
};

CompileOutput compile_programs(const CompileInput& input, const plan::Options& options);

}  // namespace trapline::session
