#include "session/later_probes.h"

#include <algorithm>

#include "symbols/glob.h"
#include "symbols/modules.h"

namespace trapline::session {

namespace {

bool may_match_later(const plan::ProbeDescription& description, const MatchTarget& target) {
  if (!is_meant(description, target.pid)) return false;
  if (description.module.empty() || !symbols::Glob(description.module).is_literal()) return true;
  return std::ranges::none_of(target.which, [&](std::size_t i) {
    return symbols::module_matches(description.module, target.modules->module(i));
  });
}

}  // namespace

LaterProbes later_probes(const plan::Program& program, const MatchTarget& target) {
  LaterProbes later;
  for (std::uint32_t c = 0; c < program.clauses.size(); ++c) {
    for (const plan::ProbeDescription& description : program.clauses[c].probes) {
      if (!may_match_later(description, target)) continue;
      later.any = true;
      // Probes at offsets have the bodies of entries.
      const symbols::Glob name(description.name);
      if (!name.matches("return") || !name.is_literal())
        later.bodies.insert({codegen::SiteKind::kEntry, {c}});
      if (name.matches("return")) later.bodies.insert({codegen::SiteKind::kReturn, {c}});
    }
  }
  return later;
}

}  // namespace trapline::session
