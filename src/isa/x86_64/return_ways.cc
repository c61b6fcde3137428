#include "isa/x86_64/return_ways.h"

#include <algorithm>

namespace trapline::isa {

std::optional<std::vector<PointRequest>> ways_to_return(const ModuleCode& module,
                                                        const PointRequest& point) {
  const FunctionCode& function = *point.function;
  if (point.kind != PointKind::kReturn || exits_refused(function) || function.unknown_targets ||
      std::ranges::binary_search(function.table_targets, point.at)) {
    return std::nullopt;
  }
  const auto index = function.find(point.at);
  const auto branches = module.branches_to_return(point.at);
  if (!index || !branches || module.excluded(point.at, point.at + 1)) return std::nullopt;
  std::vector<PointRequest> ways;
  for (const Instruction& i : function.instructions) {
    if (!i.is_direct_branch() || i.target != point.at.value()) continue;
    ways.push_back(point);
    ways.back().at = LinkAddr(i.address);
    ways.back().kind = PointKind::kTail;
  }
  if (ways.size() != *branches) return std::nullopt;
  if (*index == 0) return ways;
  const Instruction& before = function.instructions[*index - 1];
  if (before.end() != point.at.value() || before.ends_flow()) return ways;
  ways.push_back(point);
  ways.back().kind = PointKind::kFallThrough;
  return ways;
}

}  // namespace trapline::isa
