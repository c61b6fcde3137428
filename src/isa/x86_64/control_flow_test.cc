#include "isa/x86_64/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "isa/x86_64/test_code.h"

namespace trapline::isa {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LinkAddr at(std::uint64_t offset) { return LinkAddr(kBase + offset); }

// Data at 0x500000.
ReadData data_of(std::vector<std::int64_t> words, std::size_t width) {
  std::vector<std::byte> bytes(words.size() * width);
  for (std::size_t n = 0; n < words.size(); ++n) {
    std::memcpy(bytes.data() + n * width, &words[n], width);
  }
  return [bytes](LinkAddr a, std::span<std::byte> out) {
    const std::uint64_t offset = a.value() - 0x500000;
    if (offset > bytes.size() || out.size() > bytes.size() - offset) return false;
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return true;
  };
}

std::vector<std::uint64_t> exits(const FunctionCode& f, ExitKind kind) {
  std::vector<std::uint64_t> out;
  for (const FunctionExit& e : f.exits) {
    if (e.kind == kind) out.push_back(e.at.value() - kBase);
  }
  return out;
}

TEST(ModuleCode, MarksTargets) {
  // 0: jne 5; 2: call 8; 7: ret; 8: ret
  TestModule m({0x75, 0x03, 0xe8, 0x01, 0, 0, 0, 0xc3, 0xc3});
  EXPECT_EQ(m.module().first_target(at(1), at(9)), at(5));
  EXPECT_TRUE(m.module().single_branch_to(at(5)));
  EXPECT_FALSE(m.module().any_target(at(6), at(8)));
  EXPECT_TRUE(m.module().is_called(at(8)));
  EXPECT_FALSE(m.module().single_branch_to(at(8)));
  EXPECT_TRUE(m.module().any_target(at(0), at(1)));  // the function's start
  EXPECT_FALSE(m.module().any_target(at(100), at(200)));
}

TEST(ModuleCode, ResynchronisesAtFunctions) {
  // Data at 0 would swallow the jump at 2 as its operand (movabs); a function starts there.
  ModuleInput input;
  input.functions.push_back({at(2), at(4)});
  TestModule m({0x48, 0xb8, 0xeb, 0x06, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, 2,
               std::move(input));
  EXPECT_TRUE(m.module().any_target(at(10), at(11)));
}

// 0: push rbp; 1: mov eax, 0x04eb04eb, in which a jump to 8 or 10 may be read; 6: jmp 11; ...; 11:
// ret
TEST(ModuleCode, ASymbolInsideAnInstructionOfAFrameIsNotBelieved) {
  ModuleInput input;
  input.frames.push_back({at(0), at(12)});
  input.functions.push_back({at(2), at(12)});
  TestModule m({0x55, 0xb8, 0xeb, 0x04, 0xeb, 0x04, 0xeb, 0x03, 0x90, 0x90, 0x90, 0xc3}, 0,
               std::move(input));
  EXPECT_EQ(m.module().start_at(at(2)), Start::kNoInstruction);
  EXPECT_TRUE(m.module().any_target(at(11), at(12)));  // as the frame's code says
  EXPECT_TRUE(m.module().any_target(at(8), at(9)));    // as the symbol's would
  const FunctionCode f = analyze_function(m.module(), {at(2), at(12)});
  EXPECT_FALSE(f.decodable);
  EXPECT_EQ(f.undecodable_at, at(2));
  const PointRequest entry = entry_point(f);
  const SiteSet set = plan_sites(m.module(), std::span(&entry, 1));
  EXPECT_THAT(set.sites, IsEmpty());
  ASSERT_EQ(set.refused.size(), 1U);
  EXPECT_EQ(set.refused.front().reason, Refusal::kUndecodable);
  // The function that is there is not harmed by it.
  EXPECT_EQ(m.module().start_at(at(0)), Start::kFunction);
  EXPECT_THAT(exits(m.function(), ExitKind::kRet), ElementsAre(11));
}

TEST(ModuleCode, AfterDataInAFrameASymbolIsBelieved) {
  // 0: ret; 1: no instruction; 2: data that would swallow the jump at 4; 4: jmp 10
  ModuleInput input;
  input.frames.push_back({at(0), at(12)});
  input.functions.push_back({at(4), at(6)});
  TestModule m({0xc3, 0x06, 0x48, 0xb8, 0xeb, 0x04, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, 1,
               std::move(input));
  EXPECT_EQ(m.module().start_at(at(4)), Start::kInside);
  EXPECT_TRUE(m.module().any_target(at(10), at(11)));
}

TEST(FunctionCode, OnlyWhatUnwindInformationConfirmsIsSure) {
  const auto sure = [](CodeRange frame, CodeRange function) {
    ModuleInput input;
    input.frames.push_back(frame);
    TestModule m({0x90, 0x90, 0x90, 0xc3, 0x90, 0x90, 0x90, 0xc3}, 0, std::move(input));
    return analyze_function(m.module(), function).sure;
  };
  EXPECT_TRUE(sure({at(0), at(4)}, {at(0), at(4)}));
  EXPECT_TRUE(sure({at(0), at(4)}, {at(0), at(3)}));
  EXPECT_FALSE(sure({at(0), at(4)}, {at(0), at(5)}));  // too long
  EXPECT_FALSE(sure({at(0), at(4)}, {at(1), at(4)}));  // in the midst
  EXPECT_TRUE(sure({at(0), at(4)}, {at(4), at(8)}));   // nothing is known
}

TEST(ModuleCode, FixedAddressesInConstants) {
  ModuleInput input;
  input.model = AddressModel::kFixed;
  TestModule fixed({0xb8, 0x07, 0x10, 0x40, 0, 0x90, 0x90, 0xc3}, 0, std::move(input));
  EXPECT_TRUE(fixed.module().any_target(at(7), at(8)));
  TestModule relative({0xb8, 0x07, 0x10, 0x40, 0, 0x90, 0x90, 0xc3});
  EXPECT_FALSE(relative.module().any_target(at(7), at(8)));
}

TEST(ModuleCode, ScansPointers) {
  const auto code = make_bytes({0x90, 0xc3});
  const std::vector<CodeSection> sections{{at(0), code}};
  const std::vector<std::uint64_t> data{0, kBase + 1, kBase + 2, kBase};
  EXPECT_THAT(scan_code_pointers(sections, std::as_bytes(std::span(data))),
              ElementsAre(at(1), at(0)));
}

TEST(FunctionCode, Exits) {
  // 0: je +0x20 (out); 2: jmp 0 (own entry); 4: ret; 5: jmp rel32 out
  TestModule m({0x74, 0x20, 0xeb, 0xfc, 0xc3, 0xe9, 0, 1, 0, 0});
  EXPECT_THAT(exits(m.function(), ExitKind::kTailJumpConditional), ElementsAre(0));
  EXPECT_THAT(exits(m.function(), ExitKind::kRet), ElementsAre(4));
  EXPECT_THAT(exits(m.function(), ExitKind::kTailJump), ElementsAre(5));
  EXPECT_TRUE(m.function().entry_is_branch_target);
  EXPECT_TRUE(m.function().decodable);
}

TEST(FunctionCode, ColdPartIsInside) {
  ModuleInput input;
  input.functions.push_back({at(8), at(12)});
  // 0: jne 8; 2: ret; ...; 8: nop; jmp 2
  const std::initializer_list<int> code{0x75, 0x06, 0xc3, 0xcc, 0xcc, 0xcc,
                                        0xcc, 0xcc, 0x90, 0xeb, 0xf7, 0xc3};
  TestModule m(code, 3, input);
  const CodeRange cold{at(8), at(12)};
  const FunctionCode f = analyze_function(m.module(), {at(0), at(3)}, std::span(&cold, 1));
  EXPECT_THAT(exits(f, ExitKind::kTailJumpConditional), IsEmpty());
  EXPECT_THAT(exits(f, ExitKind::kRet), ElementsAre(2, 11));
}

// push rbx; je 8; pop rbx; ret; ...; 8: (an unnamed frame) pop rbx; jmp 4 or ret
TEST(FunctionCode, AdoptsUnnamedColdPart) {
  ModuleInput input;
  input.functions.push_back({at(5), at(6)});  // something in between: else it might be never taken
  input.frames.push_back({at(8), at(10)});
  TestModule m({0x53, 0x74, 0x05, 0x5b, 0xc3, 0xcc, 0xcc, 0xcc, 0x5b, 0xc3}, 5, std::move(input));
  EXPECT_EQ(m.function().parts.size(), 2u);
  EXPECT_THAT(exits(m.function(), ExitKind::kRet), ElementsAre(4, 9));
  EXPECT_THAT(exits(m.function(), ExitKind::kTailJumpConditional), IsEmpty());
  EXPECT_TRUE(m.function().decodable);
}

// push rbx; je 8; pop rbx; ret; ...; 8: another function, which is called: gcc's
// __builtin_unreachable
TEST(FunctionCode, JumpThatFallsOffTheEnd) {
  ModuleInput input;
  input.functions.push_back({at(8), at(9)});
  TestModule m({0x53, 0x74, 0x05, 0x5b, 0xc3, 0xcc, 0xcc, 0xcc, 0xc3, 0xe8, 0xfa, 0xff, 0xff, 0xff},
               5, std::move(input));
  EXPECT_EQ(m.function().parts.size(), 1u);
  EXPECT_TRUE(m.function().decodable);
  EXPECT_THAT(exits(m.function(), ExitKind::kTailJumpConditional), IsEmpty());
}

// The same jump into code of which nothing is known: returns may be missed, so all are refused.
TEST(FunctionCode, FramedJumpToNowhereIsNoTailCall) {
  TestModule m({0x53, 0x74, 0x05, 0x5b, 0xc3, 0xcc, 0xcc, 0xcc, 0x5b, 0xc3}, 5);
  EXPECT_FALSE(m.function().decodable);
  EXPECT_EQ(exits_refused(m.function()), Refusal::kUndecodable);
}

TEST(FunctionCode, RelativeJumpTable) {
  ModuleInput input;
  input.pointers = CodePointers::kComplete;
  // Two entries, then one that leads out.
  const auto from_table = [](std::uint64_t a) { return static_cast<std::int64_t>(a - 0x500000); };
  input.read_data =
      data_of({from_table(kBase + 19), from_table(kBase + 20), 0x100, from_table(kBase + 17)}, 4);
  // 0: lea rdx,[rip+..0x500000]; 7: movsxd rax,[rdx+rdi*4]; 11: add rax,rdx; 14: jmp rax;
  // 16: nop x3; 19: nop; 20: ret
  TestModule m({0x48, 0x8d, 0x15, 0xf9, 0xef, 0x0f, 0x00, 0x48, 0x63, 0x04, 0xba,
                0x48, 0x01, 0xd0, 0xff, 0xe0, 0x90, 0x90, 0x90, 0x90, 0xc3},
               0, std::move(input));
  ASSERT_EQ(m.function().indirect.size(), 1u);
  EXPECT_EQ(m.function().indirect[0].verdict, IndirectJump::kTable);
  EXPECT_THAT(m.function().table_targets, ElementsAre(at(19), at(20)));
  EXPECT_FALSE(m.function().unknown_targets);
  // The ret is a case label: no window may reach over it from before.
  const SiteSet set = m.plan(20, PointKind::kReturn);
  ASSERT_EQ(set.refused.size(), 1u);
}

TEST(FunctionCode, AbsoluteJumpTable) {
  ModuleInput input;
  input.model = AddressModel::kFixed;
  input.read_data = data_of({kBase + 7, kBase + 8, 0}, 8);
  // 0: jmp [rdi*8+0x500000]; 7: nop; 8: ret
  TestModule m({0xff, 0x24, 0xfd, 0x00, 0x00, 0x50, 0x00, 0x90, 0xc3}, 0, std::move(input));
  ASSERT_EQ(m.function().indirect.size(), 1u);
  EXPECT_EQ(m.function().indirect[0].verdict, IndirectJump::kTable);
  EXPECT_THAT(m.function().table_targets, ElementsAre(at(7), at(8)));
}

TEST(FunctionCode, IndirectTailCall) {
  ModuleInput input;
  input.pointers = CodePointers::kComplete;
  // mov rax,[rdi]; jmp [rax+0x10]
  TestModule m({0x48, 0x8b, 0x07, 0xff, 0x60, 0x10}, 0, input);
  EXPECT_THAT(exits(m.function(), ExitKind::kTailJumpIndirect), ElementsAre(3));
  // With a frame in place it stays inside: a computed goto.
  TestModule framed({0x53, 0x48, 0x8b, 0x07, 0xff, 0x60, 0x10}, 0, input);
  EXPECT_EQ(framed.function().indirect[0].verdict, IndirectJump::kInternal);
  EXPECT_FALSE(framed.function().unknown_targets);
  // A label of the function whose address is in data: nothing is proven.
  input.code_pointers.push_back(at(3));
  TestModule labels({0x48, 0x8b, 0x07, 0xff, 0x60, 0x10}, 0, input);
  EXPECT_EQ(labels.function().indirect[0].verdict, IndirectJump::kUnproven);
  EXPECT_EQ(exits_refused(labels.function()), Refusal::kUnprovenJump);
}

TEST(FunctionCode, UnknownJumpsForbidWindowsInTheMiddle) {
  // push rbx; add rax,rsi; jmp rax; nops; pop rbx; mov eax,edi; ret (+ int3)
  TestModule m({0x53, 0x48, 0x01, 0xf0, 0xff, 0xe0, 0x90, 0x90, 0x5b, 0x89, 0xf8, 0x89, 0xf8, 0x89,
                0xf8, 0xc3});
  EXPECT_TRUE(m.function().unknown_targets);
  EXPECT_EQ(m.plan(0, PointKind::kEntry).sites.size(), 1u);
  const SiteSet set = m.plan(11, PointKind::kInstruction);
  ASSERT_EQ(set.refused.size(), 1u);
  EXPECT_EQ(set.refused[0].reason, Refusal::kUnknownJumps);
}

// The first window is safe because compilers put no label there; what begins in the midst of a
// frame's code need not be a beginning.
TEST(FunctionCode, UnknownJumpsForbidTheFirstWindowOfWhatIsNoSureFunction) {
  ModuleInput input;
  input.frames.push_back({at(0), at(16)});
  TestModule m({0x53, 0x48, 0x01, 0xf0, 0x48, 0x01, 0xf0, 0xff, 0xe0, 0x5b, 0x89, 0xf8, 0x89, 0xf8,
                0x90, 0xc3},
               0, std::move(input));
  const auto entry_of = [&](CodeRange range) {
    const FunctionCode f = analyze_function(m.module(), range);
    const PointRequest point = entry_point(f);
    return plan_sites(m.module(), std::span(&point, 1));
  };
  EXPECT_EQ(entry_of({at(0), at(16)}).sites.size(), 1U);
  const SiteSet set = entry_of({at(1), at(16)});
  ASSERT_EQ(set.refused.size(), 1U);
  EXPECT_EQ(set.refused.front().reason, Refusal::kUnknownJumps);
}

TEST(FunctionCode, HostileRanges) {
  TestModule m({0xc3});
  EXPECT_FALSE(analyze_function(m.module(), {LinkAddr(5), LinkAddr(4)}).decodable);
  EXPECT_FALSE(analyze_function(m.module(), {LinkAddr(0), LinkAddr(~0ull)}).decodable);
  EXPECT_FALSE(analyze_function(m.module(), {at(0), at(100)}).decodable);
}

}  // namespace
}  // namespace trapline::isa
