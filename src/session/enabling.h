// Enabling: which probes a program's descriptions match, and which clauses each of them runs.
//
// A probe that several descriptions match runs all their clauses, in the order of the source. Its
// index in `probes` is what records carry.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "plan/plan.h"
#include "probes/module_cache.h"
#include "probes/pid_provider.h"
#include "session/builtin_probes.h"

namespace trapline::session {

// A traced process as matching sees it.
struct MatchTarget {
  Pid pid;  // by which descriptions name it
  probes::ModuleCache* modules = nullptr;
  std::vector<std::size_t> which;  // of the modules
};

// Whether a description may stand for probes of it. With several processes, $target stands for each
// of them.
bool is_meant(const plan::ProbeDescription& description, Pid pid);

// The process that a provider's name ends in that is none of pid's: "postgresql4711"; nullopt: it
// does not end in a number, or there is no such process.
std::optional<pid_t> pid_of_usdt_provider(std::string_view provider);

// A pid probe, or a statically defined one: one function of one process.
struct PidPoint {
  std::size_t target = 0;                                   // index in the MatchTargets
  std::shared_ptr<const probes::MatchedFunction> function;  // shared by all of its points
  probes::ProbePoint point;
  bool by_name = false;  // some description names its function and point without wildcards
};

struct EnabledProbe {
  plan::ProbeName name;
  std::vector<std::uint32_t> clauses;
  std::variant<BuiltinProbe, PidPoint> what;
};

// A description that matched nothing, and why if that is known.
struct Unmatched {
  std::uint32_t clause = 0;
  plan::ProbeDescription description;
  std::string why;           // empty: nothing of that name exists
  bool unsupported = false;  // the answer of a provider that is not offered, or a point that its
                             // function does not have: an error even under -Z
  std::string tag = "D_PDESC_ZERO";
};

struct Enabling {
  std::vector<EnabledProbe> probes;
  std::vector<std::uint32_t> matches_by_clause;  // probes that each clause's descriptions matched
  std::vector<Unmatched> unmatched;
  std::vector<std::string>
      notes;  // for -v: modules matched, IFUNC choices, modules that could not be read
};

// The first free probe ID is `first_id`.
Enabling enable(const plan::Program& program, std::span<const MatchTarget> targets,
                std::uint32_t first_id = 4);

// Why a description is a mistake: "probe description x does not match any probes".
std::string unmatched_text(const Unmatched& unmatched);

// "provider:module:function:name", as messages show it.
std::string full_name(const plan::ProbeDescription& description);
std::string full_name(const plan::ProbeName& probe);

}  // namespace trapline::session
