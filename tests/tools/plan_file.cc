// plan_file FILE [-v]: where the functions of a file can be probed, without a process.
//
// Plans every function's entry and return of one ELF file as the pid provider does with breakpoints
// where no jump fits (-x engine=auto), and prints what came of it, in a form that
// tests/safety_table.py reads:
//   functions N
//   NAME KIND asked|FORM|refused N      KIND: entry, return (one an instruction)
//   probes KIND asked|refused N         KIND: entry, return (one a function)
//   reason KIND N TEXT
// and with -v each place that no jump reaches:
//   trap KIND ADDRESS FUNCTION
//   refused KIND ADDRESS FUNCTION: REASON: DETAIL
// Limits: what an IFUNC stands for is only known of a process, so its implementations appear under
// their own names; memory that is not there to be mapped is not known either.

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "probes/module_cache.h"
#include "probes/pid_provider.h"
#include "probes/site_planner.h"

namespace {

using namespace trapline;

constexpr std::uint64_t kBias = 0x7f0000000000;

struct Tally {
  std::size_t asked = 0;
  std::size_t refused = 0;
  std::map<std::string, std::size_t> forms;
  std::map<std::string, std::size_t> reasons;
};

Result<probes::ModuleCache> open_file(const std::string& path) {
  TL_TRY_ASSIGN(symbols::ElfImage opened, symbols::ElfImage::open(path));
  auto image = std::make_shared<const symbols::ElfImage>(std::move(opened));
  symbols::Module module;
  module.name = path.substr(path.rfind('/') + 1);
  module.path = path;
  module.open_path = path;
  module.role =
      image->is_executable() ? symbols::ModuleRole::kExecutable : symbols::ModuleRole::kLibrary;
  const bool fixed = image->kind() == symbols::ImageKind::kFixedExecutable;
  module.bias = LoadBias{fixed ? 0 : kBias};
  module.image = std::move(image);
  symbols::ModuleList list;
  list.modules.push_back(std::move(module));
  const auto no_memory = [](RemoteAddr, std::span<std::byte>) -> Result<> {
    return Error(ErrorCode::kNotFound, "no process");
  };
  return probes::ModuleCache(std::move(list), no_memory);
}

const char* kind_name(isa::PointKind kind) {
  return kind == isa::PointKind::kEntry || isa::is_anywhere(kind) ? "entry" : "return";
}

void print(const char* what, const char* kind, const Tally& tally) {
  std::printf("%s %s asked %zu\n", what, kind, tally.asked);
  for (const auto& [form, count] : tally.forms)
    std::printf("%s %s %s %zu\n", what, kind, form.c_str(), count);
  std::printf("%s %s refused %zu\n", what, kind, tally.refused);
  for (const auto& [reason, count] : tally.reasons)
    std::printf("reason %s %zu %s\n", kind, count, reason.c_str());
}

struct Placed {
  isa::PointKind kind = isa::PointKind::kEntry;
  std::string form;
  LinkAddr at;
};

// By tag. A return has several points where the ways to it are probed.
std::map<std::uint32_t, Placed> placed(const probes::SitePlans& plans) {
  std::map<std::uint32_t, Placed> all;
  for (const probes::ModuleSites& module : plans.modules) {
    for (const isa::SitePlan& site : module.sites) {
      for (const isa::PlannedPoint& point : site.points) {
        const auto [place, fresh] =
            all.try_emplace(point.tag, point.kind, std::string(isa::to_text(site.form)), site.site);
        if (!fresh || point.kind == isa::PointKind::kFallThrough) place->second.form = "ways";
      }
    }
  }
  return all;
}

Result<> run(const std::string& path, bool verbose) {
  TL_TRY_ASSIGN(probes::ModuleCache modules, open_file(path));
  probes::FunctionPattern pattern;
  pattern.function = "*";
  TL_TRY_ASSIGN(const probes::PatternMatches matches, probes::match_functions(modules, pattern));
  std::vector<probes::WantedProbe> wanted;
  for (const probes::MatchedFunction& function : matches.functions) {
    for (const auto kind : {probes::PointKind::kEntry, probes::PointKind::kReturn})
      wanted.push_back({static_cast<std::uint32_t>(wanted.size()),
                        &function,
                        {kind},
                        probes::Traps::kWhereNeeded});
  }
  const probes::SitePlans plans = probes::plan_probes(modules, wanted, probes::ShadowStack::kNo);
  std::map<std::string, Tally> places;
  for (const auto& [tag, place] : placed(plans)) {
    Tally& tally = places[kind_name(place.kind)];
    ++tally.asked;
    ++tally.forms[place.form];
    if (verbose && place.form == isa::to_text(isa::SiteForm::kTrap)) {
      std::printf("trap %s 0x%llx %s\n", kind_name(place.kind),
                  static_cast<unsigned long long>(place.at.value()),
                  wanted[plans.uses[tag].probe].function->name.c_str());
    }
  }
  std::map<std::uint32_t, const probes::RefusedPlace*> refused_probes;
  for (const probes::RefusedPlace& refused : plans.refused) {
    const probes::WantedProbe& probe = wanted[refused.probe];
    const bool entry = probe.point.kind == probes::PointKind::kEntry;
    Tally& tally = places[entry ? "entry" : "return"];
    ++tally.asked;
    ++tally.refused;
    ++tally.reasons[refused.reason];
    refused_probes.emplace(refused.probe, &refused);
    if (!verbose) continue;
    const LinkAddr at = modules.module(refused.module).bias.to_link(refused.at);
    std::printf("refused %s 0x%llx %s: %s: %s\n", entry ? "entry" : "return",
                static_cast<unsigned long long>(at.value()), probe.function->name.c_str(),
                refused.reason.c_str(), refused.detail.c_str());
  }
  std::printf("functions %zu\n", matches.functions.size());
  for (const char* kind : {"entry", "return"}) print("places", kind, places[kind]);
  std::map<bool, std::size_t> refused_of;
  for (const auto& [probe, place] : refused_probes)
    ++refused_of[wanted[probe].point.kind == probes::PointKind::kEntry];
  for (const bool entry : {true, false}) {
    const char* kind = entry ? "entry" : "return";
    std::printf("probes %s asked %zu\n", kind, matches.functions.size());
    std::printf("probes %s refused %zu\n", kind, refused_of[entry]);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE [-v]\n", argv[0]);
    return 2;
  }
  const auto done = run(argv[1], argc > 2 && std::strcmp(argv[2], "-v") == 0);
  if (!done) {
    std::fprintf(stderr, "%s\n", done.error().text().c_str());
    return 1;
  }
  return 0;
}
