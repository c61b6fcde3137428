// The command line of trapline: dtrace(1)'s flags.
//
// Parsed in one pass into a value; what the flags mean together is checked here, what they do is
// elsewhere.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"

namespace trapline::tool {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;

enum class Mode : std::uint8_t { kTrace, kList, kHeader, kObject, kVersion, kHelp };

// Where a program comes from, in the order of the command line.
enum class SourceFlag : char {
  kScript = 's',
  kName = 'n',
  kFunction = 'f',
  kModule = 'm',
  kProvider = 'P',
  kId = 'i',
};

struct SourceArgument {
  SourceFlag flag;
  std::string
      text;  // a path for kScript, else a probe specifier with an optional predicate and action
};

struct CommandLine {
  Mode mode = Mode::kTrace;
  bool compile_only = false;     // -e
  int verbose = 0;               // -v, counted
  bool allow_unmatched = false;  // -Z, and -l implies it
  bool show_plan = false;        // -S
  std::vector<SourceArgument> sources;
  std::vector<std::pair<std::string, std::optional<std::string>>>
      options;                             // -x, and flags that stand for one
  std::vector<std::string> cpp_arguments;  // -D, -U, -I and their -x forms, in order
  std::vector<Pid> pids;                   // -p
  std::vector<std::string> commands;       // -c
  std::optional<std::string> output;       // -o
  std::vector<std::string> arguments;      // $1, $2, ...; with -G: object files
};

struct UsageError {
  std::string text;  // what to print before the usage; may be empty
  bool show_usage = true;
  int exit_status = kExitUsage;
};

struct ParsedCommandLine {
  CommandLine command;
  std::optional<UsageError> error;
};

// `name` is the command's own, for messages.
ParsedCommandLine parse_command_line(const std::string& name, int argc, char** argv);

std::string usage(const std::string& name);

}  // namespace trapline::tool
