#include "isa/x86_64/encode.h"

#include <gtest/gtest.h>

#include "isa/x86_64/relocate.h"
#include "isa/x86_64/test_code.h"

namespace trapline::isa {
namespace {

constexpr std::uint64_t kTrampoline = kBase + 0x10000;
constexpr std::uint64_t kBody = kTrampoline + 0x1000;
constexpr std::uint64_t kSite = kTrampoline + 0x800;

// All points of a plan, calling one body.
Result<Trampoline> build(const SitePlan& plan, Save save, std::uint64_t address = kTrampoline,
                         LoadBias bias = {}) {
  TrampolineRequest request{.address = RemoteAddr(address), .bias = bias, .plan = &plan};
  for (const PlannedPoint& p : plan.points) {
    request.points.push_back({.offset = p.offset,
                              .kind = p.kind,
                              .save = save,
                              .body = RemoteAddr(kBody),
                              .probe_site = RemoteAddr(kSite)});
  }
  return encode_trampoline(request);
}

std::string text(const Result<Trampoline>& t) { return t ? hex(t->bytes) : t.error().text(); }

TEST(Encode, Entry) {
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3});
  const SiteSet set = m.plan(0, PointKind::kEntry);
  const auto t = build(set.sites.at(0), Save::kNothing);
  EXPECT_EQ(text(t),
            "4c 8d 15 f9 07 00 00 "  // lea r10, [site]
            "e8 f4 0f 00 00 "        // call body
            "55 48 89 e5 90 "
            "e9 ef ff fe ff");  // jmp back to kBase + 5
  EXPECT_EQ(t->stack_adjust, std::vector<std::uint32_t>{0});
  ASSERT_EQ(t->pcs.size(), 3u);
  EXPECT_EQ(t->pcs[0].trampoline_offset, 0);
  EXPECT_EQ(t->pcs[0].instruction_offset, 12);
  EXPECT_EQ(t->pcs[1].site_offset, 1);
  EXPECT_EQ(t->pcs[1].trampoline_offset, 13);
  const auto patch = encode_patch(set.sites[0], {}, RemoteAddr(kTrampoline));
  EXPECT_EQ(hex(*patch), "e9 fb ff 00 00");
}

TEST(Encode, Return) {
  TestModule m({0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 6);
  const auto t = build(m.plan(5, PointKind::kReturn).sites.at(0), Save::kNothing);
  EXPECT_EQ(text(t),
            "48 83 c4 08 5b "
            "57 48 89 c7 "  // push rdi; mov rdi, rax
            "4c 8d 15 f0 07 00 00 e8 eb 0f 00 00 "
            "5f c3");
  EXPECT_EQ(t->stack_adjust, std::vector<std::uint32_t>{8});
}

TEST(Encode, EverythingKept) {
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3});
  const auto t = build(m.plan(0, PointKind::kInstruction).sites.at(0), Save::kAll);
  EXPECT_EQ(text(t),
            "48 8d 64 24 80 50 9f 0f 90 c0 50 41 52 41 53 48 8b 44 24 18 "
            "4c 8d 15 e5 07 00 00 e8 e0 0f 00 00 "
            "41 5b 41 5a 58 04 7f 9e 58 48 8d a4 24 80 00 00 00 "
            "55 48 89 e5 90 e9 ca ff fe ff");
  EXPECT_EQ(t->stack_adjust, std::vector<std::uint32_t>{160});
}

TEST(Encode, ScratchRegistersKept) {
  TestModule m({0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 6);
  const auto t = build(m.plan(5, PointKind::kReturn).sites.at(0), Save::kRegisters);
  EXPECT_EQ(text(t),
            "48 83 c4 08 5b "
            "41 52 41 53 57 48 89 c7 4c 8d 15 ec 07 00 00 e8 e7 0f 00 00 5f 41 5b 41 5a "
            "c3");
  EXPECT_EQ(t->stack_adjust, std::vector<std::uint32_t>{24});
}

TEST(Encode, FarBodyAndSite) {
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3});
  const SiteSet set = m.plan(0, PointKind::kEntry);
  TrampolineRequest request{
      .address = RemoteAddr(kTrampoline), .bias = {}, .plan = &set.sites.at(0)};
  request.points.push_back({.offset = 0,
                            .kind = PointKind::kEntry,
                            .save = Save::kNothing,
                            .body = RemoteAddr(0x7f0011223344),
                            .probe_site = RemoteAddr(0x7f0055667788)});
  EXPECT_EQ(text(encode_trampoline(request)),
            "49 ba 88 77 66 55 00 7f 00 00 49 bb 44 33 22 11 00 7f 00 00 41 ff d3 "
            "55 48 89 e5 90 e9 e4 ff fe ff");
}

