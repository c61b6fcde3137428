// Runs random snippets of machine code with and without a probe in them and compares every
// register, flag and the red zone.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "isa/x86_64/encode.h"
#include "isa/x86_64/test_patch.h"

extern "C" {
// General registers by number (rsp is not set), then the flags.
struct IsaTestState {
  std::uint64_t reg[16];
  std::uint64_t flags;
};
extern std::uint64_t isa_test_rsp;
void isa_test_run(const void* code, IsaTestState* state);
}

asm(R"(
  .data
  .balign 8
  .globl isa_test_rsp
isa_test_rsp: .quad 0
isa_test_code: .quad 0
isa_test_state: .quad 0
isa_test_rsi: .quad 0
  .text
  .globl isa_test_run
  .type isa_test_run, @function
isa_test_run:
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rdi, isa_test_code(%rip)
  mov %rsi, isa_test_state(%rip)
  lea -8(%rsp), %rax
  mov %rax, isa_test_rsp(%rip)
  pushq 128(%rsi)
  popfq
  mov 0(%rsi), %rax
  mov 8(%rsi), %rcx
  mov 16(%rsi), %rdx
  mov 24(%rsi), %rbx
  mov 40(%rsi), %rbp
  mov 56(%rsi), %rdi
  mov 64(%rsi), %r8
  mov 72(%rsi), %r9
  mov 80(%rsi), %r10
  mov 88(%rsi), %r11
  mov 96(%rsi), %r12
  mov 104(%rsi), %r13
  mov 112(%rsi), %r14
  mov 120(%rsi), %r15
  mov 48(%rsi), %rsi
  call *isa_test_code(%rip)
  mov %rsi, isa_test_rsi(%rip)
  mov isa_test_state(%rip), %rsi
  mov %rax, 0(%rsi)
  mov %rcx, 8(%rsi)
  mov %rdx, 16(%rsi)
  mov %rbx, 24(%rsi)
  mov %rsp, 32(%rsi)
  mov %rbp, 40(%rsi)
  mov %rdi, 56(%rsi)
  mov %r8, 64(%rsi)
  mov %r9, 72(%rsi)
  mov %r10, 80(%rsi)
  mov %r11, 88(%rsi)
  mov %r12, 96(%rsi)
  mov %r13, 104(%rsi)
  mov %r14, 112(%rsi)
  mov %r15, 120(%rsi)
  pushfq
  popq 128(%rsi)
  mov isa_test_rsi(%rip), %rax
  mov %rax, 48(%rsi)
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret
  .size isa_test_run, . - isa_test_run
)");

namespace trapline::isa {
namespace {

constexpr std::uint64_t kArithmeticFlags = 0x8d5;  // CF PF AF ZF SF OF
constexpr std::size_t kDataSize = 256;

// Random straight-line code with forward branches, over all registers but rsp, flags, the red zone
// and a data area behind the code.
class SnippetMaker {
 public:
  explicit SnippetMaker(unsigned seed) : random_(seed) {}

  // Makes code with this many branches in 16 instructions, in the mean, more.
  void branch_more(unsigned sixteenths) { more_branches_ = sixteenths; }

  // Makes code that another function follows at once, not padding.
  void pack(bool packed) { packed_ = packed; }

  // Code for `address`, whose data lies at `data`.
  std::vector<std::byte> make(std::uint64_t address, std::uint64_t data) {
    code_.clear();
    starts_.clear();
    address_ = address;
    data_ = data;
    const unsigned count = 4 + pick(14);
    for (unsigned n = 0; n < count; ++n) one();
    close_branches();
    starts_.push_back(code_.size());
    put({0xc3});
    put({packed_ ? 0x55u : 0xccu});
    while (code_.size() % 16 != 0) put({packed_ ? 0x55u : 0xccu});
    return std::as_bytes(std::span(code_)).empty() ? std::vector<std::byte>{} : to_bytes();
  }
  const std::vector<std::size_t>& starts() const { return starts_; }
  unsigned pick(unsigned n) { return static_cast<unsigned>(random_() % n); }
  std::uint64_t word() { return random_(); }

 private:
  std::vector<std::byte> to_bytes() const {
    const auto bytes = std::as_bytes(std::span(code_));
    return {bytes.begin(), bytes.end()};
  }
  void put(std::initializer_list<unsigned> values) {
    for (const unsigned v : values) code_.push_back(static_cast<std::uint8_t>(v));
  }
  void put32(std::uint64_t value) {
    for (unsigned s = 0; s < 32; s += 8) code_.push_back(static_cast<std::uint8_t>(value >> s));
  }
  unsigned any_register() {
    unsigned r = pick(15);
    return r >= 4 ? r + 1 : r;
  }
  // REX.W op modrm, reg and rm in registers.
  void rr(unsigned op) {
    const unsigned reg = any_register();
    const unsigned rm = any_register();
    put({0x48 | (reg >> 3) << 2 | rm >> 3, op, 0xc0 | (reg & 7) << 3 | (rm & 7)});
  }
  void rip(std::initializer_list<unsigned> opcode, unsigned reg, unsigned after) {
    put({0x48 | (reg >> 3) << 2});
    put(opcode);
    put({5 | (reg & 7) << 3});
    const std::uint64_t target = data_ + 8 * pick(kDataSize / 8);
    put32(target - (address_ + code_.size() + 4 + after));
  }
  void red_zone(unsigned op) {
    const unsigned reg = any_register();
    put({0x48 | (reg >> 3) << 2, op, 0x44 | (reg & 7) << 3, 0x24, 0x100 - 8 * (1 + pick(16))});
  }

