#include "isa/x86_64/go_prologue.h"

#include <gtest/gtest.h>

#include "isa/x86_64/test_code.h"

namespace trapline::isa {
namespace {

std::optional<GoEntry> entry_of(std::initializer_list<int> code) {
  const TestModule module(code);
  return go_entry(module.function());
}

TEST(GoPrologue, ArgumentsInRegisters) {
  //  0 cmp rsp, [r14+16]; 4 jbe +6 (12); 6 push rbp; 7 mov rbp, rsp; 10 pop rbp; 11 ret
  // 12 call; 17 jmp 0
  const auto entry = entry_of({0x49, 0x3b, 0x66, 0x10, 0x76, 0x06, 0x55, 0x48, 0x89, 0xe5, 0x5d,
                               0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xed});
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->at, LinkAddr(kBase + 6));
  EXPECT_EQ(entry->kind, PointKind::kGoEntry);
}

TEST(GoPrologue, ALargeFrame) {
  //  0 lea r12, [rsp-0x100]; 8 cmp r12, [r14+16]; 12 jbe +2 (16); 14 nop; 15 ret; 16 call; jmp 0
  const auto entry =
      entry_of({0x4c, 0x8d, 0xa4, 0x24, 0x00, 0xff, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10,
                0x76, 0x02, 0x90, 0xc3, 0xe8, 0,    0,    0,    0,    0xeb, 0xe9});
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->at, LinkAddr(kBase + 14));
}

TEST(GoPrologue, AVeryLargeFrame) {
  //  0 mov r12, rsp; 3 sub r12, 0x20000; 10 jb +8 (20); 12 cmp r12, [r14+16]; 16 jbe +2 (20)
  // 18 nop; 19 ret; 20 call; jmp 0
  const auto entry =
      entry_of({0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0x00, 0x00, 0x02, 0x00, 0x72, 0x08, 0x4d, 0x3b,
                0x66, 0x10, 0x76, 0x02, 0x90, 0xc3, 0xe8, 0,    0,    0,    0,    0xeb, 0xe5});
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->at, LinkAddr(kBase + 18));
}

TEST(GoPrologue, ArgumentsOnTheStack) {
  //  0 mov rcx, fs:[-8]; 9 cmp rsp, [rcx+16]; 13 jbe +2 (17); 15 nop; 16 ret; 17 call; jmp 0
  const auto entry =
      entry_of({0x64, 0x48, 0x8b, 0x0c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x3b, 0x61,
                0x10, 0x76, 0x02, 0x90, 0xc3, 0xe8, 0,    0,    0,    0,    0xeb, 0xe8});
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->at, LinkAddr(kBase + 15));
  EXPECT_EQ(entry->kind, PointKind::kGoStackEntry);
}

TEST(GoPrologue, OthersHaveNone) {
  EXPECT_FALSE(entry_of({0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3}));
  // Compared with something else than the limit: offset 24, or another register than r14.
  EXPECT_FALSE(entry_of({0x49, 0x3b, 0x66, 0x18, 0x76, 0x02, 0x90, 0xc3, 0x90, 0xc3}));
  EXPECT_FALSE(entry_of({0x49, 0x3b, 0x65, 0x10, 0x76, 0x02, 0x90, 0xc3, 0x90, 0xc3}));
  // ja instead of jbe.
  EXPECT_FALSE(entry_of({0x49, 0x3b, 0x66, 0x10, 0x77, 0x02, 0x90, 0xc3, 0x90, 0xc3}));
  // The jump leaves the function.
  EXPECT_FALSE(entry_of({0x49, 0x3b, 0x66, 0x10, 0x76, 0x7f, 0x90, 0xc3}));
  // The comparison is the last instruction.
  EXPECT_FALSE(entry_of({0x49, 0x3b, 0x66, 0x10}));
}

}  // namespace
}  // namespace trapline::isa