TEST(Encode, RipRelativeIsFixed) {
  // mov rax,[rip+0x100] at kBase: refers to kBase + 0x107
  TestModule m({0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xc3});
  const SiteSet set = m.plan(0, PointKind::kEntry);
  const auto t = build(set.sites.at(0), Save::kNothing);
  EXPECT_EQ(text(t),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 "
            "48 8b 05 f4 00 ff ff "
            "e9 ef ff fe ff");
  EXPECT_TRUE(in_reach(set.sites[0], {}, RemoteAddr(kTrampoline)));
  // Loaded elsewhere, with the trampoline left behind: out of reach.
  const LoadBias far{0x7f0000000000};
  EXPECT_FALSE(in_reach(set.sites[0], far, RemoteAddr(kTrampoline)));
  const auto refused = build(set.sites[0], Save::kNothing, kTrampoline, far);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_FALSE(encode_patch(set.sites[0], far, RemoteAddr(kTrampoline)).has_value());
  // And with it near: the same bytes again.
  const auto moved = build(set.sites[0], Save::kNothing, kTrampoline + far.value, far);
  EXPECT_EQ(hex(std::span(moved->bytes).last(12)), "48 8b 05 e9 00 ff ff e9 e4 ff fe ff");
}

TEST(Encode, ShortBranchesAreWidened) {
  // test edi,edi; je +0x40; nop; ret
  TestModule m({0x85, 0xff, 0x74, 0x40, 0x90, 0xc3});
  EXPECT_EQ(text(build(m.plan(0, PointKind::kInstruction).sites.at(0), Save::kNothing)),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 "
            "85 ff 0f 84 30 00 ff ff 90 e9 eb ff fe ff");
}

TEST(Encode, LoopInstructions) {
  // jrcxz +0x40; nop; nop; nop
  TestModule m({0xe3, 0x40, 0x90, 0x90, 0x90, 0xc3});
  EXPECT_EQ(text(build(m.plan(0, PointKind::kEntry).sites.at(0), Save::kNothing)),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 "
            "e3 02 eb 05 e9 2d 00 ff ff "
            "90 90 90 e9 e8 ff fe ff");
}

TEST(Encode, BranchInsideTheWindow) {
  // 0: nop; 1: dec edi; 3: jne 1
  TestModule m({0x90, 0xff, 0xcf, 0x75, 0xfc, 0xc3, 0xcc, 0xcc, 0xcc});
  EXPECT_EQ(text(build(m.plan(0, PointKind::kEntry).sites.at(0), Save::kNothing)),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 "
            "90 ff cf 0f 85 f8 ff ff ff "
            "e9 eb ff fe ff");
}

TEST(Encode, TailJump) {
  TestModule m({0xe9, 0xfb, 0x0f, 0, 0});  // jmp kBase + 0x1000
  EXPECT_EQ(text(build(m.plan(0, PointKind::kTail).sites.at(0), Save::kNothing)),
            "57 48 89 c7 4c 8d 15 f5 07 00 00 e8 f0 0f 00 00 5f "
            "e9 ea 0f ff ff");
}

TEST(Encode, ConditionalTailJumpFiresOnlyWhenTaken) {
  TestModule m({0x0f, 0x84, 0xfa, 0x0f, 0, 0, 0xc3});  // je kBase + 0x1000
  EXPECT_EQ(text(build(m.plan(0, PointKind::kTail).sites.at(0), Save::kNothing)),
            "0f 85 16 00 00 00 "
            "57 48 89 c7 4c 8d 15 ef 07 00 00 e8 ea 0f 00 00 5f "
            "e9 e4 0f ff ff "
            "e9 e5 ff fe ff");
}

TEST(Encode, TailJumpThroughR11KeepsIt) {
  ModuleInput input;
  input.pointers = CodePointers::kComplete;
  TestModule m({0x4c, 0x8b, 0x1f, 0x49, 0x83, 0xc3, 0x08, 0x41, 0xff, 0x23}, 0, std::move(input));
  ASSERT_EQ(m.function().exits.size(), 1u);
  const auto t = build(m.plan(7, PointKind::kTail).sites.at(0), Save::kNothing);
  ASSERT_TRUE(t.has_value()) << text(t);
  EXPECT_EQ(t->stack_adjust, std::vector<std::uint32_t>{24});
}

