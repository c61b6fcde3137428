#include "isa/x86_64/verify.h"

#include <gtest/gtest.h>

#include "isa/x86_64/test_code.h"

namespace trapline::isa {
namespace {

Result<VerifyReport> verify(std::initializer_list<int> code, std::size_t max_stack = 256,
                            SystemCalls calls = SystemCalls::kForbidden) {
  const auto bytes = make_bytes(code);
  return verify_code({.blob = bytes,
                      .code = {{0, bytes.size()}},
                      .entries = {0},
                      .max_stack = max_stack,
                      .system_calls = calls});
}

void expect_refused(const Result<VerifyReport>& r, const char* part) {
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.error().code(), ErrorCode::kInternal);
  EXPECT_NE(r.error().text().find(part), std::string::npos) << r.error().text();
}

TEST(Verify, AcceptsGeneralCode) {
  // push rbx; mov rax,fs:0; lock xadd [rdi],rax; je +1; nop; pop rbx; ret
  const auto r = verify({0x53, 0x64, 0x48, 0x8b, 0x04, 0x25, 0,    0,    0,    0,
                         0xf0, 0x48, 0x0f, 0xc1, 0x07, 0x74, 0x01, 0x90, 0x5b, 0xc3});
  ASSERT_TRUE(r.has_value()) << r.error().text();
  EXPECT_EQ(r->max_stack, 8u);
  EXPECT_EQ(r->instructions, 7u);
}

TEST(Verify, RefusesOtherState) {
  for (const auto& code : std::vector<std::initializer_list<int>>{
           {0x0f, 0x28, 0xc1, 0xc3},                    // movaps
           {0xf2, 0x48, 0x0f, 0x2a, 0xc0, 0xc3},        // cvtsi2sd
           {0x66, 0x48, 0x0f, 0x6e, 0xc0, 0xc3},        // movq xmm0, rax
           {0xc5, 0xf8, 0x77, 0xc3},                    // vzeroupper
           {0xc5, 0xf8, 0x92, 0xc0, 0xc3},              // kmovw
           {0xc4, 0xe2, 0x69, 0x90, 0x04, 0x08, 0xc3},  // vpgatherdd
           {0xd9, 0xe8, 0xc3},                          // fld1
           {0x9b, 0xc3},                                // fwait
           {0xdb, 0xe3, 0xc3},                          // fninit
           {0x0f, 0x77, 0xc3},                          // emms
           {0x0f, 0xae, 0x07, 0xc3},                    // fxsave
           {0x0f, 0xae, 0x27, 0xc3},                    // xsave
           {0x0f, 0xae, 0x17, 0xc3},                    // ldmxcsr
           {0x0f, 0xf7, 0xc1, 0xc3},                    // maskmovq
           {0x0f, 0x01, 0xef, 0xc3},                    // wrpkru
           {0x8e, 0xe0, 0xc3},                          // mov fs, eax
           {0xf3, 0x48, 0x0f, 0xae, 0xd0, 0xc3},        // wrfsbase
           {0xfd, 0xc3},                                // std
           {0x9c, 0x58, 0xc3},                          // pushf; pop rax
           {0x50, 0x9d, 0xc3},                          // push rax; popf
           {0xf4, 0xc3},                                // hlt
           {0xcd, 0x80, 0xc3},                          // int 0x80
           {0xcc, 0xc3},                                // int3
           {0x0f, 0x0b},                                // ud2
           {0xff, 0xe0},                                // jmp rax
           {0xff, 0xd0, 0xc3},                          // call rax
           {0xff, 0x25, 0, 0, 0, 0},                    // jmp [rip]
           {0x06, 0xc3},                                // invalid
           {0x66, 0xe9, 0, 0, 0, 0, 0xc3},              // 16-bit branch
       }) {
    EXPECT_FALSE(verify(code).has_value()) << hex(make_bytes(code));
  }
}

TEST(Verify, UnreachableBytesDoNotCount) {
  EXPECT_TRUE(verify({0xc3, 0x0f, 0x0b, 0x06}).has_value());
}

TEST(Verify, SystemCallsOnlyWhenPlanned) {
  expect_refused(verify({0x0f, 0x05, 0xc3}), "system call");
  const auto r = verify({0x0f, 0x05, 0xc3}, 256, SystemCalls::kAllowed);
  ASSERT_TRUE(r.has_value()) << r.error().text();
  EXPECT_EQ(r->system_calls, 1u);
}

TEST(Verify, ControlStaysInside) {
  expect_refused(verify({0xe9, 0, 1, 0, 0}), "jumps out");
  expect_refused(verify({0xe8, 0, 1, 0, 0, 0xc3}), "calls out");
  expect_refused(verify({0x90}), "leaves the code");
  // Read-only data behind the code is none.
  const auto bytes = make_bytes({0xeb, 0x00, 0xc3});
  const auto r = verify_code({.blob = bytes, .code = {{0, 2}}, .entries = {0}});
  expect_refused(r, "jumps out");
  const auto outside = verify_code({.blob = bytes, .code = {{0, 4}}, .entries = {0}});
  expect_refused(outside, "code range");
  const auto entry = verify_code({.blob = bytes, .code = {{0, 3}}, .entries = {3}});
  expect_refused(entry, "leaves the code");
}

TEST(Verify, StackIsFollowed) {
  expect_refused(verify({0x53, 0xc3}), "wrong stack");
  expect_refused(verify({0x5b, 0xc3}), "pops more");
  expect_refused(verify({0x48, 0x29, 0xc4, 0xc3}), "cannot be followed");
  expect_refused(verify({0xc2, 8, 0}), "operand");
  // 0: push rax; jmp 0
  expect_refused(verify({0x50, 0xeb, 0xfd}), "different stack depths");
  // push rbp; mov rbp,rsp; sub rsp,0x40; leave; ret
  const auto r = verify({0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0xc9, 0xc3});
  ASSERT_TRUE(r.has_value()) << r.error().text();
  EXPECT_EQ(r->max_stack, 72u);
}

TEST(Verify, StackOfCallsAddsUp) {
  // 0: push rbx; call 8; pop rbx; ret; nop; 8: sub rsp,0x20; add rsp,0x20; ret
  const std::initializer_list<int> code{0x53, 0xe8, 2,    0,    0,    0,    0x5b, 0xc3, 0x48,
                                        0x83, 0xec, 0x20, 0x48, 0x83, 0xc4, 0x20, 0xc3};
  const auto r = verify(code);
  ASSERT_TRUE(r.has_value()) << r.error().text();
  EXPECT_EQ(r->max_stack, 8u + 8u + 32u);
  EXPECT_EQ(r->functions, 2u);
  EXPECT_FALSE(verify(code, 47).has_value());
  EXPECT_TRUE(verify(code, 48).has_value());
}

TEST(Verify, NoRecursion) {
  expect_refused(verify({0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3}), "recursion");
  // 0: call 6; ret; 6: call 0; ret
  expect_refused(verify({0xe8, 1, 0, 0, 0, 0xc3, 0xe8, 0xf5, 0xff, 0xff, 0xff, 0xc3}), "recursion");
}

}  // namespace
}  // namespace trapline::isa
