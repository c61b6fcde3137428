#include "refusal_report.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace trapline::tool {

namespace {

constexpr std::size_t kNamesShown = 3;

std::string name_of(const session::Refusal& refusal) {
  return fmt::format("{}:{}:{}", refusal.probe.module, refusal.probe.function, refusal.probe.name);
}

}  // namespace

std::vector<std::string> describe_refusals(const std::vector<session::Refusal>& refusals,
                                           Detail detail) {
  std::vector<std::string> lines;
  std::map<std::string, std::set<std::string>> by_reason;
  std::set<std::uint32_t> probes;
  for (const session::Refusal& refusal : refusals) {
    by_reason[refusal.reason].insert(name_of(refusal));
    probes.insert(refusal.probe.id);
    if (detail != Detail::kEveryPlace) continue;
    lines.push_back(fmt::format("{} at {:#x} cannot be probed: {}{}{}", name_of(refusal),
                                refusal.address, refusal.reason, refusal.detail.empty() ? "" : ": ",
                                refusal.detail));
  }
  if (refusals.empty()) return lines;
  std::string reasons;
  for (const auto& [reason, names] : by_reason) {
    std::string shown;
    std::size_t count = 0;
    for (const std::string& name : names) {
      if (count++ == kNamesShown) break;
      shown += (shown.empty() ? "" : ", ") + name;
    }
    if (names.size() > kNamesShown) shown += ", ...";
    lines.push_back(fmt::format("{} probe{} refused: {} ({})", names.size(),
                                names.size() == 1 ? "" : "s", reason, shown));
  }
  if (by_reason.size() > 1) {
    lines.push_back(fmt::format("{} probes in all are refused and do not count{}", probes.size(),
                                detail == Detail::kEveryPlace ? "" : "; -v lists each place"));
  }
  return lines;
}

}  // namespace trapline::tool
