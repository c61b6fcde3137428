#include "isa/x86_64/length.h"

#include <gtest/gtest.h>

#include "isa/x86_64/decode.h"
#include "isa/x86_64/test_elf.h"

namespace trapline::isa {
namespace {

unsigned branch_size(const Instruction& i) {
  return i.is_direct_branch() || i.kind == Kind::kTransaction ? i.relative_size : 0;
}

// Every instruction of whole libraries, against Zydis.
class LengthTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LengthTest, AgreesWithZydis) {
  const TestElf elf(GetParam());
  if (!elf.valid()) GTEST_SKIP() << GetParam() << " is not here";
  std::size_t instructions = 0;
  for (const CodeSection& section : elf.input.sections) {
    for (std::size_t pos = 0; pos < section.bytes.size();) {
      const auto rest = section.bytes.subspan(pos);
      const auto full = decode(rest, 0);
      const Scanned scanned = scan_instruction(rest);
      if (!full) {
        ++pos;
        continue;
      }
      ASSERT_EQ(scanned.length, full->length) << std::hex << section.address.value() + pos;
      ASSERT_EQ(scanned.relative_size, branch_size(*full))
          << std::hex << section.address.value() + pos;
      ASSERT_EQ(scanned.call, full->kind == Kind::kCallDirect);
      ++instructions;
      pos += full->length;
    }
  }
  EXPECT_GT(instructions, 10000u);
}

INSTANTIATE_TEST_SUITE_P(Libraries, LengthTest,
                         ::testing::Values("/lib/x86_64-linux-gnu/libc.so.6",
                                           "/lib/x86_64-linux-gnu/libm.so.6",
                                           "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"));

TEST(Length, CutOff) {
  const std::vector<std::uint8_t> code{0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8};  // movabs
  const auto bytes = std::as_bytes(std::span(code));
  EXPECT_EQ(scan_instruction(bytes).length, 10);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(scan_instruction(bytes.first(n)).length, 0) << n;
  }
}

TEST(Length, TellsAddresses) {
  const std::vector<std::uint8_t> lea{0x48, 0x8d, 0x05, 1, 2, 3, 4};
  EXPECT_TRUE(scan_instruction(std::as_bytes(std::span(lea))).rip_lea);
  const std::vector<std::uint8_t> mov{0xb8, 1, 2, 3, 4};
  EXPECT_TRUE(scan_instruction(std::as_bytes(std::span(mov))).immediate32);
  const std::vector<std::uint8_t> store{0xc7, 0x05, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_TRUE(scan_instruction(std::as_bytes(std::span(store))).immediate32);
}

}  // namespace
}  // namespace trapline::isa
