#include "provider_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string_view>

#include "messages.h"
#include "setup.h"
#include "symbols/object_probes.h"
#include "usdt/header.h"
#include "usdt/semaphore_object.h"

namespace trapline::tool {

namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

Result<> write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return Error::os(errno, fmt::format("failed to open {}", path));
  const bool whole = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int write_error = errno;
  if (std::fclose(file) != 0 || !whole) {
    return Error::os(whole ? errno : write_error, fmt::format("failed to write {}", path));
  }
  return {};
}

// nullopt: what is wrong has been printed.
std::optional<session::CompiledProgram> compile(const CommandLine& command) {
  const auto options = read_options(command);
  if (!options) return say(options.error()), std::nullopt;
  return compile_programs(command, *options, std::nullopt, session::Invoker::self());
}

// Sites of probes that no provider declares would have no semaphore, or mean another probe.
Result<> check_object(const std::string& path, std::span<const plan::Provider> providers) {
  TL_TRY_ASSIGN(const std::vector<symbols::ObjectProbe> probes, symbols::probes_of_object(path));
  for (const symbols::ObjectProbe& probe : probes) {
    const auto provider = std::ranges::find(providers, probe.provider, &plan::Provider::name);
    if (provider == providers.end()) {
      return Error(ErrorCode::kBadInput,
                   fmt::format("no such provider {}, of which {} has the probe {}", probe.provider,
                               path, probe.name));
    }
    const auto declared =
        std::ranges::find(provider->probes, probe.name, &plan::ProviderProbe::name);
    if (declared == provider->probes.end()) {
      return Error(ErrorCode::kBadInput, fmt::format("no such probe {} of provider {}, in {}",
                                                     probe.name, probe.provider, path));
    }
  }
  return {};
}

// The object file of one script, or of all (-o), as dtrace names it.
std::string object_name(const CommandLine& command, std::size_t source) {
  if (command.output) return *command.output;
  const std::string name = output_name(command.sources[source], 'o');
  if (!name.empty()) return name;
  return command.sources.size() > 1 ? fmt::format("d.out.{}", source) : "d.out";
}

Result<> check_link_type(const plan::Options& options) {
  const std::string type = options.text("linktype");
  if (type.empty() || type == "elf") return {};
  if (type == "dof") {
    return Error(ErrorCode::kUnsupported,
                 "-x linktype=dof is not offered: object files are ELF only");
  }
  return Error(ErrorCode::kBadInput,
               "failed to set -x linktype: Invalid value for specified option");
}

}  // namespace

std::string output_name(const SourceArgument& source, char extension) {
  if (source.flag != SourceFlag::kScript || !source.text.ends_with(".d")) return "";
  const std::string_view name = base_name(source.text);
  return fmt::format("{}.{}", name.substr(0, name.size() - 2), extension);
}

int write_header(const CommandLine& command) {
  if (command.sources.empty())
    return say("-h requires one or more scripts or enabling options"), kExitUsage;
  if (!command.output && command.sources.size() > 1) {
    return say("-h requires an output file if multiple scripts are specified"), kExitUsage;
  }
  const std::string name =
      command.output ? *command.output : output_name(command.sources.front(), 'h');
  if (name.empty())
    return say("-h requires an output file if no scripts are specified"), kExitUsage;
  const auto compiled = compile(command);
  if (!compiled) return kExitError;
  const auto& providers = compiled->program->providers;
  const std::string doing = fmt::format("failed to create header file {}", name);
  if (providers.empty()) return say(doing + ": no provider definitions"), kExitError;
  const auto text = usdt::header_text(providers, base_name(name));
  if (!text) return say(text.error().within(doing)), kExitError;
  const auto written = write_file(name, std::as_bytes(std::span(*text)));
  if (!written) return say(written.error().within(doing)), kExitError;
  return kExitSuccess;
}

int write_object(const CommandLine& command) {
  if (command.sources.empty())
    return say("-G requires one or more scripts or enabling options"), kExitUsage;
  // What is left on the command line are object files, not $1.
  CommandLine scripts = command;
  scripts.arguments.clear();
  const auto compiled = compile(scripts);
  if (!compiled) return kExitError;
  const auto link_type = check_link_type(compiled->options);
  if (!link_type) return say(link_type.error()), kExitError;
  const std::vector<plan::Provider>& providers = compiled->program->providers;
  const auto failed = [&](std::size_t source, const Error& error) {
    const SourceArgument& of = command.sources[source];
    say(error.within(fmt::format("failed to link {} {}",
                                 of.flag == SourceFlag::kScript ? "script" : "description",
                                 of.text)));
    return kExitError;
  };
  for (const std::string& object : command.arguments) {
    const auto checked = check_object(object, providers);
    if (!checked) return failed(0, checked.error());
  }
  const std::size_t objects = command.output ? 1 : command.sources.size();
  for (std::size_t i = 0; i < objects; ++i) {
    std::vector<plan::Provider> here = providers;
    std::erase_if(
        here, [&](const plan::Provider& provider) { return objects > 1 && provider.source != i; });
    const std::vector<std::byte> bytes = usdt::semaphore_object(here);
    const auto written = write_file(object_name(command, i), bytes);
    if (!written) return failed(i, written.error());
  }
  return kExitSuccess;
}

}  // namespace trapline::tool
