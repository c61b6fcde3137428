#include "isa/x86_64/site.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "isa/x86_64/encode.h"
#include "isa/x86_64/test_code.h"

namespace trapline::isa {
namespace {

// What one point of one function got.
void expect_site(const SiteSet& set, std::uint64_t site, int code, int window, SiteForm form) {
  ASSERT_EQ(set.sites.size(), 1u);
  EXPECT_EQ(set.sites[0].site.value() - kBase, site);
  EXPECT_EQ(set.sites[0].code_size, code);
  EXPECT_EQ(set.sites[0].window_size, window);
  EXPECT_EQ(set.sites[0].form, form);
  EXPECT_EQ(set.sites[0].original.size(), set.sites[0].window_size);
  EXPECT_TRUE(set.refused.empty());
}

void expect_refused(const SiteSet& set, Refusal reason) {
  ASSERT_EQ(set.refused.size(), 1u);
  EXPECT_EQ(to_text(set.refused[0].reason), to_text(reason)) << set.refused[0].text;
  EXPECT_FALSE(set.refused[0].text.empty());
  EXPECT_TRUE(set.sites.empty());
}

TEST(Site, EntryOverWholeInstructions) {
  // push rbp; mov rbp,rsp; sub rsp,16
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc9, 0xc3});
  expect_site(m.plan(0, PointKind::kEntry), 0, 8, 8, SiteForm::kJump5);
}

TEST(Site, EntryBehindEndbr) {
  TestModule m({0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3});
  expect_site(m.plan(0, PointKind::kEntry), 4, 5, 5, SiteForm::kJump5);
}

TEST(Site, EntryOverEndbrWhereNothingElseFits) {
  // endbr64; xor eax,eax; call rax; ret: behind the endbr64 the call would be in the midst of the
  // window
  TestModule m({0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xff, 0xd0, 0xc3});
  const SiteSet set = m.plan(0, PointKind::kEntry);
  expect_site(set, 0, 6, 6, SiteForm::kJump5);
  EXPECT_TRUE(set.sites[0].covers_endbr);
}

TEST(Site, LoopBehindEndbrIsRefused) {
  // endbr64; 4: dec edi; jne 4; ret: every turn of the loop would count
  TestModule m({0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0xcf, 0x75, 0xfc, 0xc3, 0x90, 0x90, 0x90});
  expect_refused(m.plan(0, PointKind::kEntry), Refusal::kBranchIntoWindow);
}

TEST(Site, BranchIntoWindow) {
  // 0: nop; 1: dec edi; jne 1; ret
  TestModule m({0x90, 0xff, 0xcf, 0x75, 0xfc, 0xc3, 0xcc, 0xcc, 0xcc});
  const SiteSet set = m.plan(0, PointKind::kEntry);
  // The only branch to 1 lies in the window itself: both move.
  expect_site(set, 0, 5, 5, SiteForm::kJump5);
  // One more branch to it from elsewhere.
  TestModule two({0x90, 0xff, 0xcf, 0x75, 0xfc, 0x90, 0xeb, 0xf9});
  expect_refused(two.plan(0, PointKind::kEntry), Refusal::kBranchIntoWindow);
}

TEST(Site, BranchOverLockPrefix) {
  // cmp eax,0; je 6 (into the middle of the next); lock inc [rdi]
  TestModule m({0x83, 0xf8, 0x00, 0x74, 0x01, 0xf0, 0xff, 0x07, 0xc3});
  expect_refused(m.plan(5, PointKind::kInstruction), Refusal::kBranchIntoWindow);
}

TEST(Site, LandingPadsAndPointersCount) {
  ModuleInput input;
  input.landing_pads.push_back(LinkAddr(kBase + 1));
  TestModule pad({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3}, 0, std::move(input));
  expect_refused(pad.plan(0, PointKind::kEntry), Refusal::kBranchIntoWindow);
}

TEST(Site, CallInTheMidstAndSyscallAreNeverDisplaced) {
  // nop; call rax; nop; nop; nop; ret
  TestModule call({0x90, 0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3});
  expect_refused(call.plan(0, PointKind::kEntry), Refusal::kCall);
  TestModule syscall({0x89, 0xd0, 0x0f, 0x05, 0x90, 0xc3});
  expect_refused(syscall.plan(0, PointKind::kEntry), Refusal::kSyscall);
  TestModule trap({0x90, 0xcc, 0x90, 0x90, 0x90, 0xc3});
  expect_refused(trap.plan(0, PointKind::kEntry), Refusal::kTrapInstruction);
  TestModule prefix({0x66, 0xe9, 0, 0, 0, 0});
  expect_refused(prefix.plan(0, PointKind::kEntry), Refusal::kUnrelocatable);
}

