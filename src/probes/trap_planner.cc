#include "probes/trap_planner.h"

#include <algorithm>
#include <map>
#include <vector>

namespace trapline::probes {

namespace {

// What jumps take of the module's bytes: windows and islands.
class Taken {
 public:
  explicit Taken(const std::vector<isa::SitePlan>& sites) {
    for (const isa::SitePlan& site : sites) {
      ranges_[site.site] = site.site + site.window_size;
      if (site.form == isa::SiteForm::kIsland)
        ranges_[site.island.at] = site.island.at + isa::kJumpSize;
    }
  }
  bool overlaps(LinkAddr begin, LinkAddr end) const {
    auto it = ranges_.lower_bound(end);
    // Islands lie within their hosts' windows: look back over what may reach this far.
    for (int n = 0; n < kLookBack && it != ranges_.begin(); ++n) {
      --it;
      if (it->second > begin) return true;
    }
    return false;
  }

 private:
  static constexpr int kLookBack = 32;
  std::map<LinkAddr, LinkAddr> ranges_;
};

}  // namespace

void place_traps(const isa::ModuleCode& code, std::span<const PointUse> uses, isa::SiteSet& set) {
  std::map<LinkAddr, std::vector<isa::PointRequest>> wanted;
  for (const isa::RefusedPoint& refused : set.refused) {
    const Traps traps = uses[refused.point.tag].traps;
    if (traps == Traps::kWhereNeeded || traps == Traps::kAlways)
      wanted[refused.point.at].push_back(refused.point);
  }
  if (wanted.empty()) return;
  const Taken taken(set.sites);
  std::map<LinkAddr, isa::Refusal> impossible;
  for (const auto& [at, points] : wanted) {
    isa::TrapPlan trap = isa::plan_trap_site(code, points);
    if (!trap.possible) {
      impossible[at] = trap.reason;
    } else if (taken.overlaps(at, at + trap.plan.window_size)) {
      impossible[at] = isa::Refusal::kBranchIntoWindow;
    } else {
      set.sites.push_back(std::move(trap.plan));
    }
  }
  std::erase_if(set.refused, [&](isa::RefusedPoint& refused) {
    if (!wanted.contains(refused.point.at)) return false;
    const auto reason = impossible.find(refused.point.at);
    if (reason == impossible.end()) return uses[refused.point.tag].traps >= Traps::kWhereNeeded;
    if (uses[refused.point.tag].traps == Traps::kAlways) refused.reason = reason->second;
    return false;
  });
  std::ranges::sort(set.sites, {}, &isa::SitePlan::site);
}

}  // namespace trapline::probes
