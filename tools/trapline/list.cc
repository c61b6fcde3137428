// -l: the probes that the descriptions match; with -v, how each of their places would be reached or
// why it cannot be.

#include <fmt/format.h>

#include <map>

#include "messages.h"
#include "report/text_output.h"
#include "session/session.h"
#include "setup.h"
#include "signals.h"
#include "trace.h"

namespace trapline::tool {

namespace {

// By the session's index of a probe: a line for each of its places.
using Places = std::multimap<std::uint32_t, std::string>;

Places places_of(session::Session& session) {
  Places places;
  for (std::size_t t = 0; t < session.target_count(); ++t) {
    const session::PlannedSites& sites = session.sites(t);
    const probes::SitePlans& plans = sites.plans;
    for (const probes::ModuleSites& module : plans.modules) {
      const LoadBias bias = session.tracee(t).modules().module(module.module).bias;
      for (const isa::SitePlan& site : module.sites) {
        for (const isa::PlannedPoint& point : site.points) {
          const probes::PointUse& use = plans.uses[point.tag];
          if (!sites.is_probe(use.probe)) continue;
          if (site.form == isa::SiteForm::kTrap) {
            places.emplace(sites.probes[use.probe],
                           fmt::format("{}: +{:#x} ({:#x}), a breakpoint: the tracer stays "
                                       "attached, and if it is killed with -9, so is the process",
                                       sites.is_outside() ? "outside" : "trap", use.offset,
                                       bias.to_remote(site.site).value()));
            continue;
          }
          places.emplace(
              sites.probes[use.probe],
              fmt::format("inline ({}): +{:#x} ({:#x}), {}-byte jump over {} bytes at {:#x}",
                          isa::to_text(site.form), use.offset,
                          bias.to_remote(site.site + point.offset).value(), site.patch_size,
                          site.window_size, bias.to_remote(site.site).value()));
        }
      }
    }
    for (const probes::RefusedPlace& place : plans.refused) {
      places.emplace(sites.probes[place.probe],
                     fmt::format("refused: {:#x}: {}{}{}", place.at.value(), place.reason,
                                 place.detail.empty() ? "" : ": ", place.detail));
    }
  }
  return places;
}

// DTrace's three blocks; the pid provider's stability as its documentation gives it.
std::string attributes(const plan::ProbeName& probe, const std::string& types) {
  const bool builtin = probe.provider == "dtrace" || probe.provider == "profile";
  const std::string names = builtin ? "Stable" : "Evolving";
  const std::string arguments = builtin ? "Stable" : "Private";
  return fmt::format(
      "\n\tProbe Description Attributes\n"
      "\t\tIdentifier Names: {0}\n\t\tData Semantics:   {0}\n\t\tDependency Class: {2}\n"
      "\n\tArgument Attributes\n"
      "\t\tIdentifier Names: {1}\n\t\tData Semantics:   {1}\n\t\tDependency Class: {3}\n"
      "\n\tArgument Types\n{4}\n",
      names, arguments, builtin ? "Common" : "ISA", builtin ? "Common" : "Unknown",
      types.empty() ? "\t\tNone\n" : types);
}

// Of a statically defined probe, by the size of each argument.
std::string argument_types(const session::EnabledProbe& probe) {
  std::string lines;
  const auto* point = std::get_if<session::PidPoint>(&probe.what);
  if (point == nullptr || !point->function->usdt) return lines;
  const std::vector<std::string>& types = point->function->usdt->sites.front()->types;
  for (std::size_t n = 0; n < types.size(); ++n) {
    lines += fmt::format("\t\targs[{}]: {}\n", n, types[n].empty() ? "unknown" : types[n]);
  }
  return lines;
}

Result<> print_rows(const CommandLine& command, session::Session& session, report::ByteSink& out) {
  Places places;
  if (command.verbose > 0) places = places_of(session);
  const std::vector<session::EnabledProbe>& probes = session.enabling().probes;
  for (std::uint32_t i = 0; i < probes.size(); ++i) {
    TL_TRY(out.write(report::list_row(probes[i].name)));
    if (command.verbose == 0) continue;
    TL_TRY(out.write(attributes(probes[i].name, argument_types(probes[i]))));
    const auto [first, last] = places.equal_range(i);
    if (first == last) continue;
    TL_TRY(out.write("\tPlaces\n"));
    for (auto place = first; place != last; ++place)
      TL_TRY(out.write(fmt::format("\t\t{}\n", place->second)));
    TL_TRY(out.write("\n"));
  }
  return out.flush();
}

}  // namespace

int list(const CommandLine& command) {
  auto signals = Signals::take();
  if (!signals) return say(signals.error()), kExitError;
  const auto options = read_options(command);
  if (!options) return say(options.error()), kExitError;
  auto processes = find_processes(command, *signals);
  if (!processes) return say(processes.error()), kExitError;

  CommandLine wanted = command;
  if (wanted.sources.empty()) wanted.sources.push_back({SourceFlag::kProvider, "dtrace"});
  const std::optional<Pid> target =
      processes->empty() ? std::nullopt : std::optional<Pid>(processes->front().pid());
  auto compiled = compile_programs(wanted, *options, target, session::Invoker::self());
  if (!compiled) return kExitError;
  if (const auto named = add_named_processes(*compiled->program, *processes); !named) {
    return say(named.error()), kExitError;
  }

  auto file = OutputFile::open(command.output);
  if (!file) return say(file.error()), kExitError;
  report::FileSink out = file->sink();
  report::FileSink err(stderr, "<stderr>");
  report::TextOutput output(*compiled->program, out, err, {});
  session::Session session(*compiled->program, compiled->options, std::move(*processes), output);
  if (const auto found = session.find(); !found) return say(found.error()), kExitError;
  if (const auto heading = out.write(report::list_heading()); !heading)
    return say(heading.error()), kExitError;
  for (const session::Unmatched& unmatched : session.enabling().unmatched) {
    say(fmt::format("failed to match {}: {}", session::full_name(unmatched.description),
                    unmatched.why.empty() ? "No probe matches description" : unmatched.why));
  }
  const auto printed = print_rows(command, session, out);
  for (std::size_t t = 0; t < session.target_count(); ++t) session.tracee(t).kill_launched();
  if (!printed) return say(printed.error()), kExitError;
  return kExitSuccess;
}

}  // namespace trapline::tool