TEST(Site, ShortFunctionWithPadding) {
  TestModule padded({0x31, 0xc0, 0xc3, 0x66, 0x90, 0xcc}, 3);
  expect_site(padded.plan(0, PointKind::kEntry), 0, 3, 5, SiteForm::kJump5Padding);
  TestModule bare({0x31, 0xc0, 0xc3, 0x90, 0x48, 0x31, 0xc0}, 3);
  expect_refused(bare.plan(0, PointKind::kEntry), Refusal::kTooShort);
  // The padding holds the start of a function (which begins with a nop).
  ModuleInput input;
  input.functions.push_back({LinkAddr(kBase + 4), LinkAddr(kBase + 8)});
  TestModule next({0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0xc3}, 3, std::move(input));
  expect_refused(next.plan(0, PointKind::kEntry), Refusal::kBranchIntoWindow);
  TestModule end({0x31, 0xc0, 0xc3});
  expect_refused(end.plan(0, PointKind::kEntry), Refusal::kTooShort);
}

TEST(Site, ReturnTakesWhatComesBefore) {
  // test edi,edi; add rsp,8; pop rbx; ret; (next function)
  TestModule m({0x85, 0xff, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 8);
  const SiteSet set = m.plan(7, PointKind::kReturn);
  expect_site(set, 2, 6, 6, SiteForm::kJump5);
  EXPECT_EQ(set.sites[0].points[0].offset, 5);
}

TEST(Site, ReturnWithPaddingMovesNothingElse) {
  TestModule m({0x5b, 0xc3, 0x0f, 0x1f, 0x40, 0x00}, 2);
  expect_site(m.plan(1, PointKind::kReturn), 1, 1, 5, SiteForm::kJump5Padding);
}

TEST(Site, ReturnThatIsAJumpTarget) {
  // je 7; add rsp,8; pop rbx; 7: ret; next function
  TestModule m({0x74, 0x05, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 8);
  // No window may hold it: the branch is probed, and what comes before the ret.
  const SiteSet set = m.plan(7, PointKind::kReturn);
  EXPECT_TRUE(set.refused.empty());
  for (const SitePlan& site : set.sites)
    EXPECT_LE(site.site + site.patch_size, LinkAddr(kBase + 7));
  // Nor can it be patched at all where something else leads there.
  ModuleInput input;
  input.landing_pads.push_back(LinkAddr(kBase + 7));
  TestModule pad({0x74, 0x05, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 8, std::move(input));
  expect_refused(pad.plan(7, PointKind::kReturn), Refusal::kBranchIntoWindow);
}

TEST(Site, ReturnRightAfterACall) {
  TestModule m({0xe8, 0, 0, 0, 0, 0xc3, 0x55}, 6);
  expect_refused(m.plan(5, PointKind::kReturn), Refusal::kCall);
}

TEST(Site, EntryAndReturnShareAWindow) {
  // mov eax,edi; ret
  TestModule m({0x89, 0xf8, 0xc3, 0xcc, 0xcc, 0xcc}, 3);
  const SiteSet set = m.plan_all();
  expect_site(set, 0, 3, 7 - 2, SiteForm::kJump5Padding);
  ASSERT_EQ(set.sites[0].points.size(), 2u);
  EXPECT_EQ(set.sites[0].points[0].kind, PointKind::kEntry);
  EXPECT_EQ(set.sites[0].points[1].kind, PointKind::kReturn);
  EXPECT_EQ(set.sites[0].points[1].offset, 2);
}

TEST(Site, WindowsThatMeetAreMerged) {
  // mov rax,rdi (3); mov rdx,rsi (3); inc eax (2); ret; next function
  TestModule m({0x48, 0x89, 0xf8, 0x48, 0x89, 0xf2, 0xff, 0xc0, 0xc3, 0x55}, 9);
  const SiteSet set = m.plan_all();
  expect_site(set, 0, 9, 9, SiteForm::kJump5);
  EXPECT_EQ(set.sites[0].displaced.size(), 4u);
  ASSERT_EQ(set.sites[0].points.size(), 2u);
  EXPECT_EQ(set.sites[0].points[0].offset, 0) << "the entry";
  EXPECT_EQ(set.sites[0].points[1].offset, 8) << "the ret, from the start of the merged window";
}

TEST(Site, CallMayEndAWindow) {
  // push rbp; mov rbp,rsp; call +0; pop rbp; ret
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0x5d, 0xc3}, 0);
  const SiteSet set = m.plan(0, PointKind::kEntry);
  expect_site(set, 0, 9, 9, SiteForm::kJump5);
  EXPECT_EQ(set.sites[0].displaced.back().kind, Kind::kCallDirect);
}

TEST(Site, FunctionOfOneReturn) {
  TestModule m({0xc3, 0x0f, 0x1f, 0x40, 0x00}, 1);
  const SiteSet set = m.plan_all();
  expect_site(set, 0, 1, 5, SiteForm::kJump5Padding);
  ASSERT_EQ(set.sites[0].points.size(), 2u);
  EXPECT_EQ(set.sites[0].points[0].kind, PointKind::kEntry);
}

TEST(Site, ExcludedRanges) {
  ModuleInput input;
  input.excluded.push_back({LinkAddr(kBase + 4), LinkAddr(kBase + 8)});
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3}, 0, std::move(input));
  expect_refused(m.plan(0, PointKind::kEntry), Refusal::kRestartableSequence);
}

