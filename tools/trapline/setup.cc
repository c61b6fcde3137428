#include "setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>

#include "messages.h"

extern char** environ;

namespace trapline::tool {

namespace {

session::ProgramKind program_kind(SourceFlag flag) {
  switch (flag) {
    case SourceFlag::kScript:
      return session::ProgramKind::kScript;
    case SourceFlag::kName:
      return session::ProgramKind::kName;
    case SourceFlag::kFunction:
      return session::ProgramKind::kFunction;
    case SourceFlag::kModule:
      return session::ProgramKind::kModule;
    case SourceFlag::kProvider:
      return session::ProgramKind::kProvider;
    case SourceFlag::kId:
      return session::ProgramKind::kId;
  }
  return session::ProgramKind::kScript;
}

}  // namespace

Result<plan::Options> read_options(const CommandLine& command) {
  plan::Options options;
  constexpr std::string_view kPrefix = "DTRACE_OPT_";
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::size_t equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    std::string name(variable.substr(kPrefix.size(), equals - kPrefix.size()));
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string_view value = variable.substr(equals + 1);
    const auto set = options.set(name, value.empty() ? std::nullopt : std::optional(value));
    if (!set) return set.error().within(fmt::format("failed to set {} from the environment", name));
  }
  for (const auto& [name, value] : command.options) {
    const auto set =
        options.set(name, value ? std::optional<std::string_view>(*value) : std::nullopt);
    if (!set) return set.error().within(fmt::format("failed to set -x {}", name));
  }
  return options;
}

Result<std::vector<session::Tracee>> find_processes(const CommandLine& command,
                                                    const Signals& signals) {
  std::vector<session::Tracee> tracees;
  for (const std::string& text : command.commands) {
    auto launched = session::Tracee::launch(text, signals.original_mask());
    if (!launched) return launched.error().within("failed to execute " + text);
    tracees.push_back(std::move(*launched));
  }
  for (const Pid pid : command.pids) {
    auto attached = session::Tracee::attach(pid);
    if (!attached) return attached.error().within(fmt::format("failed to grab pid {}", pid.value));
    tracees.push_back(std::move(*attached));
  }
  return tracees;
}

std::optional<session::CompiledProgram> compile_programs(const CommandLine& command,
                                                         const plan::Options& options,
                                                         std::optional<Pid> target,
                                                         const session::Invoker& invoker) {
  session::CompileInput input;
  for (const SourceArgument& source : command.sources) {
    input.programs.push_back({program_kind(source.flag), source.text, {}});
  }
  input.arguments = command.arguments;
  input.cpp_arguments = command.cpp_arguments;
  input.target = target;
  input.invoker = invoker;
  input.message_name = kMessageName;
  session::CompileOutput output = session::compile_programs(input, options);
  std::fputs(output.messages.c_str(), stderr);
  return std::move(output.compiled);
}

namespace {

// That a description's provider stands for.
std::optional<pid_t> named_process(const std::string& provider,
                                   std::span<const session::Tracee> known) {
  if (const auto pid = session::pid_of_provider(provider)) return pid;
  const bool meant = std::ranges::any_of(known, [&](const session::Tracee& tracee) {
    return provider.ends_with(std::to_string(tracee.pid().value));
  });
  return meant ? std::nullopt : session::pid_of_usdt_provider(provider);
}

}  // namespace

Result<> add_named_processes(const plan::Program& program, std::vector<session::Tracee>& tracees) {
  for (const plan::Clause& clause : program.clauses) {
    for (const plan::ProbeDescription& description : clause.probes) {
      const auto pid = named_process(description.provider, tracees);
      if (!pid) continue;
      const bool known = std::ranges::any_of(
          tracees, [&](const session::Tracee& t) { return t.pid().value == *pid; });
      if (known) continue;
      auto attached = session::Tracee::attach(Pid{*pid});
      if (!attached) return attached.error().within(fmt::format("failed to grab pid {}", *pid));
      tracees.push_back(std::move(*attached));
    }
  }
  return {};
}

bool report_unmatched(const CommandLine& command, const plan::Options& options,
                      const plan::Program& program, const session::Enabling& enabling) {
  const bool allowed = command.allow_unmatched || options.flag("zdefs");
  for (const session::Unmatched& unmatched : enabling.unmatched) {
    if (allowed && !unmatched.unsupported) continue;
    const SourceArgument& source = command.sources[program.clauses[unmatched.clause].source];
    const bool script = source.flag == SourceFlag::kScript;
    const std::string tag = options.flag("errtags") ? fmt::format("[{}] ", unmatched.tag) : "";
    const std::string place = script ? fmt::format("line {}: ", unmatched.description.line) : "";
    say(fmt::format("{} {}: {}{}{}",
                    script ? "failed to compile script" : "invalid probe specifier", source.text,
                    tag, place, session::unmatched_text(unmatched)));
    return true;
  }
  return false;
}

Result<OutputFile> OutputFile::open(const std::optional<std::string>& path) {
  if (!path) return OutputFile(stdout, "<stdout>");
  std::FILE* file = std::fopen(path->c_str(), "ae");
  if (file == nullptr)
    return Error::os(errno, fmt::format("failed to open output file '{}'", *path));
  return OutputFile(file, *path);
}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

}  // namespace trapline::tool
