// Which descriptions may match in modules that a process does not have yet.

#pragma once

#include <set>

#include "plan/plan.h"
#include "session/body_store.h"
#include "session/enabling.h"

namespace trapline::session {

struct LaterProbes {
  bool any = false;
  // Bodies that they will want, as far as can be told: compiled beforehand, they are ready in time.
  std::set<BodyKey> bodies;
};

// A description counts whose module part is empty, a pattern, or a name that no module has so far.
LaterProbes later_probes(const plan::Program& program, const MatchTarget& target);

}  // namespace trapline::session
