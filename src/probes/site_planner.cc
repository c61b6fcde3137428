#include "probes/site_planner.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "isa/x86_64/go_prologue.h"
#include "isa/x86_64/relocate.h"
#include "probes/module_code.h"
#include "probes/trap_planner.h"

namespace trapline::probes {

namespace {

// Whether callers that the compiler did not see together with the function may exist: those know
// nothing of it but the ABI. A program's own functions are seen by all its callers.
isa::Linkage linkage_of(const symbols::Module& module, const symbols::Symbol& symbol) {
  const bool exported = symbol.binding != symbols::SymbolBinding::kLocal && !symbol.hidden &&
                        symbol.kind == symbols::SymbolKind::kFunction &&
                        symbol.clone == symbols::CloneKind::kNone;
  const bool library = module.role == symbols::ModuleRole::kLibrary;
  return exported && library ? isa::Linkage::kExported : isa::Linkage::kLocal;
}

// Between two symbols of Go's linker; without them, all of the module.
isa::CodeRange go_code(const symbols::SymbolTable& table) {
  const auto begin = table.named("runtime.text"), end = table.named("runtime.etext");
  if (begin.empty() || end.empty()) return {LinkAddr(0), LinkAddr(~std::uint64_t{0})};
  return {begin.front()->address, end.front()->address};
}

class ModulePlanner {
 public:
  ModulePlanner(ModuleCache& modules, std::size_t index, SitePlans& plans, ShadowStack shadow_stack)
      : modules_(modules), index_(index), plans_(plans), shadow_stack_(shadow_stack) {}

  void plan(std::span<const WantedProbe* const> wanted) {
    const symbols::Module& module = modules_.module(index_);
    if (module.role == symbols::ModuleRole::kVdso) {
      refuse_all(wanted, "the vDSO is the kernel's code", "");
      return;
    }
    const auto table = modules_.symbol_table(index_);
    if (!table) {
      refuse_all(wanted, "no symbols", table.error().text());
      return;
    }
    const auto code = read_module_code(module, **table, modules_.code_facts(index_));
    if (symbols::is_go(*module.image)) go_code_ = go_code(**table);
    std::vector<isa::PointRequest> points;
    for (const WantedProbe* probe : wanted) traps_[probe->probe] = probe->traps;
    for (const WantedProbe* probe : wanted) add_points(*code, **table, *probe, points);
    isa::SiteSet set = plan_points(*code, points);
    while (drop_incomplete(*code, set, points)) set = plan_points(*code, points);
    if (!set.sites.empty()) plans_.modules.push_back({index_, std::move(set.sites)});
  }

 private:
  void add_points(const isa::ModuleCode& code, const symbols::SymbolTable& table,
                  const WantedProbe& wanted, std::vector<isa::PointRequest>& points) {
    if (wanted.function->usdt) add_usdt_sites(code, table, wanted, points);
    for (const symbols::Symbol& place : wanted.function->places) {
      const isa::FunctionCode& function = analyzed(code, table, place);
      const isa::Boundary boundary =
          isa::boundary_of(code, function, linkage_of(modules_.module(index_), place));
      const bool is_go = go_code_ && go_code_->contains(place.address);
      if (wanted.point.kind == PointKind::kOffset && is_go) {
        refuse(wanted.probe, place.address, "a function of Go's",
               "only its entry and its returns are known to have room for a probe on their stack");
        continue;
      }
      if (wanted.point.kind == PointKind::kOffset) {
        add_instruction(function, wanted, place, boundary, points);
        continue;
      }
      if (is_go) {
        add_go_points(function, wanted, place, points);
        continue;
      }
      if (wanted.point.kind == PointKind::kEntry && function.entry_is_branch_target) {
        refuse(wanted.probe, place.address, "the function jumps back to its first instruction",
               "each turn of the loop would count as a call");
        continue;
      }
      if (wanted.point.kind == PointKind::kEntry) {
        add(isa::entry_point(function, next_tag()), wanted.probe, place, boundary, points);
        continue;
      }
      add_exits(function, wanted, place, boundary, points);
    }
  }