TEST(Site, PointsThatAreNoInstructions) {
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3});
  expect_refused(m.plan(2, PointKind::kInstruction), Refusal::kUndecodable);
  expect_refused(m.plan(0x1000, PointKind::kInstruction), Refusal::kNotCode);
}

const SitePlan* island_site(const SiteSet& set) {
  const auto it = std::ranges::find(set.sites, SiteForm::kIsland, &SitePlan::form);
  return it == set.sites.end() ? nullptr : &*it;
}

// je 5; js 5; pop rbx; 5: pop rbp; ret. The ret's window starts at 5 and has two bytes.
#define SHORT_RETURN 0x74, 0x03, 0x78, 0x01, 0x5b, 0x5d, 0xc3

TEST(Site, IslandInPadding) {
  TestModule m({SHORT_RETURN, 0xcc, 0xcc, 0xcc}, 7);
  // Room for a jump of five bytes right there.
  EXPECT_EQ(island_site(m.plan(6, PointKind::kReturn)), nullptr);
  ModuleInput input;
  input.functions.push_back({LinkAddr(kBase + 7), LinkAddr(kBase + 10)});
  // Another function follows at once, and only then comes padding.
  TestModule far({SHORT_RETURN, 0x31, 0xc0, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc}, 7,
                 std::move(input));
  const SiteSet set = far.plan(6, PointKind::kReturn);
  const SitePlan* site = island_site(set);
  ASSERT_NE(site, nullptr);
  EXPECT_EQ(set.sites.size(), 1u);
  EXPECT_EQ(site->site.value() - kBase, 5u);
  EXPECT_EQ(site->patch_size, 2);
  EXPECT_EQ(site->window_size, 2);
  EXPECT_EQ(site->points[0].offset, 1);
  EXPECT_EQ(site->island.at.value() - kBase, 10u);
  EXPECT_EQ(site->island.original, make_bytes({0xcc, 0xcc, 0xcc, 0xcc, 0xcc}));
  EXPECT_FALSE(site->island.hosted);
  EXPECT_NE(site->group, 0u);
}

