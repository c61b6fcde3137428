#include "session/program_compiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include "diag/render.h"
#include "dlang/compile.h"
#include "session/d_libraries.h"
#include "session/processors.h"
#include "session/source_loader.h"

namespace trapline::session {

namespace {

dlang::InputKind input_kind(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::kScript:
    case ProgramKind::kInline:
      return dlang::InputKind::kScript;
    case ProgramKind::kName:
      return dlang::InputKind::kName;
    case ProgramKind::kFunction:
      return dlang::InputKind::kFunction;
    case ProgramKind::kModule:
      return dlang::InputKind::kModule;
    case ProgramKind::kProvider:
      return dlang::InputKind::kProvider;
    case ProgramKind::kId:
      return dlang::InputKind::kId;
  }
  return dlang::InputKind::kScript;
}

dlang::MacroValues macro_values(const CompileInput& input) {
  dlang::MacroValues values;
  values.arguments = input.arguments;
  values.script = input.message_name;
  for (const ProgramText& program : input.programs) {
    if (program.kind == ProgramKind::kScript) values.script = program.text;
    if (program.kind == ProgramKind::kInline) values.script = program.name;
  }
  if (input.target) values.target = input.target->value;
  values.pid = input.invoker.pid.value;
  values.ppid = input.invoker.parent.value;
  values.pgid = getpgrp();
  values.sid = getsid(0);
  values.uid = getuid();
  values.euid = geteuid();
  values.gid = getgid();
  values.egid = getegid();
  return values;
}

bool is_script(ProgramKind kind) {
  return kind == ProgramKind::kScript || kind == ProgramKind::kInline;
}

const std::string& name_of(const ProgramText& program) {
  return program.kind == ProgramKind::kInline ? program.name : program.text;
}

Result<dlang::SourceInput> read_source(const ProgramText& program, const plan::Options& options,
                                       const CompileInput& input) {
  const std::string& name = name_of(program);
  dlang::SourceInput source{name, program.text, input_kind(program.kind)};
  if (program.kind == ProgramKind::kScript) {
    TL_TRY_ASSIGN(source.text, read_script(program.text));
  }
  if (options.flag("cpp")) {
    TL_TRY_ASSIGN(source.text, preprocess(source.text, name, options, input.cpp_arguments));
  }
  return source;
}

// All diagnostics of one program at a time, each under the words of the flag that it came with;
// those of libraries, which are the first sources, under the first program's.
std::string render(const CompileInput& input, std::size_t libraries,
                   const dlang::CompileResult& result) {
  std::string text;
  const diag::Tags tags = result.options.flag("errtags") ? diag::Tags::kShow : diag::Tags::kHide;
  for (std::uint32_t i = 0; i < input.programs.size(); ++i) {
    diag::Diagnostics of_program;
    for (const diag::Diagnostic& d : result.diagnostics.sorted()) {
      const std::uint64_t of =
          d.range.source < libraries ? 0 : std::uint64_t{d.range.source} - libraries;
      // Behind the programs there is what is compiled before all of them.
      const bool is_of_one = d.range.known() && of < input.programs.size();
      const bool here = is_of_one ? of == i : i + 1 == input.programs.size();
      if (here) of_program.add(d);
    }
    if (of_program.empty()) continue;
    const bool script = is_script(input.programs[i].kind);
    text += diag::render_classic(result.sources, of_program, input.message_name,
                                 script ? diag::SourceKind::kScript : diag::SourceKind::kText,
                                 name_of(input.programs[i]), tags, diag::Excerpt::kShow);
  }
  if (result.diagnostics.dropped() != 0) {
    text += fmt::format("{}: {} more errors\n", input.message_name, result.diagnostics.dropped());
  }
  return text;
}

std::vector<PlacedDiagnostic> place(const dlang::CompileResult& result) {
  std::vector<PlacedDiagnostic> placed;
  for (diag::Diagnostic& d : result.diagnostics.sorted()) {
    const diag::Location at = d.range.start();
    const diag::Position position = result.sources.position(at);
    PlacedDiagnostic& added = placed.emplace_back();
    if (position.line != 0) {
      added.line = position.line;
      added.column = at.offset - result.sources.line_start(at) + 1;
    }
    added.file = position.file;
    added.diagnostic = std::move(d);
  }
  if (result.diagnostics.dropped() != 0) {
    PlacedDiagnostic& added = placed.emplace_back();
    added.diagnostic.text = fmt::format("{} more errors", result.diagnostics.dropped());
  }
  return placed;
}

}  // namespace

CompileOutput compile_programs(const CompileInput& input, const plan::Options& options) {
  CompileOutput output;
  dlang::CompileRequest request;
  request.options = &options;
  request.macros = macro_values(input);
  request.processors = processor_count();
  const auto fail = [&](const Error& error) {
    output.messages = fmt::format("{}: {}\n", input.message_name, error.text());
    output.diagnostics.emplace_back().diagnostic.text = error.text();
    return std::move(output);
  };
  auto libraries = read_libraries(options);
  if (!libraries) return fail(libraries.error());
  for (DLibrary& library : *libraries) {
    request.sources.push_back(
        {std::move(library.path), std::move(library.text), dlang::InputKind::kLibrary});
  }
  for (const ProgramText& program : input.programs) {
    auto source = read_source(program, options, input);
    if (!source) return fail(source.error());
    request.sources.push_back(std::move(*source));
  }
  dlang::CompileResult result = dlang::compile(request);
  if (!result.diagnostics.empty()) output.messages = render(input, libraries->size(), result);
  output.diagnostics = place(result);
  if (result.program) {
    for (plan::Clause& clause : result.program->clauses)
      clause.source -= static_cast<std::uint32_t>(libraries->size());
    for (plan::Provider& provider : result.program->providers)
      provider.source -= static_cast<std::uint32_t>(libraries->size());
    output.compiled = CompiledProgram{std::make_unique<plan::Program>(std::move(*result.program)),
                                      std::move(result.options)};
  }
  return output;
}

}  // namespace trapline::session
