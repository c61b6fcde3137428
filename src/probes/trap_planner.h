// Breakpoints for the points that no jump fits at, where they are allowed.
#pragma once

#include <span>

#include "isa/x86_64/site.h"
#include "probes/site_planner.h"

namespace trapline::probes {

// Moves the points of set.refused that may be breakpoints (`uses` by tag) into sites of the form
// kTrap. A point within the bytes of another site stays refused.
void place_traps(const isa::ModuleCode& code, std::span<const PointUse> uses, isa::SiteSet& set);

}  // namespace trapline::probes
