#include "isa/x86_64/operand.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "isa/x86_64/encode.h"
#include "isa/x86_64/test_code.h"
#include "isa/x86_64/test_patch.h"

extern "C" {
// See execute_test.cc.
struct IsaTestState {
  std::uint64_t reg[16];
  std::uint64_t flags;
};
extern std::uint64_t isa_test_rsp;
void isa_test_run(const void* code, IsaTestState* state);
}

namespace trapline::isa {
namespace {

constexpr LinkAddr kAt(0x401000);

std::optional<LinkAddr> find(std::string_view name) {
  if (name == "counter") return LinkAddr(0x404010);
  if (name == "a-b") return LinkAddr(0x404020);
  return std::nullopt;
}

Operand parsed(std::string_view text) {
  const auto operand = parse_operand(text, kAt, find);
  EXPECT_TRUE(operand) << text << ": " << operand.error().text();
  return operand ? *operand : Operand{};
}

// With register n holding 0x1100 + n, and memory whose bytes are the low ones of their addresses.
std::uint64_t value_of(std::string_view text, LoadBias bias = {}) {
  std::array<std::uint64_t, 16> general{};
  for (std::size_t n = 0; n < general.size(); ++n) general[n] = 0x1100 + n;
  general[3] = 0xfedcba9876543210;
  const auto value = evaluate(parsed(text), general, bias, [](RemoteAddr from, auto to) {
    for (std::size_t n = 0; n < to.size(); ++n) to[n] = static_cast<std::byte>(from.value() + n);
    return true;
  });
  EXPECT_TRUE(value) << text;
  return value.value_or(0xbad);
}

TEST(Operand, Constants) {
  EXPECT_EQ(value_of("4@$5"), 5u);
  EXPECT_EQ(value_of("-4@$-5"), ~std::uint64_t{4});
  EXPECT_EQ(value_of("4@$-1"), 0xffffffffu);
  EXPECT_EQ(value_of("8@$-1"), ~std::uint64_t{0});
  EXPECT_EQ(value_of("-2@$65535"), ~std::uint64_t{0});
  EXPECT_EQ(value_of("1@$0x1ff"), 0xffu);
  EXPECT_EQ(value_of("8@$18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(value_of("$12"), 12u);
}

TEST(Operand, Registers) {
  EXPECT_EQ(value_of("8@%rax"), 0x1100u);
  EXPECT_EQ(value_of("8@%r15"), 0x110fu);
  EXPECT_EQ(value_of("8@%rbx"), 0xfedcba9876543210u);
  EXPECT_EQ(value_of("4@%ebx"), 0x76543210u);
  EXPECT_EQ(value_of("-2@%bx"), 0x3210u);
  EXPECT_EQ(value_of("1@%bl"), 0x10u);
  EXPECT_EQ(value_of("1@%bh"), 0x32u);
  EXPECT_EQ(value_of("1@%ah"), 0x11u);
  EXPECT_EQ(value_of("1@%r11b"), 0x0bu);
  EXPECT_EQ(value_of("2@%r11w"), 0x110bu);
  EXPECT_EQ(value_of("-4@%r8d"), 0x1108u);
  EXPECT_EQ(value_of("1@%sil"), 0x06u);
  EXPECT_EQ(value_of("8@%rsp"), 0x1104u);
  // No more than the register has; no more than is said.
  EXPECT_EQ(value_of("8@%ebx"), 0x76543210u);
  EXPECT_EQ(value_of("4@%rbx"), 0x76543210u);
  EXPECT_EQ(parsed("4f@%xmm11").number, 11);
  EXPECT_EQ(parsed("8f@%xmm0").kind, OperandKind::kVector);
}

TEST(Operand, Memory) {
  EXPECT_EQ(value_of("1@(%rcx)"), 0x01u);
  EXPECT_EQ(value_of("1@-1(%rcx)"), 0x00u);
  EXPECT_EQ(value_of("1@0x10(%rcx)"), 0x11u);
  EXPECT_EQ(value_of("2@8(%rax,%rcx,4)"), 0x0d0cu);  // 0x1108 + 0x4404
  EXPECT_EQ(value_of("1@2(%rax,%rcx)"), 0x03u);
  EXPECT_EQ(value_of("1@2(,%rcx,8)"), 0x0au);
  EXPECT_EQ(value_of("-1@0x7f(%rcx)"), 0xffffffffffffff80u);
  EXPECT_EQ(value_of("4@counter(%rip)"), 0x13121110u);
  EXPECT_EQ(value_of("1@counter+4(%rip)"), 0x14u);
  EXPECT_EQ(value_of("1@counter-4(%rip)"), 0x0cu);
  EXPECT_EQ(value_of("1@4+counter(%rip)"), 0x14u);
  EXPECT_EQ(value_of("1@counter"), 0x10u);
  EXPECT_EQ(value_of("1@a-b(%rip)"), 0x20u);
  EXPECT_EQ(value_of("1@32(%rip)"), 0x20u);
  EXPECT_EQ(value_of("1@counter(%rip)", LoadBias{0x7f0000000001}), 0x11u);
  EXPECT_EQ(value_of("1@4198400", LoadBias{1}), 0x00u);
}

TEST(Operand, WhatIsNotUnderstoodIsNamed) {
  for (const char* text : {"",
                           "@",
                           "4@",
                           "3@%eax",
                           "16@%rax",
                           "4@%",
                           "4@%zax",
                           "8@%r16",
                           "8@%r7",
                           "4@$",
                           "4@$x",
                           "10f@%st",
                           "8f@%xmm16",
                           "1@%xmm0",
                           "4@%fs:0(%rax)",
                           "4@%fs:var@tpoff",
                           "4@unknown(%rip)",
                           "8@counter@GOTPCREL(%rip)",
                           "4@(%rax",
                           "4@()",
                           "4@(%eax)",
                           "4@(%rax,%rsp)",
                           "4@(%rax,%rcx,3)",
                           "4@(%rax,%rcx,4,4)",
                           "4@(rax)",
                           "4@5x(%rax)",
                           "4@counter(%rax)",
                           "4@99999999999(%rax)",
                           "4@[eax]",
                           "-4@--5(%rax)",
                           "8@.LC0(%rip)"}) {
    const auto operand = parse_operand(text, kAt, find);
    ASSERT_FALSE(operand) << text;
    EXPECT_NE(operand.error().text().find(text), std::string::npos);
  }
}

TEST(Operand, OneAfterTheOther) {
  using List = std::vector<std::string_view>;
  EXPECT_EQ(split_operands("-4@%edi 8@-16(%rbp)"), (List{"-4@%edi", "8@-16(%rbp)"}));
  EXPECT_EQ(split_operands(" 8@(%rax, %rcx, 4)  4@$1 "), (List{"8@(%rax, %rcx, 4)", "4@$1"}));
  EXPECT_TRUE(split_operands("").empty());
  EXPECT_EQ(split_operands("8@(% )) ("), (List{"8@(% ))", "("}));
}

TEST(Operand, Types) {
  EXPECT_EQ(type_of_operand("-4@%edi"), "int32_t");
  EXPECT_EQ(type_of_operand("8@what(ever)"), "uint64_t");
  EXPECT_EQ(type_of_operand("8f@%xmm0"), "double");
  EXPECT_EQ(type_of_operand("%rax"), std::nullopt);
  EXPECT_EQ(type_of_operand(parsed("-1@%al")), "int8_t");
}

// ------------------------------------------------------------------------------------------------
// in a trampoline

constexpr std::size_t kStackWords = 16;
// From rsp in the body to where rsp was before the trampoline.
constexpr std::uint32_t kToStack = 8 + 5 * 8 + 6 * 8 + 160;

// Stores the six argument registers, then the four words behind what rsp pointed to, then that,
// then the first words of the program's stack.
std::vector<std::uint8_t> storing_body() {
  std::vector<std::uint8_t> code = {0x49, 0x89, 0x7a, 0x00, 0x49, 0x89, 0x72, 0x08,
                                    0x49, 0x89, 0x52, 0x10, 0x49, 0x89, 0x4a, 0x18,
                                    0x4d, 0x89, 0x42, 0x20, 0x4d, 0x89, 0x4a, 0x28};
  for (unsigned n = 0; n < 5; ++n) {
    const auto from = static_cast<std::uint8_t>(n < 4 ? 16 + 8 * n : 8);
    code.insert(code.end(), {0x4c, 0x8b, 0x5c, 0x24, from});  // mov r11, [rsp+from]
    code.insert(code.end(), {0x4d, 0x89, 0x5a, static_cast<std::uint8_t>(0x30 + 8 * n)});
  }
  for (std::uint32_t n = 0; n < kStackWords; ++n) {
    const auto put = [&](std::initializer_list<std::uint8_t> opcode, std::uint32_t displacement) {
      code.insert(code.end(), opcode);
      for (unsigned shift = 0; shift < 32; shift += 8)
        code.push_back(static_cast<std::uint8_t>(displacement >> shift));
    };
    put({0x4c, 0x8b, 0x9c, 0x24}, kToStack + 8 * n);  // mov r11, [rsp+n]
    put({0x4d, 0x89, 0x9a}, 0x58 + 8 * n);            // mov [r10+n], r11
  }
  code.insert(code.end(), {0x4d, 0x31, 0xdb, 0xc3});  // xor r11, r11; ret
  return code;
}

class Maker {
 public:
  explicit Maker(std::uint64_t data) : data_(data) {}

  // Any operand; those of memory lead into the data with the registers of state().
  std::string operand() {
    static constexpr const char* kWide[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                            "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    static constexpr const char* kHigh[] = {"ah", "bh", "ch", "dh"};
    const int sizes[] = {1, 2, 4, 8};
    const int size = sizes[pick(4)];
    const std::string start = (pick(2) != 0 ? "-" : "") + std::to_string(size) + "@";
    switch (pick(8)) {
      case 0:
        return start + "$" + std::to_string(static_cast<std::int64_t>(random_()));
      case 1:
        return start + "$" + std::to_string(pick(9));
      case 2:
        return start + "%" + kHigh[pick(4)];
      case 3:
        return start + "%" + kWide[pick(16)];
      case 4:
        return start + std::to_string(8 * pick(8)) + "(%rsp)";
      case 5:
        return start + "data+" + std::to_string(pick(64)) + "(%rip)";
      case 6:
        return start + std::to_string(pick(64)) + "(%" + address_register() + ")";
      default: {
        const std::string scale = std::to_string(1 << pick(4));
        return start + std::to_string(pick(32)) + "(%" + address_register() + ",%" +
               index_register() + "," + scale + ")";
      }
    }
  }

  // Half of the registers point to the data, the others are small; so any pair makes an address.
  IsaTestState state() {
    IsaTestState made{};
    for (unsigned n = 0; n < 16; ++n) made.reg[n] = is_address(n) ? data_ + 8 * pick(8) : pick(8);
    made.flags = 0x202 | (random_() & 0x8d5);
    return made;
  }
  unsigned pick(unsigned n) { return static_cast<unsigned>(random_() % n); }

 private:
  static bool is_address(unsigned number) { return number % 2 == 0; }
  std::string address_register() {
    static constexpr const char* kNames[] = {"rax", "rdx", "rsi", "r8", "r10", "r12", "r14"};
    return kNames[pick(7)];
  }
  std::string index_register() {
    static constexpr const char* kNames[] = {"rcx", "rbx", "rbp", "rdi", "r9", "r11", "r13", "r15"};
    return kNames[pick(8)];
  }

  std::mt19937_64 random_{20250102};
  std::uint64_t data_;
};

TEST(Operand, TrampolinesPassWhatIsEvaluated) {
  CodeArena text(reinterpret_cast<std::uint64_t>(&isa_test_run), 4096);
  CodeArena region(text.next().value(), 1 << 20);
  ASSERT_TRUE(text.valid() && region.valid());
  const auto body_code = storing_body();
  const RemoteAddr body = region.add(std::as_bytes(std::span(body_code)));
  std::array<std::uint64_t, 11 + kStackWords> stored{};
  const RemoteAddr store = region.add(std::as_bytes(std::span(stored)));
  std::array<std::uint64_t, 64> data{};
  for (std::size_t n = 0; n < data.size(); ++n) data[n] = 0x9e3779b97f4a7c15 * (n + 1);
  // nop; nop dword [rax+0]; ret
  const std::uint8_t code[] = {0x90, 0x0f, 0x1f, 0x40, 0x00, 0xc3};
  const RemoteAddr at = text.add(std::as_bytes(std::span(code)));
  const LoadBias bias{0x1000};
  ModuleInput input;
  const CodeRange range{bias.to_link(at), bias.to_link(at + sizeof(code))};
  input.sections.push_back({range.begin, std::as_bytes(std::span(code))});
  input.functions.push_back(range);
  const ModuleCode module(std::move(input));
  const FunctionCode function = analyze_function(module, range);
  const PointRequest point{.at = range.begin, .kind = PointKind::kStatic, .function = &function};
  const SiteSet set = plan_sites(module, std::span(&point, 1));
  ASSERT_EQ(set.sites.size(), 1u);
  const SitePlan& plan = set.sites.front();

  Maker maker(reinterpret_cast<std::uint64_t>(data.data()));
  const LinkAddr data_link = bias.to_link(RemoteAddr(reinterpret_cast<std::uint64_t>(data.data())));
  const RemoteAddr trampoline = region.next();
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> texts;
    std::vector<Operand> operands;
    const std::size_t count = maker.pick(kMaxOperands + 1);
    while (operands.size() < count) {
      texts.push_back(maker.operand());
      const auto operand = parse_operand(texts.back(), range.begin, [&](std::string_view name) {
        return name == "data" ? std::optional(data_link) : std::nullopt;
      });
      ASSERT_TRUE(operand) << operand.error().text();
      operands.push_back(*operand);
    }
    const TrampolineRequest request{
        .address = trampoline,
        .bias = bias,
        .plan = &plan,
        .points = {{0, PointKind::kStatic, Save::kAll, body, store, operands}}};
    const auto encoded = encode_trampoline(request);
    ASSERT_TRUE(encoded) << encoded.error().text();
    ASSERT_EQ(encoded->stack_adjust, std::vector<std::uint32_t>{0});
    ASSERT_LE(encoded->bytes.size(), trampoline_bound(plan, 1));
    write_patch(trampoline.value(), encoded->bytes);
    for (const Patch& patch : patches_of(plan, bias, trampoline))
      write_patch(patch.at, patch.bytes);

    const IsaTestState before = maker.state();
    IsaTestState after = before;
    isa_test_run(reinterpret_cast<const void*>(at.value()), &after);
    std::array<std::uint64_t, 16> general{};
    std::copy_n(before.reg, 16, general.begin());
    general[4] = isa_test_rsp;
    std::memcpy(stored.data(), reinterpret_cast<const void*>(store.value()), sizeof(stored));
    // What was on the stack then is overwritten by now.
    const auto read_own = [&](RemoteAddr from, std::span<std::byte> to) {
      const std::uint64_t on_stack = from.value() - isa_test_rsp;
      const auto* source = on_stack < 8 * kStackWords
                               ? reinterpret_cast<const char*>(&stored[11]) + on_stack
                               : reinterpret_cast<const char*>(from.value());
      std::memcpy(to.data(), source, to.size());
      return true;
    };
    for (std::size_t n = 0; n < kMaxOperands; ++n) {
      const std::uint64_t expected =
          n < count ? evaluate(operands[n], general, bias, read_own).value_or(0xbad) : 0;
      ASSERT_EQ(stored[n], expected)
          << "argument " << n << " " << (n < count ? texts[n] : std::string("of none"));
    }
    ASSERT_EQ(stored[10], stored[11]);
    for (std::size_t n = 0; n < 16; ++n) {
      if (n == 4) continue;
      ASSERT_EQ(after.reg[n], before.reg[n]) << "register " << n;
    }
    ASSERT_EQ(after.flags & 0x8d5, before.flags & 0x8d5);
  }
}

TEST(Operand, VectorRegistersAreReadAsBits) {
  Assembler out(RemoteAddr(0x1000));
  load_operand_rax(out, parsed("4f@%xmm2"), {});
  load_operand_rax(out, parsed("8f@%xmm11"), {});
  EXPECT_EQ(hex(out.code()), "66 40 0f 7e d0 66 4c 0f 7e d8");
}

}  // namespace
}  // namespace trapline::isa