  void add_exits(const isa::FunctionCode& function, const WantedProbe& wanted,
                 const symbols::Symbol& place, isa::Boundary boundary,
                 std::vector<isa::PointRequest>& points) {
    if (function.has_unproven_jump()) {
      refuse(wanted.probe, place.address, std::string(isa::to_text(isa::Refusal::kUnprovenJump)),
             "an indirect jump may or may not leave the function");
      return;
    }
    if (!function.decodable) {
      refuse(wanted.probe, place.address, std::string(isa::to_text(isa::Refusal::kUndecodable)),
             "");
      return;
    }
    for (isa::PointRequest point : isa::exit_points(function)) {
      point.tag = next_tag();
      add(point, wanted.probe, place, boundary, points);
    }
  }

  // Entry and returns. Where the function has checked its stack, there is room for a body.
  void add_go_points(const isa::FunctionCode& function, const WantedProbe& wanted,
                     const symbols::Symbol& place, std::vector<isa::PointRequest>& points) {
    const std::optional<isa::GoEntry> entry = isa::go_entry(function);
    if (!entry) {
      refuse(wanted.probe, place.address, "a function of Go's that does not check its stack",
             "it may run at the very end of one, where there is no room for a probe");
    } else if (wanted.point.kind == PointKind::kEntry) {
      add({.at = entry->at, .kind = entry->kind, .function = &function, .tag = next_tag()},
          wanted.probe, place, isa::Boundary::kUnknown, points);
    } else {
      add_exits(function, wanted, place, isa::Boundary::kUnknown, points);
    }
  }

  void add_usdt_sites(const isa::ModuleCode& code, const symbols::SymbolTable& table,
                      const WantedProbe& wanted, std::vector<isa::PointRequest>& points) {
    for (const std::shared_ptr<const UsdtSite>& site : wanted.function->usdt->sites) {
      if (!site->problem.empty()) {
        refuse(wanted.probe, site->at, "a statically defined probe that cannot be read",
               site->problem);
        continue;
      }
      if (site->function.size == 0) {
        refuse(wanted.probe, site->at, "no function is known there", "");
        continue;
      }
      if (go_code_ && go_code_->contains(site->at)) {
        refuse(wanted.probe, site->at, "a function of Go's", "");
        continue;
      }
      const isa::FunctionCode& function = analyzed(code, table, site->function);
      if (!function.find(site->at)) {
        refuse(wanted.probe, site->at, std::string(isa::to_text(isa::Refusal::kNotCode)), "");
        continue;
      }
      add({.at = site->at,
           .kind = isa::PointKind::kStatic,
           .function = &function,
           .tag = next_tag()},
          wanted.probe, site->function, isa::Boundary::kUnknown, points);
      plans_.uses.back().usdt = site;
    }
  }

  // Of several places of one name, those that have an instruction at the offset are meant.
  void add_instruction(const isa::FunctionCode& function, const WantedProbe& wanted,
                       const symbols::Symbol& place, isa::Boundary boundary,
                       std::vector<isa::PointRequest>& points) {
    const LinkAddr at = place.address + wanted.point.offset;
    if (!function.find(at)) return;
    add({.at = at, .kind = isa::PointKind::kInstruction, .function = &function, .tag = next_tag()},
        wanted.probe, place, boundary, points);
  }

  // A relocated call pushes its return address as data, which a shadow stack does not see.
  isa::SiteSet plan_points(const isa::ModuleCode& code,
                           std::span<const isa::PointRequest> points) const {
    const auto always = [&](const isa::PointRequest& point) {
      return plans_.uses[point.tag].traps == Traps::kAlways;
    };
    std::vector<isa::PointRequest> jumps;
    std::ranges::remove_copy_if(points, std::back_inserter(jumps), always);
    isa::SiteSet set = isa::plan_sites(code, jumps);
    for (const isa::PointRequest& point : points) {
      if (always(point)) set.refused.push_back({point, isa::Refusal::kTooShort, point.at, ""});
    }
    place_traps(code, plans_.uses, set);
    if (shadow_stack_ == ShadowStack::kNo) return set;
    const auto ends_in_call = [](const isa::SitePlan& site) {
      return isa::is_relocatable_call(site.displaced.back());
    };
    for (const isa::SitePlan& site : set.sites) {
      if (!ends_in_call(site)) continue;
      for (const isa::PlannedPoint& planned : site.points) {
        const auto point = std::ranges::find(points, planned.tag, &isa::PointRequest::tag);
        set.refused.push_back(
            {*point, isa::Refusal::kCall, site.site, "the process has a shadow stack"});
      }
    }
    std::erase_if(set.sites, ends_in_call);
    return set;
  }