  void one() {
    starts_.push_back(code_.size());
    if (pick(16) < more_branches_) return branch(0x70 | pick(16));
    static constexpr unsigned kAlu[] = {0x01, 0x09, 0x11, 0x19, 0x21, 0x29, 0x31, 0x39, 0x85, 0x89};
    switch (pick(13)) {
      case 0:
      case 1:
      case 2:
        rr(kAlu[pick(10)]);
        break;
      case 3:
        red_zone(0x89);
        break;
      case 4:
        red_zone(0x8b);
        break;
      case 5:
        rip({pick(2) != 0 ? 0x03u : 0x8bu}, any_register(), 0);
        break;
      case 6:
        rip({0x89}, any_register(), 0);
        break;
      case 7:
        rip({0x83}, 7, 1);  // cmp qword [rip+x], imm8
        put({pick(256)});
        break;
      case 8: {
        const unsigned r = any_register();
        put({0x48 | r >> 3, 0xc1, 0xe0 | (r & 7), pick(64)});  // shl
        break;
      }
      case 9: {
        const unsigned r = any_register();
        put({0x48 | (r >> 3) << 2, 0x0f, 0x40 | pick(16), 0xc0 | (r & 7) << 3 | 3});  // cmov r, rbx
        break;
      }
      case 10:
        branch(0x70 | pick(16));
        break;
      case 11:
        branch(0xe3);
        break;
      default: {
        const unsigned r = any_register();
        put({0x48 | r >> 3, pick(2) != 0 ? 0xffu : 0xf7u, 0xd0 | (r & 7)});
        code_[code_.size() - 1] = static_cast<std::uint8_t>(
            code_[code_.size() - 2] == 0xff ? 0xc0 | (r & 7) : 0xd0 | (r & 7));  // inc or not
        break;
      }
    }
  }
  void branch(unsigned op) {
    put({op, 0});
    branches_.push_back(code_.size());
  }
  // Every branch leads to some later start.
  void close_branches() {
    for (const std::size_t end : branches_) {
      std::vector<std::size_t> later{code_.size()};
      for (const std::size_t s : starts_) {
        if (s >= end) later.push_back(s);
      }
      code_[end - 1] =
          static_cast<std::uint8_t>(later[pick(static_cast<unsigned>(later.size()))] - end);
    }
    branches_.clear();
  }

  std::mt19937_64 random_;
  unsigned more_branches_ = 0;
  bool packed_ = false;
  std::vector<std::uint8_t> code_;
  std::vector<std::size_t> starts_;
  std::vector<std::size_t> branches_;
  std::uint64_t address_ = 0;
  std::uint64_t data_ = 0;
};

struct Outcome {
  IsaTestState state;
  std::array<std::uint64_t, kDataSize / 8> data;
};

// A page of snippet and data, and a region of trampolines.
class Bench {
 public:
  Bench()
      : text_(reinterpret_cast<std::uint64_t>(&isa_test_run), 4096),
        region_(text_.next().value(), 1 << 16) {
    const auto body = counting_body();
    body_ = region_.add(std::as_bytes(std::span(body)));
  }
  bool valid() const { return text_.valid() && region_.valid(); }
  std::uint64_t code() const { return text_.next().value(); }
  std::uint64_t data() const { return code() + 2048; }
  RemoteAddr body() const { return body_; }
  CodeArena& region() { return region_; }

  void load(std::span<const std::byte> bytes) const { write_patch(code(), bytes); }

  Outcome run(const IsaTestState& start, std::uint64_t fill) const {
    Outcome out{start, {}};
    auto* data_words = reinterpret_cast<std::uint64_t*>(data());
    for (std::size_t n = 0; n < kDataSize / 8; ++n) data_words[n] = fill + n * 0x9e3779b97f4a7c15;
    // The red zone starts the same in each run.
    clear_stack();
    isa_test_run(reinterpret_cast<const void*>(code()), &out.state);
    std::copy_n(data_words, kDataSize / 8, out.data.begin());
    return out;
  }

 private:
  [[gnu::noinline]] static void clear_stack() {
    volatile std::uint64_t below[128];
    for (auto& word : below) word = 0x5555;
  }

