#include "isa/x86_64/decode.h"

#include <gtest/gtest.h>

#include "isa/x86_64/test_code.h"

namespace trapline::isa {
namespace {

Instruction get(std::initializer_list<int> code) {
  const auto bytes = make_bytes(code);
  const auto i = decode(bytes, 0x1000);
  EXPECT_TRUE(i.has_value()) << hex(bytes);
  return i.value_or(Instruction{});
}

TEST(Decode, Kinds) {
  EXPECT_EQ(get({0x90}).kind, Kind::kNop);
  EXPECT_EQ(get({0x66, 0x0f, 0x1f, 0x44, 0, 0}).kind, Kind::kNop);
  EXPECT_EQ(get({0xf3, 0x0f, 0x1e, 0xfa}).kind, Kind::kEndbr);
  EXPECT_EQ(get({0xe8, 0, 0, 0, 0}).kind, Kind::kCallDirect);
  EXPECT_EQ(get({0xff, 0xd0}).kind, Kind::kCallIndirect);
  EXPECT_EQ(get({0xff, 0x15, 0, 0, 0, 0}).kind, Kind::kCallIndirect);
  EXPECT_EQ(get({0xeb, 0}).kind, Kind::kJumpDirect);
  EXPECT_EQ(get({0x75, 0}).kind, Kind::kJumpConditional);
  EXPECT_EQ(get({0xe3, 0}).kind, Kind::kLoop);
  EXPECT_EQ(get({0xff, 0xe0}).kind, Kind::kJumpIndirect);
  EXPECT_EQ(get({0xff, 0x25, 0, 0, 0, 0}).kind, Kind::kJumpIndirect);
  EXPECT_EQ(get({0xc3}).kind, Kind::kRet);
  EXPECT_EQ(get({0xc2, 8, 0}).kind, Kind::kRet);
  EXPECT_EQ(get({0xcb}).kind, Kind::kPrivileged);
  EXPECT_EQ(get({0x0f, 0x05}).kind, Kind::kSyscall);
  EXPECT_EQ(get({0xcc}).kind, Kind::kInt3);
  EXPECT_EQ(get({0xcd, 0x80}).kind, Kind::kTrap);
  EXPECT_EQ(get({0x0f, 0x0b}).kind, Kind::kTrap);
  EXPECT_EQ(get({0xf4}).kind, Kind::kPrivileged);
  EXPECT_EQ(get({0xc7, 0xf8, 0, 0, 0, 0}).kind, Kind::kTransaction);
  EXPECT_EQ(get({0xf3, 0x90}).kind, Kind::kPlain);  // pause
  EXPECT_FALSE(decode(make_bytes({0x06}), 0).has_value());
  EXPECT_FALSE(decode({}, 0).has_value());
}

TEST(Decode, Branches) {
  const Instruction jcc = get({0x0f, 0x85, 0xfc, 0xff, 0xff, 0xff});
  EXPECT_EQ(jcc.target, 0x1002u);
  EXPECT_EQ(jcc.condition, 5);
  EXPECT_EQ(jcc.relative_size, 4);
  EXPECT_EQ(jcc.relative_offset, 2);
  const Instruction jmp = get({0xeb, 0xfe});
  EXPECT_EQ(jmp.target, 0x1000u);
  EXPECT_TRUE(jmp.ends_flow());
  EXPECT_TRUE(get({0x66, 0xe9, 0, 0, 0, 0}).operand_prefix);
  EXPECT_TRUE(get({0x3e, 0xff, 0xe0}).notrack);
}

TEST(Decode, RipRelative) {
  // cmp dword [rip+0x10], 5: the displacement is not at the end
  const Instruction cmp = get({0x83, 0x3d, 0x10, 0, 0, 0, 5});
  EXPECT_TRUE(cmp.memory.rip_relative);
  EXPECT_EQ(cmp.disp_offset, 2);
  EXPECT_EQ(cmp.rip_target, 0x1017u);
  EXPECT_TRUE(get({0x67, 0x8b, 0x05, 0, 0, 0, 0}).eip_relative);
}

TEST(Decode, StackEffects) {
  const auto expect = [](const Instruction& i, StackOp op, std::int64_t value) {
    EXPECT_EQ(i.stack, op);
    EXPECT_EQ(i.stack_value, value);
  };
  expect(get({0x55}), StackOp::kAdjust, -8);
  expect(get({0x41, 0x5c}), StackOp::kAdjust, 8);
  expect(get({0x48, 0x83, 0xec, 0x18}), StackOp::kAdjust, -24);
  expect(get({0x48, 0x81, 0xc4, 0, 1, 0, 0}), StackOp::kAdjust, 256);
  expect(get({0x48, 0x89, 0xe5}), StackOp::kSaveFrame, 0);
  expect(get({0x48, 0x8d, 0x65, 0xd8}), StackOp::kLoadFrame, -40);
  expect(get({0xc9}), StackOp::kLeave, 0);
  expect(get({0x48, 0x83, 0xe4, 0xe0}), StackOp::kAlign, -32);
  expect(get({0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0}), StackOp::kAdjust, 128);
  expect(get({0x5c}), StackOp::kUnknown, 0);              // pop rsp
  expect(get({0x48, 0x29, 0xc4}), StackOp::kUnknown, 0);  // sub rsp, rax
  expect(get({0xe8, 0, 0, 0, 0}), StackOp::kNone, 0);
}

TEST(Decode, Registers) {
  const Instruction add = get({0x4c, 0x01, 0xd8});  // add rax, r11
  EXPECT_EQ(add.reads, 1u << 0 | 1u << 11);
  EXPECT_EQ(add.writes, 1u << 0);
  EXPECT_TRUE(add.writes_flags);
  EXPECT_FALSE(add.reads_flags);
  EXPECT_TRUE(get({0x48, 0x11, 0xd8}).reads_flags);   // adc
  EXPECT_EQ(get({0x88, 0xe0}).reads, 1u << 0);        // mov al, ah
  EXPECT_EQ(get({0x40, 0x88, 0xe0}).reads, 1u << 4);  // mov al, spl
}

}  // namespace
}  // namespace trapline::isa