  // A return probe that misses one of its exits would count too few: it is refused as a whole.
  // True: points were taken out, and the others are to be planned again.
  bool drop_incomplete(const isa::ModuleCode& code, const isa::SiteSet& set,
                       std::vector<isa::PointRequest>& points) {
    std::set<std::uint32_t> refused_tags;
    for (const isa::RefusedPoint& refused : set.refused) {
      refused_tags.insert(refused.point.tag);
      const std::uint32_t probe = plans_.uses[refused.point.tag].probe;
      const bool offered = plans_.uses[refused.point.tag].traps == Traps::kOffered &&
                           isa::plan_trap_site(code, std::span(&refused.point, 1)).possible;
      refuse(probe, refused.point.at, std::string(isa::to_text(refused.reason)),
             refused.text + (offered ? "; -x engine=trap would reach it" : ""));
    }
    const auto is_dropped = [&](const isa::PointRequest& point) {
      const bool whole = incomplete_.contains(plans_.uses[point.tag].probe) &&
                         point.kind != isa::PointKind::kEntry && !isa::is_anywhere(point.kind);
      return whole || refused_tags.contains(point.tag);
    };
    if (set.refused.empty() && incomplete_.empty()) return false;
    return std::erase_if(points, is_dropped) != 0;
  }

  const isa::FunctionCode& analyzed(const isa::ModuleCode& code, const symbols::SymbolTable& table,
                                    const symbols::Symbol& place) {
    auto [known, fresh] = functions_.try_emplace(place.address.value(), nullptr);
    if (fresh) {
      std::vector<isa::CodeRange> cold;
      for (const symbols::AddressRange range : table.cold_parts(place))
        cold.push_back({range.begin, range.end});
      store_.push_back(
          isa::analyze_function(code, {place.address, place.address + place.size}, cold));
      known->second = &store_.back();
    }
    return *known->second;
  }

  std::uint32_t next_tag() const { return static_cast<std::uint32_t>(plans_.uses.size()); }

  void add(const isa::PointRequest& point, std::uint32_t probe, const symbols::Symbol& place,
           isa::Boundary boundary, std::vector<isa::PointRequest>& points) {
    plans_.uses.push_back({probe, point.at - place.address, boundary, traps_.at(probe)});
    points.push_back(point);
  }

  void refuse(std::uint32_t probe, LinkAddr at, std::string reason, std::string detail) {
    incomplete_.insert(probe);
    plans_.refused.push_back({probe, index_, modules_.module(index_).bias.to_remote(at),
                              std::move(reason), std::move(detail)});
  }

  void refuse_all(std::span<const WantedProbe* const> wanted, const std::string& reason,
                  const std::string& detail) {
    for (const WantedProbe* probe : wanted) {
      for (const symbols::Symbol& place : probe->function->places)
        refuse(probe->probe, place.address, reason, detail);
      if (!probe->function->usdt) continue;
      for (const std::shared_ptr<const UsdtSite>& site : probe->function->usdt->sites)
        refuse(probe->probe, site->at, reason, detail);
    }
  }

  ModuleCache& modules_;
  std::size_t index_;
  SitePlans& plans_;
  ShadowStack shadow_stack_;
  std::optional<isa::CodeRange> go_code_;  // what Go's compiler made; the rest may be C's
  std::set<std::uint32_t> incomplete_;     // probes of which some place is refused
  std::map<std::uint32_t, Traps> traps_;   // by probe
  std::deque<isa::FunctionCode> store_;
  std::map<std::uint64_t, const isa::FunctionCode*> functions_;
};

}  // namespace

std::size_t SitePlans::site_count() const {
  std::size_t count = 0;
  for (const ModuleSites& module : modules) count += module.sites.size();
  return count;
}

std::size_t SitePlans::trap_count() const {
  std::size_t count = 0;
  for (const ModuleSites& module : modules) {
    count += static_cast<std::size_t>(
        std::ranges::count(module.sites, isa::SiteForm::kTrap, &isa::SitePlan::form));
  }
  return count;
}

SitePlans plan_probes(ModuleCache& modules, std::span<const WantedProbe> wanted,
                      ShadowStack shadow_stack) {
  SitePlans plans;
  std::map<std::size_t, std::vector<const WantedProbe*>> by_module;
  for (const WantedProbe& probe : wanted) by_module[probe.function->module].push_back(&probe);
  for (const auto& [module, probes] : by_module)
    ModulePlanner(modules, module, plans, shadow_stack).plan(probes);
  return plans;
}

}  // namespace trapline::probes
