#include "target/hidden_instruction.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <vector>

#include "isa/x86_64/emulate.h"

namespace trapline::target {
namespace {

// A stopped child with a page of code and a page of stack that it shares with the test.
class Processor {
 public:
  Processor() {
    memory_ = static_cast<std::byte*>(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE | PROT_EXEC,
                                             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      ::raise(SIGSTOP);
      ::_exit(1);
    }
    ::waitpid(pid_, nullptr, 0);
    ::ptrace(PTRACE_GETREGS, pid_, nullptr, &base_);
  }
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;
  ~Processor() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(memory_, kSize);
  }

  std::byte* code() { return memory_; }
  std::byte* stack() { return memory_ + kSize / 2; }  // its middle

  isa::MachineState step(const isa::MachineState& before) {
    ::user_regs_struct r = base_;
    unsigned long long* const general[] = {&r.rax, &r.rcx, &r.rdx, &r.rbx, &r.rsp, &r.rbp,
                                           &r.rsi, &r.rdi, &r.r8,  &r.r9,  &r.r10, &r.r11,
                                           &r.r12, &r.r13, &r.r14, &r.r15};
    for (std::size_t i = 0; i < 16; ++i) *general[i] = before.general[i];
    r.rip = before.pc;
    r.eflags = before.flags;
    r.orig_rax = ~0ull;
    ::ptrace(PTRACE_SETREGS, pid_, nullptr, &r);
    ::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) << status;
    ::ptrace(PTRACE_GETREGS, pid_, nullptr, &r);
    isa::MachineState after;
    for (std::size_t i = 0; i < 16; ++i) after.general[i] = *general[i];
    after.pc = r.rip;
    after.flags = r.eflags;
    return after;
  }

  static constexpr std::size_t kSize = 8192;

 private:
  std::byte* memory_ = nullptr;
  pid_t pid_ = -1;
  ::user_regs_struct base_{};
};

// The test's own view of the same memory.
class SharedStack final : public isa::MachineStack {
 public:
  bool read(std::uint64_t address, std::span<std::byte> out) override {
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
    return true;
  }
  bool write(std::uint64_t address, std::span<const std::byte> bytes) override {
    std::memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size());
    return true;
  }
};

// AF after and, or, xor, test is undefined.
constexpr std::uint64_t kCompared = 0x8c5;
constexpr std::uint64_t kAdjust = 0x10;

const std::vector<std::vector<int>> kInstructions = {
    {0x90},
    {0xf3, 0x0f, 0x1e, 0xfa},
    {0x0f, 0x1f, 0x44, 0x00, 0x00},
    {0x55},
    {0x41, 0x57},
    {0x54},
    {0x6a, 0xf0},
    {0xff, 0x74, 0x24, 0x10},  // push
    {0x5d},
    {0x41, 0x5c},
    {0x5c},
    {0xc9},
    {0xc3},
    {0xc2, 0x10, 0x00},
    {0xe8, 0x10, 0, 0, 0},
    {0xff, 0xd2},
    {0xff, 0xe2},
    {0xeb, 0x20},
    {0xe9, 0x00, 0x01, 0, 0},
    {0xe2, 0x10},
    {0xe1, 0x10},
    {0xe0, 0x10},
    {0xe3, 0x10},
    {0x48, 0x89, 0xe5},
    {0x89, 0xc8},
    {0x66, 0x89, 0xc8},
    {0x88, 0xc8},
    {0x40, 0x88, 0xf7},
    {0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff},
    {0xb8, 0xff, 0xff, 0xff, 0xff},
    {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 0x88},
    {0x48, 0x8b, 0x44, 0x24, 0x08},
    {0x8b, 0x04, 0x24},
    {0x0f, 0xb6, 0xc1},
    {0x0f, 0xb7, 0xc1},
    {0x0f, 0xbe, 0xc1},
    {0x48, 0x0f, 0xbf, 0xc1},
    {0x48, 0x63, 0xc1},
    {0x48, 0x8d, 0x44, 0x8b, 0x10},
    {0x8d, 0x04, 0x08},
    {0x48, 0x8d, 0x05, 0x10, 0, 0, 0},
    {0x48, 0x83, 0xec, 0x28},
    {0x48, 0x81, 0xec, 0x00, 0x10, 0, 0},
    {0x48, 0x83, 0xc4, 0x28},
    {0x48, 0x01, 0xc8},
    {0x01, 0xc8},
    {0x66, 0x01, 0xc8},
    {0x00, 0xc8},
    {0x48, 0x29, 0xc8},
    {0x29, 0xc8},
    {0x28, 0xc8},
    {0x48, 0x39, 0xc8},
    {0x39, 0xc8},
    {0x83, 0xf9, 0x7f},
    {0x48, 0x83, 0x7c, 0x24, 0x08, 0x00},
    {0x31, 0xc0},
    {0x48, 0x31, 0xc8},
    {0x09, 0xc8},
    {0x48, 0x21, 0xc8},
    {0x48, 0x85, 0xc0},
    {0x84, 0xc9},
    {0xa8, 0x80},
};

