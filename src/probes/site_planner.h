// From matched functions to sites: at which instructions a process is to be patched, and what
// cannot be and why.
//
// Pure as far as the traced process is concerned: only files (or what symbols read of memory) are
// looked at. Every wanted place ends in a site or among the refused, never nowhere.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "isa/x86_64/encode.h"
#include "isa/x86_64/site.h"
#include "probes/module_cache.h"
#include "probes/pid_provider.h"

namespace trapline::probes {

// Whether a probe's places may be breakpoints, which the tracer answers.
enum class Traps : std::uint8_t {
  kNo,
  kOffered,  // no; but they would be, if they were asked for
  kWhereNeeded,
  kAlways,
};

// A probe to be placed. `probe` is the session's index of it.
struct WantedProbe {
  std::uint32_t probe = 0;
  const MatchedFunction* function = nullptr;  // outlives the plans
  ProbePoint point;
  Traps traps = Traps::kNo;
};

// One place of one probe. Its index is the tag of isa's points.
struct PointUse {
  std::uint32_t probe = 0;
  std::uint64_t offset = 0;  // of the instruction in its function
  isa::Boundary boundary = isa::Boundary::kUnknown;
  Traps traps = Traps::kNo;
  std::shared_ptr<const UsdtSite> usdt = nullptr;  // nullptr: no statically defined probe
};

struct RefusedPlace {
  std::uint32_t probe = 0;
  std::size_t module = 0;
  RemoteAddr at;
  std::string reason;  // isa's kind of refusal, or our own
  std::string detail;  // may be empty
};

struct ModuleSites {
  std::size_t module = 0;
  std::vector<isa::SitePlan> sites;  // by address
};

struct SitePlans {
  std::vector<ModuleSites> modules;
  std::vector<PointUse> uses;
  std::vector<RefusedPlace> refused;

  std::size_t site_count() const;
  std::size_t trap_count() const;  // sites that are breakpoints
};

enum class ShadowStack : std::uint8_t { kNo, kYes };

SitePlans plan_probes(ModuleCache& modules, std::span<const WantedProbe> wanted,
                      ShadowStack shadow_stack);

}  // namespace trapline::probes
