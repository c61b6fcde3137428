#include "setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "diag/render.h"
#include "dlang/compile.h"
#include "messages.h"
#include "session/source_loader.h"

extern char** environ;

namespace trapline::tool {

namespace {

dlang::InputKind source_kind(SourceFlag flag) {
  switch (flag) {
    case SourceFlag::kScript: return dlang::InputKind::kScript;
    case SourceFlag::kName: return dlang::InputKind::kName;
    case SourceFlag::kFunction: return dlang::InputKind::kFunction;
    case SourceFlag::kModule: return dlang::InputKind::kModule;
    case SourceFlag::kProvider: return dlang::InputKind::kProvider;
    case SourceFlag::kId: return dlang::InputKind::kId;
  }
  return dlang::InputKind::kScript;
}

dlang::MacroValues macro_values(const CommandLine& command, std::optional<Pid> target) {
  dlang::MacroValues values;
  values.arguments = command.arguments;
  values.script = "dtrace";
  for (const SourceArgument& source : command.sources) {
    if (source.flag == SourceFlag::kScript) values.script = source.text;
  }
  if (target) values.target = target->value;
  values.pid = getpid();
  values.ppid = getppid();
  values.pgid = getpgrp();
  values.sid = getsid(0);
  values.uid = getuid();
  values.euid = geteuid();
  values.gid = getgid();
  values.egid = getegid();
  return values;
}

Result<dlang::SourceInput> read_source(const SourceArgument& argument, const plan::Options& options,
                                       const CommandLine& command) {
  dlang::SourceInput input{argument.text, argument.text, source_kind(argument.flag)};
  if (argument.flag == SourceFlag::kScript) {
    TL_TRY_ASSIGN(input.text, session::read_script(argument.text));
  }
  if (options.flag("cpp")) {
    TL_TRY_ASSIGN(input.text, session::preprocess(input.text, argument.text, options, command.cpp_arguments));
  }
  return input;
}

void print_diagnostics(const CommandLine& command, const dlang::CompileResult& result) {
  const diag::Tags tags = result.options.flag("errtags") ? diag::Tags::kShow : diag::Tags::kHide;
  // All of one source at a time, each under the words of the flag that it came with.
  for (std::uint32_t s = 0; s < command.sources.size(); ++s) {
    diag::Diagnostics of_source;
    for (const diag::Diagnostic& d : result.diagnostics.sorted()) {
      const bool here = d.range.known() ? d.range.source == s : s + 1 == command.sources.size();
      if (here) of_source.add(d);
    }
    if (of_source.empty()) continue;
    const bool script = command.sources[s].flag == SourceFlag::kScript;
    const std::string text = diag::render_classic(
        result.sources, of_source, kMessageName, script ? diag::SourceKind::kScript : diag::SourceKind::kText,
        command.sources[s].text, tags, diag::Excerpt::kShow);
    std::fputs(text.c_str(), stderr);
  }
  if (result.diagnostics.dropped() != 0) say(fmt::format("{} more errors", result.diagnostics.dropped()));
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
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string_view value = variable.substr(equals + 1);
    const auto set = options.set(name, value.empty() ? std::nullopt : std::optional(value));
    if (!set) return set.error().within(fmt::format("failed to set {} from the environment", name));
  }
  for (const auto& [name, value] : command.options) {
    const auto set = options.set(name, value ? std::optional<std::string_view>(*value) : std::nullopt);
    if (!set) return set.error().within(fmt::format("failed to set -x {}", name));
  }
  return options;
}

Result<std::vector<session::Tracee>> find_processes(const CommandLine& command, const Signals& signals) {
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

std::optional<CompiledProgram> compile_programs(const CommandLine& command, const plan::Options& options,
                                                std::optional<Pid> target) {
  dlang::CompileRequest request;
  request.options = &options;
  request.macros = macro_values(command, target);
  for (const SourceArgument& argument : command.sources) {
    auto source = read_source(argument, options, command);
    if (!source) {
      say(source.error());
      return std::nullopt;
    }
    request.sources.push_back(std::move(*source));
  }
  dlang::CompileResult result = dlang::compile(request);
  if (!result.diagnostics.empty()) print_diagnostics(command, result);
  if (!result.program) return std::nullopt;
  return CompiledProgram{std::make_unique<plan::Program>(std::move(*result.program)), std::move(result.options)};
}

Result<> add_named_processes(const plan::Program& program, std::vector<session::Tracee>& tracees) {
  for (const plan::Clause& clause : program.clauses) {
    for (const plan::ProbeDescription& description : clause.probes) {
      const auto pid = session::pid_of_provider(description.provider);
      if (!pid) continue;
      const bool known = std::ranges::any_of(tracees, [&](const session::Tracee& t) { return t.pid().value == *pid; });
      if (known) continue;
      auto attached = session::Tracee::attach(Pid{*pid});
      if (!attached) return attached.error().within(fmt::format("failed to grab pid {}", *pid));
      tracees.push_back(std::move(*attached));
    }
  }
  return {};
}

bool report_unmatched(const CommandLine& command, const plan::Options& options, const plan::Program& program,
                      const session::Enabling& enabling) {
  const bool allowed = command.allow_unmatched || options.flag("zdefs");
  for (const session::Unmatched& unmatched : enabling.unmatched) {
    if (allowed && !unmatched.unsupported) continue;
    const SourceArgument& source = command.sources[program.clauses[unmatched.clause].source];
    const bool script = source.flag == SourceFlag::kScript;
    const std::string tag = options.flag("errtags") ? "[D_PDESC_ZERO] " : "";
    const std::string place = script ? fmt::format("line {}: ", unmatched.description.line) : "";
    const std::string what = unmatched.unsupported
                                 ? unmatched.why
                                 : fmt::format("probe description {} does not match any probes{}{}",
                                               session::full_name(unmatched.description),
                                               unmatched.why.empty() ? "" : ": ", unmatched.why);
    say(fmt::format("{} {}: {}{}{}", script ? "failed to compile script" : "invalid probe specifier", source.text, tag,
                    place, what));
    return true;
  }
  return false;
}

Result<OutputFile> OutputFile::open(const std::optional<std::string>& path) {
  if (!path) return OutputFile(stdout, "<stdout>");
  std::FILE* file = std::fopen(path->c_str(), "ae");
  if (file == nullptr) return Error::os(errno, fmt::format("failed to open output file '{}'", *path));
  return OutputFile(file, *path);
}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

}  // namespace trapline::tool
