#include "target/registers.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include <cerrno>

#include "target/text.h"

namespace trapline::target {
namespace {

// include/linux/errno.h: what a system call that was interrupted leaves in rax until the kernel
// decides about it.
constexpr std::int64_t kRestartSys = -512;
constexpr std::int64_t kRestartNoIntr = -513;
constexpr std::int64_t kRestartNoHand = -514;
constexpr std::int64_t kRestartBlock = -516;

}  // namespace

bool Registers::restarts_system_call() const {
  if (static_cast<std::int64_t>(raw.orig_rax) < 0) return false;
  const auto result = static_cast<std::int64_t>(raw.rax);
  return result == kRestartSys || result == kRestartNoIntr || result == kRestartNoHand ||
         result == kRestartBlock;
}

Result<Registers> read_registers(Tid tid) {
  Registers registers;
  ::iovec io{&registers.raw, sizeof registers.raw};
  if (::ptrace(PTRACE_GETREGSET, tid.value, NT_PRSTATUS, &io) != 0) {
    return call_error(tid, "reading the registers of", errno);
  }
  if (io.iov_len != sizeof registers.raw) {
    return Error(ErrorCode::kUnsupported,
                 "thread " + std::to_string(tid.value) + " runs 32-bit code: not supported");
  }
  return registers;
}

Result<> write_registers(Tid tid, const Registers& registers) {
  Registers copy = registers;
  ::iovec io{&copy.raw, sizeof copy.raw};
  if (::ptrace(PTRACE_SETREGSET, tid.value, NT_PRSTATUS, &io) != 0) {
    return call_error(tid, "writing the registers of", errno);
  }
  return {};
}

}  // namespace trapline::target
