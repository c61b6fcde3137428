// How much of real modules can be probed by a jump. Prints the figures; asks for those that the
// design promises.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "isa/x86_64/encode.h"
#include "isa/x86_64/test_elf.h"

namespace trapline::isa {
namespace {

struct Tally {
  std::size_t asked = 0;
  std::size_t placed = 0;
  std::map<std::string, std::size_t> refused;

  double percent() const {
    return asked == 0 ? 100 : 100.0 * static_cast<double>(placed) / static_cast<double>(asked);
  }
  void print(const char* what) const {
    std::printf("  %s: %zu of %zu, %.2f %%\n", what, placed, asked, percent());
    for (const auto& [reason, count] : refused) std::printf("    %5zu %s\n", count, reason.c_str());
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class CoverageTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CoverageTest, MostFunctionsTakeAJump) {
  const TestElf elf(GetParam());
  if (!elf.valid()) GTEST_SKIP() << GetParam() << " is not here";
  const auto start = std::chrono::steady_clock::now();
  const ModuleCode module(elf.input);
  const double sweep = seconds_since(start);
  std::map<PointKind, Tally> tallies;
  std::size_t functions = 0;
  for (const TestElf::Symbol& symbol : elf.symbols) {
    if (!module.in_code(symbol.range.begin)) continue;
    ++functions;
    const auto cold = elf.cold.find(symbol.name);
    const FunctionCode f = analyze_function(
        module, symbol.range, cold == elf.cold.end() ? std::vector<CodeRange>{} : cold->second);
    std::vector<PointRequest> points = exit_points(f);
    points.push_back(entry_point(f));
    for (std::uint32_t n = 0; n < points.size(); ++n) {
      points[n].tag = n;
      ++tallies[points[n].kind].asked;
    }
    const SiteSet set = plan_sites(module, points);
    std::set<std::uint32_t> placed;  // a return whose ways are probed has several points
    for (const SitePlan& plan : set.sites) {
      for (const PlannedPoint& p : plan.points) placed.insert(p.tag);
    }
    for (const std::uint32_t tag : placed) ++tallies[points[tag].kind].placed;
    ASSERT_EQ(placed.size() + set.refused.size(), points.size()) << symbol.name;
    for (const RefusedPoint& r : set.refused) {
      ++tallies[r.point.kind].refused[std::string(to_text(r.reason))];
    }
  }
  std::printf("%s: %zu functions; sweep of %zu instructions %.0f ms, all %.0f ms\n", GetParam(),
              functions, module.swept_instructions(), sweep * 1e3, seconds_since(start) * 1e3);
  tallies[PointKind::kEntry].print("entries");
  tallies[PointKind::kReturn].print("rets");
  tallies[PointKind::kTail].print("tail jumps");
  EXPECT_GT(tallies[PointKind::kEntry].percent(), 99.5);
  EXPECT_GT(tallies[PointKind::kReturn].percent(), 99);
}

INSTANTIATE_TEST_SUITE_P(Modules, CoverageTest,
                         ::testing::Values("/lib/x86_64-linux-gnu/libc.so.6",
                                           "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                                           "/usr/bin/python3.11"));

}  // namespace
}  // namespace trapline::isa
