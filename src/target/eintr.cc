#include "target/eintr.h"

#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>

namespace trapline::target {
namespace {

constexpr std::int64_t kRestartNoHand = -514;

bool returns_eintr_unasked(std::uint64_t number) {
  switch (number) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_rt_sigtimedwait:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_io_uring_enter:
    // Sockets with SO_RCVTIMEO or SO_SNDTIMEO; without one they restart anyway.
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_read:
    case SYS_readv:
    case SYS_write:
    case SYS_writev:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool repair_interrupted_call(Registers& registers) {
  const auto number = static_cast<std::int64_t>(registers.raw.orig_rax);
  if (number < 0 || static_cast<std::int64_t>(registers.raw.rax) != -EINTR) return false;
  if (!returns_eintr_unasked(static_cast<std::uint64_t>(number))) return false;
  registers.raw.rax = static_cast<std::uint64_t>(kRestartNoHand);
  return true;
}

}  // namespace trapline::target