  CodeArena text_;
  CodeArena region_;
  RemoteAddr body_;
};

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  for (int r = 0; r < 16; ++r)
    ASSERT_EQ(a.state.reg[r], b.state.reg[r]) << "register " << r << what;
  ASSERT_EQ(a.state.flags & kArithmeticFlags, b.state.flags & kArithmeticFlags) << what;
  ASSERT_EQ(a.data, b.data) << what;
}

// Patches the sites at their places, all points with one counter in the region; returns it.
Counter* arm(Bench& bench, std::span<SitePlan> plans, std::vector<std::uint32_t>& adjust) {
  const Counter zero{};
  const RemoteAddr counter = bench.region().add(std::as_bytes(std::span(&zero, 1)));
  std::ranges::stable_partition(plans, goes_first);
  for (const SitePlan& plan : plans) {
    TrampolineRequest request{.address = bench.region().next(), .bias = {}, .plan = &plan};
    for (const PlannedPoint& p : plan.points) {
      request.points.push_back({.offset = p.offset,
                                .kind = p.kind,
                                .save = Save::kAll,
                                .body = bench.body(),
                                .probe_site = counter});
    }
    const auto trampoline = encode_trampoline(request);
    if (!trampoline) return nullptr;
    if (!plan.points.empty()) adjust = trampoline->stack_adjust;
    const RemoteAddr at = bench.region().add(trampoline->bytes);
    for (const Patch& patch : patches_of(plan, {}, at)) write_patch(patch.at, patch.bytes);
  }
  return reinterpret_cast<Counter*>(counter.value());
}

TEST(Execute, RandomSnippetsDoTheSame) {
  std::size_t patched = 0;
  std::size_t hit = 0;
  std::size_t by_ways = 0;
  std::ptrdiff_t islands = 0;
  std::ptrdiff_t hosts = 0;
  SnippetMaker maker(20250101);
  for (int round = 0; round < 4000; ++round) {
    Bench bench;
    ASSERT_TRUE(bench.valid());
    maker.branch_more(round < 2000 ? 0 : 5);
    const bool packed = round >= 3000;
    maker.pack(packed);
    const auto code = maker.make(bench.code(), bench.data());
    bench.load(code);
    IsaTestState start{};
    for (auto& r : start.reg) r = maker.pick(4) == 0 ? maker.pick(3) : maker.word();
    start.flags = 0x202 | (maker.word() & kArithmeticFlags);
    const std::uint64_t fill = maker.word();
    const Outcome before = bench.run(start, fill);

    ModuleInput input;
    input.sections.push_back({LinkAddr(bench.code()), code});
    const CodeRange range{LinkAddr(bench.code()),
                          LinkAddr(bench.code() + maker.starts().back() + 1)};
    input.functions.push_back(range);
    if (packed) input.functions.push_back({range.end, LinkAddr(bench.code() + code.size())});
    const ModuleCode module(std::move(input));
    const FunctionCode function = analyze_function(module, range);
    const std::size_t some =
        maker.starts()[maker.pick(static_cast<unsigned>(maker.starts().size()))];
    const std::size_t where = packed && maker.pick(2) != 0 ? maker.starts().back() : some;
    const bool is_ret = where == maker.starts().back();
    const PointRequest point{.at = range.begin + where,
                             .kind = where == 0 ? PointKind::kEntry
                                     : is_ret   ? PointKind::kReturn
                                                : PointKind::kInstruction,
                             .function = &function};
    SiteSet set = plan_sites(module, std::span(&point, 1));
    if (set.sites.empty()) {
      const TrapPlan trap = plan_trap_site(module, std::span(&point, 1));
      ASSERT_TRUE(trap.possible);
      continue;
    }
    std::vector<std::uint32_t> adjust;
    Counter* counter = arm(bench, set.sites, adjust);
    ASSERT_NE(counter, nullptr);
    ++patched;
    std::size_t points = 0;
    for (const SitePlan& plan : set.sites) points += plan.points.size();
    if (points > 1) ++by_ways;
    islands += std::ranges::count(set.sites, SiteForm::kIsland, &SitePlan::form);
    hosts += std::ranges::count_if(set.sites, [](const SitePlan& p) { return p.points.empty(); });
    const Outcome after = bench.run(start, fill);
    expect_same(before, after, ", round " + std::to_string(round));
    ASSERT_LE(counter->hits, 1u);
    if (where == 0 || is_ret) {
      ASSERT_EQ(counter->hits, 1u);
    }
    hit += counter->hits;
    if (counter->hits == 1) {
      ASSERT_EQ(counter->last_rsp + 8 + adjust[0], isa_test_rsp);
      if (is_ret) {
        ASSERT_EQ(counter->last_rdi, after.state.reg[0]);
      }
    }
  }
  std::printf("%zu of 4000 patched, %zu hit, %zu by ways, %td islands, %td hosts\n", patched, hit,
              by_ways, islands, hosts);
  EXPECT_GT(patched, 2000u);
  EXPECT_GT(hosts, 30);
  EXPECT_GT(islands, hosts);
  EXPECT_GT(by_ways, 30u);
  EXPECT_GT(hit, patched / 2);
}

}  // namespace
}  // namespace trapline::isa
