// The front end as one function: D text in, a plan::Program and diagnostics out.
//
// The passes, in order: parse every source (lexer.h, parser.h), apply pragmas, check and lower
// clause by clause (lower.h), lay the program out (plan/layout.h). Pure: no files, no clock, no
// process is touched; whatever the program may ask about the world (pids, macro arguments, types of
// the traced program) comes in with the request.
//
// All mistakes are reported, in source order, as far as one does not hide another; there is a
// program only if there is no error.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctypes/type.h"
#include "diag/diagnostic.h"
#include "plan/options.h"
#include "plan/plan.h"

namespace trapline::dlang {

// How a piece of D text came in. A library is a whole program of which the names are used and the
// clauses are not. -n, -P, -m, -f and -i take a description of that part of a probe's
// name, with an optional predicate and body; a script is a whole program.
enum class InputKind : std::uint8_t {
  kScript,    // -s FILE
  kName,      // -n [[[provider:]module:]function:]name
  kProvider,  // -P provider
  kModule,    // -m [provider:]module
  kFunction,  // -f [[provider:]module:]function
  kId,        // -i probe-id
  kLibrary,   // of -L
};

struct SourceInput {
  std::string name;  // for messages: a file's name, or what the flag gave
  std::string text;
  InputKind kind = InputKind::kScript;
};

// What the traced program and the probes know about types; session adapts debug information to it.
// All calls may answer nothing. Types are made in the table that is given.
class TypeProvider {
 public:
  virtual ~TypeProvider() = default;
  // "struct foo", "enum e", "size_t", as C writes it; nullopt: not known.
  virtual std::optional<ctypes::TypeId> find_type(ctypes::TypeTable& table,
                                                  std::string_view name) = 0;
  struct Argument {
    std::string name;  // "" where it is not known
    ctypes::TypeId type;
  };
  // The typed arguments (args[]) of the probes that match `probe`; nullopt: no type is known.
  virtual std::optional<std::vector<Argument>> probe_arguments(
      ctypes::TypeTable& table, const plan::ProbeDescription& probe) = 0;
};

// The values of $pid and its like: the tracer's own. Unset ids are not defined in the program
// (D_MACRO_UNDEF).
struct MacroValues {
  std::vector<std::string> arguments;  // $1, $2, ...
  std::string script;                  // $0
  std::optional<std::int64_t> target;  // $target: the traced process
  std::int64_t pid = 0;
  std::int64_t ppid = 0;
  std::int64_t pgid = 0;
  std::int64_t sid = 0;
  std::int64_t uid = 0;
  std::int64_t euid = 0;
  std::int64_t gid = 0;
  std::int64_t egid = 0;
};

struct CompileRequest {
  std::vector<SourceInput>
      sources;  // one program: their clauses follow each other; libraries first
  const plan::Options* options = nullptr;  // from the command line; null: the defaults
  MacroValues macros;
  TypeProvider* types = nullptr;  // may be null
};

struct CompileResult {
  std::optional<plan::Program> program;  // none if there is an error
  diag::Diagnostics diagnostics;
  diag::SourceManager
      sources;            // what the diagnostics' places refer to; in the order of the request
  plan::Options options;  // those of the request, with what the program's pragmas set
};

CompileResult compile(const CompileRequest& request);

}  // namespace trapline::dlang
