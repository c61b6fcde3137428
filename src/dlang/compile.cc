// See compile.h.

#include "dlang/compile.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "base/check.h"
#include "dlang/checker.h"
#include "dlang/lower.h"
#include "dlang/parser.h"
#include "dlang/prelude.h"
#include "plan/layout.h"

namespace trapline::dlang {
namespace {

DescriptionKind description_kind(InputKind kind) {
  switch (kind) {
    case InputKind::kProvider:
      return DescriptionKind::kProvider;
    case InputKind::kModule:
      return DescriptionKind::kModule;
    case InputKind::kFunction:
      return DescriptionKind::kFunction;
    case InputKind::kId:
      return DescriptionKind::kId;
    case InputKind::kScript:
    case InputKind::kLibrary:
    case InputKind::kName:
      break;
  }
  return DescriptionKind::kName;
}

diag::SourceKind source_kind(InputKind kind) {
  if (kind == InputKind::kLibrary) return diag::SourceKind::kLibrary;
  return kind == InputKind::kScript ? diag::SourceKind::kScript : diag::SourceKind::kText;
}

Macros macros_of(const MacroValues& values) {
  Macros macros;
  macros.arguments.push_back(values.script);
  macros.arguments.insert(macros.arguments.end(), values.arguments.begin(), values.arguments.end());
  macros.variables = {{"pid", values.pid}, {"ppid", values.ppid}, {"pgid", values.pgid},
                      {"sid", values.sid}, {"uid", values.uid},   {"euid", values.euid},
                      {"gid", values.gid}, {"egid", values.egid}};
  if (values.target) macros.variables["target"] = *values.target;
  return macros;
}

void apply_pragmas(const Program& program, plan::Options& options, diag::Diagnostics& diagnostics) {
  for (const auto& item : program.items) {
    const auto* pragma = item->get_if<Pragma>();
    if (pragma == nullptr || pragma->pragma != PragmaKind::kOption) continue;
    std::optional<std::string_view> value;
    if (pragma->value) value = *pragma->value;
    if (const auto set = options.set(pragma->name, value, plan::OptionPlace::kProgram); !set) {
      diagnostics.error("PRAGMA_OPTSET", pragma->range, set.error().text());
    }
  }
}

std::uint32_t size_option(const plan::Options& options, std::string_view name) {
  const std::int64_t value = options.number(name);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, 0, kMost));
}

// The sources of the request come first, in their order; a failed one is nullopt.
std::vector<std::optional<diag::SourceId>> add_sources(const CompileRequest& request,
                                                       CompileResult& result) {
  std::vector<std::optional<diag::SourceId>> all;
  for (const SourceInput& input : request.sources) {
    const auto source = result.sources.add(input.name, input.text, source_kind(input.kind));
    if (source) {
      all.push_back(*source);
    } else {
      result.diagnostics.error("UNKNOWN", {}, input.name + ": " + source.error().text());
      all.push_back(std::nullopt);
    }
  }
  return all;
}

std::unique_ptr<Program> parse_prelude(TypeNames& names, CompileResult& result) {
  const auto source =
      result.sources.add("prelude.d", std::string(prelude()), diag::SourceKind::kLibrary);
  TL_CHECK(source.has_value());
  const Macros macros;
  ParseRequest request;
  request.source = *source;
  request.macros = &macros;
  request.types = &names;
  request.is_type = [](std::string_view) { return false; };
  return std::move(parse(request, result.sources, result.diagnostics).program);
}

std::vector<std::unique_ptr<Program>> parse_all(
    const CompileRequest& request, std::span<const std::optional<diag::SourceId>> sources,
    TypeNames& names, ctypes::TypeTable& types, CompileResult& result) {
  const Macros macros = macros_of(request.macros);
  std::vector<std::unique_ptr<Program>> programs;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceInput& input = request.sources[i];
    const std::optional<diag::SourceId> source = sources[i];
    const bool is_library = input.kind == InputKind::kLibrary;
    const bool is_script = is_library || input.kind == InputKind::kScript;
    if (!source) continue;
    ParseRequest parse_request;
    parse_request.source = *source;
    parse_request.kind = description_kind(input.kind);
    parse_request.macros = &macros;
    parse_request.types = &names;
    parse_request.is_type = [&](std::string_view name) {
      return types.find_typedef(name) ||
             (request.types != nullptr && request.types->find_type(types, name));
    };
    parse_request.default_arguments = result.options.flag("defaultargs");
    parse_request.unused_arguments_ok = is_library || result.options.flag("argref");
    parse_request.empty_ok = is_library || result.options.flag("empty");
    parse_request.prefer_descriptions = !is_script || result.options.flag("pspec");
    programs.push_back(std::move(parse(parse_request, result.sources, result.diagnostics).program));
    apply_pragmas(*programs.back(), result.options, result.diagnostics);
  }
  return programs;
}

}  // namespace

CompileResult compile(const CompileRequest& request) {
  CompileResult result;
  if (request.options != nullptr) result.options = *request.options;
  ctypes::TypeTable types;
  TypeNames names;
  const auto sources = add_sources(request, result);
  const auto library = parse_prelude(names, result);
  Checker checker(types, result.diagnostics, {});
  checker.check(*library);
  const auto programs = parse_all(request, sources, names, types, result);
  // What could not be read may have been what makes a name known.
  const bool unread = result.diagnostics.has_errors();
  types.set_strsize(size_option(result.options, "strsize"));

  CheckSettings settings;
  settings.has_target = request.macros.target ? HasTarget::kYes : HasTarget::kNo;
  settings.types = request.types;
  settings.names_missing = unread ? NamesMissing::kMaybe : NamesMissing::kNo;
  settings.follow = result.options.flag("follow") ? Follow::kYes : Follow::kNo;
  settings.scratchsize = size_option(result.options, "scratchsize");
  checker.configure(settings);
  for (const auto& program : programs) {
    checker.check(*program);
    if (result.sources.kind(program->source) == diag::SourceKind::kLibrary)
      checker.forget_clauses();
  }
  if (result.diagnostics.has_errors()) return result;

  LowerRequest lower_request;
  lower_request.clauses = &checker.clauses();
  lower_request.types = &types;
  lower_request.sources = &result.sources;
  // The option does not count the NUL that ends a string.
  lower_request.strsize = types.strsize() + 1;
  lower_request.scratchsize = settings.scratchsize;
  lower_request.speculations =
      std::min(size_option(result.options, "nspec"), plan::kMaxSpeculations);
  lower_request.processors = request.processors;
  lower_request.per_processor = result.options.flag("aggpercpu");
  if (result.options.is_set("cpu")) lower_request.cpu = result.options.number("cpu");
  lower_request.printsize = size_option(result.options, "printsize");
  plan::Program program = lower(lower_request, result.diagnostics);
  if (result.diagnostics.has_errors()) return result;
  program.providers = checker.providers();
  std::erase_if(program.providers, [&](const plan::Provider& provider) {
    return result.sources.kind(provider.source) == diag::SourceKind::kLibrary;
  });

  plan::LayoutLimits limits;
  limits.dynvarsize = size_option(result.options, "dynvarsize");
  if (const auto laid = plan::lay_out(program, limits); !laid) {
    result.diagnostics.error("UNKNOWN", {}, laid.error().text());
    return result;
  }
  result.program = std::move(program);
  return result;
}

}  // namespace trapline::dlang