TEST(Encode, CallAtTheEndReturnsToTheOriginalCode) {
  // push rbx; call +0x100; pop rbx; ret: the return address is kBase + 6
  TestModule direct({0x53, 0xe8, 0, 1, 0, 0, 0x5b, 0xc3});
  EXPECT_EQ(text(build(direct.plan(0, PointKind::kEntry).sites.at(0), Save::kNothing)),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 53 "
            "48 8d 64 24 f8 c7 04 24 06 10 40 00 c7 44 24 04 00 00 00 00 "
            "e9 e0 00 ff ff");
  // mov rax,[rdi]; call [rax+8]; ret
  TestModule indirect({0x48, 0x8b, 0x07, 0xff, 0x50, 0x08, 0xc3});
  EXPECT_EQ(text(build(indirect.plan(0, PointKind::kEntry).sites.at(0), Save::kNothing)),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 48 8b 07 "
            "48 8d 64 24 f8 c7 04 24 06 10 40 00 c7 44 24 04 00 00 00 00 "
            "ff 60 08");
  // sub rsp,8; call [rsp+16]: the push would move its operand
  TestModule through_stack({0x48, 0x83, 0xec, 0x08, 0xff, 0x54, 0x24, 0x10, 0xc3});
  EXPECT_TRUE(through_stack.plan(0, PointKind::kEntry).sites.empty());
}

TEST(Encode, MergedEntryAndReturn) {
  TestModule m({0x89, 0xf8, 0xc3, 0xcc, 0xcc, 0xcc}, 3);
  const auto t = build(m.plan_all().sites.at(0), Save::kNothing);
  EXPECT_EQ(text(t),
            "4c 8d 15 f9 07 00 00 e8 f4 0f 00 00 89 f8 "
            "57 48 89 c7 4c 8d 15 e7 07 00 00 e8 e2 0f 00 00 5f c3");
  EXPECT_EQ(t->stack_adjust, (std::vector<std::uint32_t>{0, 8}));
}

TEST(Encode, TrapPatchIsOneByte) {
  TestModule m({0x74, 0x05, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x55}, 8);
  const PointRequest ret{
      .at = LinkAddr(kBase + 7), .kind = PointKind::kReturn, .function = &m.function()};
  const TrapPlan trap = plan_trap_site(m.module(), std::span(&ret, 1));
  EXPECT_EQ(hex(*encode_patch(trap.plan, {}, RemoteAddr(kTrampoline))), "cc");
  EXPECT_EQ(text(build(trap.plan, Save::kNothing)),
            "57 48 89 c7 4c 8d 15 f5 07 00 00 e8 f0 0f 00 00 5f c3");
}

TEST(Encode, RefusesPointsBetweenInstructions) {
  TestModule m({0x55, 0x48, 0x89, 0xe5, 0x90, 0xc9, 0xc3});
  SitePlan plan = m.plan(0, PointKind::kEntry).sites.at(0);
  plan.points[0].offset = 2;
  EXPECT_FALSE(build(plan, Save::kNothing).has_value());
}

TEST(Encode, SaveFollowsBoundary) {
  EXPECT_EQ(save_for(PointKind::kEntry, Boundary::kAbi), Save::kNothing);
  EXPECT_EQ(save_for(PointKind::kReturn, Boundary::kModule), Save::kRegisters);
  EXPECT_EQ(save_for(PointKind::kReturn, Boundary::kUnknown), Save::kAll);
  EXPECT_EQ(save_for(PointKind::kInstruction, Boundary::kAbi), Save::kAll);
  // 0: call 6; ret; 6: ret
  ModuleInput input;
  input.functions.push_back({LinkAddr(kBase + 6), LinkAddr(kBase + 7)});
  TestModule m({0xe8, 1, 0, 0, 0, 0xc3, 0xc3}, 6, std::move(input));
  EXPECT_EQ(boundary_of(m.module(), m.function(), Linkage::kExported), Boundary::kAbi);
  EXPECT_EQ(boundary_of(m.module(), m.function(), Linkage::kLocal), Boundary::kUnknown);
  const FunctionCode callee =
      analyze_function(m.module(), {LinkAddr(kBase + 6), LinkAddr(kBase + 7)});
  EXPECT_EQ(boundary_of(m.module(), callee, Linkage::kExported), Boundary::kModule);
}

TEST(Encode, WhatUnwindInformationContradictsKeepsEverything) {
  ModuleInput input;
  input.frames.push_back({LinkAddr(kBase), LinkAddr(kBase + 4)});
  TestModule m({0x90, 0x90, 0x90, 0xc3}, 4, std::move(input));
  EXPECT_EQ(boundary_of(m.module(), m.function(), Linkage::kExported), Boundary::kAbi);
  const FunctionCode inside =
      analyze_function(m.module(), {LinkAddr(kBase + 1), LinkAddr(kBase + 4)});
  EXPECT_EQ(boundary_of(m.module(), inside, Linkage::kExported), Boundary::kUnknown);
}

}  // namespace
}  // namespace trapline::isa
