#include "target/safety_net.h"

#include <cpuid.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trapline::target {
namespace {

constexpr std::uint64_t kRedZone = 128;
constexpr std::uint64_t kRoomBelow = 64;  // left free under the frame

// struct ucontext as the kernel writes it on x86-64
// (arch/x86/include/uapi/asm/{ucontext,sigcontext}.h).
struct UserContext {
  std::uint64_t flags = 1 | 2 | 4;  // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
  std::uint64_t link = 0;
  std::uint64_t stack_pointer = 0;
  std::int32_t stack_flags = 0x7f;  // invalid: sigreturn then leaves the signal stack as it is
  std::int32_t pad = 0;
  std::uint64_t stack_size = 0;
  std::uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip,
      eflags;
  std::uint16_t cs, gs = 0, fs = 0, ss;
  std::uint64_t error = 0, trap = 0, oldmask = 0, cr2 = 0;
  std::uint64_t fpstate = 0;
  std::uint64_t reserved[8] = {};
  std::uint64_t signal_mask = 0;
};
static_assert(sizeof(UserContext) == 304);

// struct _fpx_sw_bytes, at offset 464 of the xsave area.
struct SoftwareBytes {
  std::uint32_t magic1 = 0x46505853;
  std::uint32_t extended_size = 0;
  std::uint64_t features = 0;
  std::uint32_t size = 0;
  std::uint32_t padding[7] = {};
};
static_assert(sizeof(SoftwareBytes) == 48);
constexpr std::size_t kSoftwareBytesOffset = 464;
constexpr std::size_t kHeaderOffset = 512;
constexpr std::size_t kSmallestXsave = 576;
constexpr std::uint32_t kMagic2 = 0x46505845;
constexpr std::uint64_t kDynamicFeatures = 3ull << 17;  // AMX: not in a default signal frame

// The size of an xsave area in the standard format with every feature of `features`.
std::size_t xsave_size(std::uint64_t features) {
  std::size_t size = kSmallestXsave;
  for (unsigned i = 2; i < 63; ++i) {
    if ((features >> i & 1) == 0) continue;
    unsigned bytes = 0, offset = 0, flags = 0, unused = 0;
    __cpuid_count(0xd, i, bytes, offset, flags, unused);
    if ((flags & 1) == 0)
      size = std::max<std::size_t>(size, offset + bytes);  // not a supervisor state
  }
  return size;
}

// The thread's vector state, as it has to be in a signal frame; empty: not available.
std::vector<std::byte> read_xsave(Tid tid) {
  std::vector<std::byte> area(64 * 1024);
  ::iovec io{area.data(), area.size()};
  if (::ptrace(PTRACE_GETREGSET, tid.value, NT_X86_XSTATE, &io) != 0 || io.iov_len < kSmallestXsave)
    return {};
  unsigned low = 0, high = 0, unused1 = 0, unused2 = 0;
  __cpuid_count(0xd, 0, low, unused1, unused2, high);
  const std::uint64_t features = (static_cast<std::uint64_t>(high) << 32 | low) & ~kDynamicFeatures;
  const std::size_t size = xsave_size(features);
  if (size > io.iov_len) return {};
  area.resize(size + sizeof kMagic2);
  std::uint64_t present = 0;
  std::memcpy(&present, area.data() + kHeaderOffset, sizeof present);
  present &= features;
  std::memcpy(area.data() + kHeaderOffset, &present, sizeof present);
  SoftwareBytes software;
  software.extended_size = static_cast<std::uint32_t>(area.size());
  software.features = features;
  software.size = static_cast<std::uint32_t>(size);
  std::memcpy(area.data() + kSoftwareBytesOffset, &software, sizeof software);
  std::memcpy(area.data() + size, &kMagic2, sizeof kMagic2);
  return area;
}

UserContext context_of(const Registers& registers, std::uint64_t signal_mask) {
  const auto& r = registers.raw;
  UserContext c{};
  c.r8 = r.r8, c.r9 = r.r9, c.r10 = r.r10, c.r11 = r.r11, c.r12 = r.r12, c.r13 = r.r13,
  c.r14 = r.r14, c.r15 = r.r15;
  c.rdi = r.rdi, c.rsi = r.rsi, c.rbp = r.rbp, c.rbx = r.rbx, c.rdx = r.rdx, c.rax = r.rax,
  c.rcx = r.rcx;
  c.rsp = r.rsp, c.rip = r.rip, c.eflags = r.eflags;
  c.cs = static_cast<std::uint16_t>(r.cs), c.ss = static_cast<std::uint16_t>(r.ss);
  if (registers.restarts_system_call()) {
    constexpr std::int64_t kRestartBlock = -516;
    c.rax = static_cast<std::int64_t>(r.rax) == kRestartBlock ? SYS_restart_syscall : r.orig_rax;
    c.rip = registers.resume_pc().value();
  }
  c.signal_mask = signal_mask;
  return c;
}

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

Result<std::optional<SafetyNet>> spread_net(Memory& memory, Tid tid, const Registers& registers,
                                            std::uint64_t signal_mask, const Gadgets& gadgets,
                                            std::span<const Mapping> maps) {
  const bool direct = gadgets.sigreturn.value() != 0;
  if (gadgets.syscall_return.value() == 0 || (!direct && gadgets.pop_rax_return.value() == 0))
    return std::nullopt;
  const auto xsave = read_xsave(tid);
  if (xsave.empty()) return std::nullopt;

  const Mapping* stack = find_mapping(maps, registers.sp() - kRedZone);
  const std::uint64_t need = sizeof(UserContext) + xsave.size() + 256 + kRedZone + kRoomBelow;
  if (stack == nullptr || !stack->writable || stack->shared ||
      registers.sp() - stack->range.start < need) {
    return std::nullopt;
  }
  const RemoteAddr xsave_at((registers.sp().value() - kRedZone - xsave.size()) & ~63ull);
  const std::uint64_t head = direct ? 8 : 24;
  const RemoteAddr frame((xsave_at.value() - sizeof(UserContext) - head) & ~15ull);

  std::vector<std::byte> bytes;
  if (direct) {
    append(bytes, gadgets.sigreturn.value());
  } else {
    append(bytes, gadgets.pop_rax_return.value());
    append(bytes, static_cast<std::uint64_t>(SYS_rt_sigreturn));
    append(bytes, gadgets.syscall.value());
  }
  UserContext context = context_of(registers, signal_mask);
  context.fpstate = xsave_at.value();
  append(bytes, context);
  bytes.resize(xsave_at - frame);
  bytes.insert(bytes.end(), xsave.begin(), xsave.end());

  SafetyNet net{frame, gadgets.syscall_return, std::vector<std::byte>(bytes.size())};
  TL_TRY(memory.read(frame, net.original));
  TL_TRY(memory.write(frame, bytes));
  return net;
}

Result<> fold_net(Memory& memory, const SafetyNet& net) {
  return memory.write(net.stack_pointer, net.original);
}

}  // namespace trapline::target