TEST(Site, NoIslandWhereControlMayCome) {
  const auto refused_with = [](std::initializer_list<int> code, ModuleInput input) {
    input.functions.push_back({LinkAddr(kBase + 7), LinkAddr(kBase + 10)});
    TestModule m(code, 7, std::move(input));
    return island_site(m.plan(6, PointKind::kReturn)) == nullptr;
  };
  // The function before the padding runs on into it.
  EXPECT_TRUE(refused_with({SHORT_RETURN, 0x31, 0xc0, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, {}));
  // Something points into it.
  ModuleInput pointed;
  pointed.code_pointers.push_back(LinkAddr(kBase + 12));
  EXPECT_TRUE(
      refused_with({SHORT_RETURN, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90}, pointed));
  // It is no padding.
  EXPECT_TRUE(refused_with({SHORT_RETURN, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x55}, {}));
  ModuleInput excluded;
  excluded.excluded.push_back({LinkAddr(kBase + 14), LinkAddr(kBase + 18)});
  EXPECT_TRUE(
      refused_with({SHORT_RETURN, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90}, excluded));
}

TEST(Site, IslandsDoNotShareTheirBytes) {
  // Two functions of two bytes each between the padding: only one island fits into it.
  ModuleInput input;
  input.functions.push_back({LinkAddr(kBase + 7), LinkAddr(kBase + 10)});
  TestModule m({SHORT_RETURN, 0x5b, 0x5d, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0x55}, 7,
               std::move(input));
  const FunctionCode second =
      analyze_function(m.module(), {LinkAddr(kBase + 7), LinkAddr(kBase + 10)});
  const std::vector<PointRequest> points{
      {.at = LinkAddr(kBase + 6), .kind = PointKind::kReturn, .function = &m.function(), .tag = 1},
      {.at = LinkAddr(kBase + 7), .kind = PointKind::kEntry, .function = &second, .tag = 2}};
  const SiteSet set = plan_sites(m.module(), points);
  // The second function's jump takes the padding; nothing is left for an island.
  ASSERT_EQ(set.sites.size(), 1u);
  EXPECT_EQ(set.sites[0].form, SiteForm::kJump5Padding);
  ASSERT_EQ(set.refused.size(), 1u);
  EXPECT_EQ(set.refused[0].point.tag, 1u);
}

TEST(Site, IslandInAHost) {
  // Twelve bytes of straight code, then a short return without padding.
  TestModule m({0x48, 0x89, 0xf8, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xf9, 0x48, 0x85, 0xf8,  //
                SHORT_RETURN, 0x55},
               19);
  const SiteSet set = m.plan(18, PointKind::kReturn);
  EXPECT_TRUE(set.refused.empty());
  ASSERT_EQ(set.sites.size(), 2u);
  const SitePlan& host = set.sites[0];
  const SitePlan& site = set.sites[1];
  EXPECT_EQ(host.form, SiteForm::kJump5);
  EXPECT_TRUE(host.points.empty());
  EXPECT_EQ(host.site.value() - kBase, 0u);
  EXPECT_GE(host.window_size, 10);
  EXPECT_EQ(site.form, SiteForm::kIsland);
  EXPECT_TRUE(site.island.hosted);
  EXPECT_EQ(site.island.at, host.site + 5);
  EXPECT_EQ(site.group, host.group);
  EXPECT_NE(site.group, 0u);
}

TEST(Site, NoHostInAPartOfAnotherFunction) {
  const auto plan = [](bool cold) {
    ModuleInput input;
    const CodeRange behind{LinkAddr(kBase + 7), LinkAddr(kBase + 20)};
    input.functions.push_back(behind);
    if (cold) input.cold.push_back(behind);
    TestModule m({SHORT_RETURN,  //
                  0x48, 0x89, 0xf8, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xf9, 0x48, 0x85, 0xf8, 0xc3},
                 7, std::move(input));
    return m.plan(6, PointKind::kReturn);
  };
  const SitePlan* site = nullptr;
  const SiteSet whole = plan(false);
  ASSERT_NE(site = island_site(whole), nullptr);
  EXPECT_TRUE(site->island.hosted);
  // A jump table of the function that it belongs to may lead into it.
  EXPECT_EQ(island_site(plan(true)), nullptr);
}

TEST(Site, ShortEntryBeforeALoop) {
  // mov rax,rdi; 3: dec rdi; jne 3; ret; padding
  TestModule m({0x48, 0x89, 0xf8, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc},
               9);
  const SiteSet set = m.plan(0, PointKind::kEntry);
  const SitePlan* site = island_site(set);
  ASSERT_NE(site, nullptr);
  EXPECT_EQ(site->code_size, 3);
  EXPECT_EQ(site->displaced.size(), 1u);
  EXPECT_EQ(site->island.at.value() - kBase, 9u);
}

// cmp edi,0; je 12; js 12; mov eax,edi; mov edx,esi; 12 bytes on: ret; next function
#define RETURN_OF_ONE_BYTE \
  0x83, 0xff, 0x00, 0x74, 0x06, 0x78, 0x04, 0x89, 0xf8, 0x89, 0xf2, 0xc3, 0x55

TEST(Site, WaysToAReturn) {
  TestModule m({RETURN_OF_ONE_BYTE}, 12);
  const SiteSet set = m.plan(11, PointKind::kReturn);
  EXPECT_TRUE(set.refused.empty()) << set.refused[0].text;
  std::vector<std::pair<std::uint64_t, PointKind>> points;
  for (const SitePlan& site : set.sites) {
    for (const PlannedPoint& point : site.points)
      points.emplace_back(site.site + point.offset - LinkAddr(kBase), point.kind);
    // The ret stays.
    EXPECT_LE(site.site + site.patch_size, LinkAddr(kBase + 11));
  }
  EXPECT_EQ(points,
            (std::vector<std::pair<std::uint64_t, PointKind>>{
                {3, PointKind::kTail}, {5, PointKind::kTail}, {11, PointKind::kFallThrough}}));
  EXPECT_TRUE(set.sites.back().keeps_last);
}

TEST(Site, WaysToAReturnMustAllBeKnown) {
  ModuleInput pointed;
  pointed.code_pointers.push_back(LinkAddr(kBase + 11));
  TestModule pointer({RETURN_OF_ONE_BYTE}, 12, std::move(pointed));
  expect_refused(pointer.plan(11, PointKind::kReturn), Refusal::kBranchIntoWindow);
  // The function behind it jumps there.
  TestModule stranger({RETURN_OF_ONE_BYTE, 0x5d, 0xeb, 0xfb}, 12);
  expect_refused(stranger.plan(11, PointKind::kReturn), Refusal::kBranchIntoWindow);
  // It is returned to: cmp edi,0; je 7; call rax; 7: ret
  TestModule called({0x83, 0xff, 0x00, 0x74, 0x02, 0xff, 0xd0, 0xc3, 0x55}, 8);
  EXPECT_EQ(called.plan(7, PointKind::kReturn).refused.size(), 1u);
}

TEST(Site, EveryPointIsAnsweredOnce) {
  // A long run of rets, each a point of its own, with entries in between.
  std::vector<PointRequest> points;
  TestModule m(
      {0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3, 0x90, 0x90});
  for (std::uint32_t n = 0; n < 12; ++n) {
    points.push_back({.at = LinkAddr(kBase + n),
                      .kind = PointKind::kInstruction,
                      .function = &m.function(),
                      .tag = n});
  }
  const SiteSet set = plan_sites(m.module(), points);
  std::vector<int> answers(12, 0);
  for (const RefusedPoint& r : set.refused) ++answers[r.point.tag];
  LinkAddr last;
  for (const SitePlan& s : set.sites) {
    EXPECT_GE(s.site, last);
    last = s.site + s.window_size;
    for (const PlannedPoint& p : s.points) ++answers[p.tag];
  }
  EXPECT_EQ(answers, std::vector<int>(12, 1));
}

TEST(Site, EveryInstructionOfALongRun) {
  // More straight code than one window may hold: `add eax, imm8` of three bytes, and a return.
  constexpr std::uint32_t kCount = 100;
  std::vector<std::byte> code;
  for (std::uint32_t n = 0; n < kCount; ++n)
    for (const int byte : {0x83, 0xc0, 0x01}) code.push_back(static_cast<std::byte>(byte));
  code.push_back(std::byte{0xc3});
  const CodeRange range{LinkAddr(kBase), LinkAddr(kBase + code.size())};
  ModuleInput input;
  input.sections.push_back({range.begin, code});
  input.functions.push_back(range);
  const ModuleCode module(std::move(input));
  const FunctionCode function = analyze_function(module, range);
  std::vector<PointRequest> points;
  for (std::uint32_t n = 0; n <= kCount; ++n) {
    points.push_back({.at = LinkAddr(kBase + 3 * n),
                      .kind = PointKind::kInstruction,
                      .function = &function,
                      .tag = n});
  }
  const SiteSet set = plan_sites(module, points);
  EXPECT_TRUE(set.refused.empty());
  std::vector<int> answers(kCount + 1, 0);
  LinkAddr last;
  for (const SitePlan& s : set.sites) {
    EXPECT_GE(s.site, last);
    EXPECT_LE(s.window_size, kMaxWindow);
    EXPECT_LE(trampoline_bound(s, s.points.size()), kMaxTrampoline);
    last = s.site + s.window_size;
    for (const PlannedPoint& p : s.points) {
      EXPECT_EQ(s.site + p.offset, LinkAddr(kBase + 3 * p.tag));
      ++answers[p.tag];
    }
  }
  EXPECT_EQ(answers, std::vector<int>(kCount + 1, 1));
}

TEST(Site, TrapTakesOneInstruction) {
  TestModule m({0x74, 0x05, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 8);
  const PointRequest ret{
      .at = LinkAddr(kBase + 7), .kind = PointKind::kReturn, .function = &m.function()};
  const TrapPlan trap = plan_trap_site(m.module(), std::span(&ret, 1));
  ASSERT_TRUE(trap.possible);
  EXPECT_EQ(trap.plan.form, SiteForm::kTrap);
  EXPECT_EQ(trap.plan.patch_size, 1);
  EXPECT_EQ(trap.plan.displaced.size(), 1u);
  TestModule call({0xe8, 0, 0, 0, 0, 0xc3});
  const PointRequest entry = entry_point(call.function());
  EXPECT_FALSE(plan_trap_site(call.module(), std::span(&entry, 1)).possible);
}

}  // namespace
}  // namespace trapline::isa
