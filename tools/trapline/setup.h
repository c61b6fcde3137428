// From the command line to a session that knows its probes: options, processes, the compiled
// program, the matches.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "report/output.h"
#include "report/sink.h"
#include "session/program_compiler.h"
#include "session/session.h"
#include "signals.h"

namespace trapline::tool {

// Options in the order in which DTrace takes them: the environment's DTRACE_OPT_*, then the command
// line's. Errors: kBadInput, with the flag.
Result<plan::Options> read_options(const CommandLine& command);

// Starts and attaches to the processes of the command line, and to those that `programs` name by
// number (pid1234).
Result<std::vector<session::Tracee>> find_processes(const CommandLine& command,
                                                    const Signals& signals);

// Compiles all programs of the command line as one. nullopt: the diagnostics have been printed.
std::optional<session::CompiledProgram> compile_programs(const CommandLine& command,
                                                         const plan::Options& options,
                                                         std::optional<Pid> target,
                                                         const session::Invoker& invoker);

// Processes that the program's descriptions name by number and that are not among `tracees` yet.
Result<> add_named_processes(const plan::Program& program, std::vector<session::Tracee>& tracees);

// The error of descriptions that match nothing, as the command prints it; true: there was one.
bool report_unmatched(const CommandLine& command, const plan::Options& options,
                      const plan::Program& program, const session::Enabling& enabling);

// Where output goes: -o's file, to be appended to, or standard output.
class OutputFile {
 public:
  static Result<OutputFile> open(const std::optional<std::string>& path);
  OutputFile(OutputFile&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)), name_(std::move(other.name_)) {}
  ~OutputFile();
  report::FileSink sink() const { return {file_, name_}; }

 private:
  OutputFile(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}
  std::FILE* file_;
  std::string name_;
};

}  // namespace trapline::tool