std::vector<isa::MachineState> states(Processor& processor) {
  const std::uint64_t values[] = {0,
                                  1,
                                  0x7f,
                                  0x80,
                                  0xffff,
                                  0x7fffffff,
                                  0x80000000,
                                  ~0ull,
                                  0x8000000000000000,
                                  0x123456789abcdef0};
  std::vector<isa::MachineState> all;
  for (const std::uint64_t a : values) {
    for (const std::uint64_t b : values) {
      isa::MachineState state;
      state.general.fill(0x0000334455667788);
      state.general[0] = a;
      state.general[1] = b;
      state.general[4] = reinterpret_cast<std::uint64_t>(processor.stack());
      state.general[5] = state.general[4] + 64;
      state.pc = reinterpret_cast<std::uint64_t>(processor.code());
      state.flags = 0x202 | ((a ^ b) & 0x8d5);
      all.push_back(state);
    }
  }
  return all;
}

// Each word is an address that may be returned to.
std::byte pattern(std::size_t i) { return static_cast<std::byte>(i % 8 < 5 ? i * 7 : 0); }

void expect_equal_to_hardware(Processor& processor, const std::vector<std::byte>& bytes,
                              std::uint64_t flags) {
  std::memcpy(processor.code(), bytes.data(), bytes.size());
  for (const isa::MachineState& before : states(processor)) {
    std::byte stack[512];
    std::byte* const around = processor.stack() - 256;
    for (std::size_t i = 0; i < sizeof(stack); ++i) around[i] = pattern(i);
    const isa::MachineState wanted = processor.step(before);
    std::memcpy(stack, around, sizeof(stack));
    for (std::size_t i = 0; i < sizeof(stack); ++i) around[i] = pattern(i);
    isa::MachineState got = before;
    SharedStack shared;
    ASSERT_EQ(isa::emulate(bytes, got, shared), isa::Emulated::kDone);
    EXPECT_EQ(got.general, wanted.general);
    EXPECT_EQ(got.pc, wanted.pc);
    EXPECT_EQ(got.flags & flags, wanted.flags & flags);
    EXPECT_EQ(std::memcmp(stack, around, sizeof(stack)), 0);
  }
}

TEST(Emulate, DoesWhatTheProcessorDoes) {
  Processor processor;
  for (std::size_t n = 0; n < kInstructions.size(); ++n) {
    SCOPED_TRACE("instruction " + std::to_string(n));
    std::vector<std::byte> bytes;
    for (const int byte : kInstructions[n]) bytes.push_back(static_cast<std::byte>(byte));
    expect_equal_to_hardware(processor, bytes, kCompared);
  }
  for (int condition = 0; condition < 16; ++condition) {
    SCOPED_TRACE("condition " + std::to_string(condition));
    expect_equal_to_hardware(processor, {static_cast<std::byte>(0x70 + condition), std::byte{0x10}},
                             kCompared | kAdjust);
  }
}

TEST(Emulate, LeavesOtherMemoryAlone) {
  isa::MachineState state;
  SharedStack stack;
  const std::vector<std::vector<int>> others = {
      {0x48, 0x8b, 0x07},
      {0x48, 0x89, 0x07},                             // mov rax, [rdi]; mov [rdi], rax
      {0x48, 0x89, 0x04, 0x24},                       // mov [rsp], rax
      {0x48, 0x01, 0x04, 0x24},                       // add [rsp], rax
      {0xff, 0x25, 0, 0, 0, 0},                       // jmp [rip]
      {0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0},  // mov rax, fs:0x28
      {0x0f, 0x05},
      {0xf3, 0xa4},
      {0xcc},
      {0x0f, 0x28, 0xc1},
  };
  for (const std::vector<int>& one : others) {
    std::vector<std::byte> bytes;
    for (const int byte : one) bytes.push_back(static_cast<std::byte>(byte));
    EXPECT_EQ(isa::emulate(bytes, state, stack), isa::Emulated::kUnknown) << one[0];
  }
}

}  // namespace
}  // namespace trapline::target
