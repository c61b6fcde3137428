#include "session/sample_subject.h"

#include <sys/uio.h>

#include <algorithm>
#include <csignal>

#include "session/ancestors.h"
#include "session/clock.h"
#include "session/user_registers.h"
#include "target/process.h"

namespace trapline::session {

namespace {

constexpr std::uint64_t kNobody = 0xffffffff;

}  // namespace

std::uint64_t SampleSubject::builtin(plan::Builtin which) {
  const bool idle = sample_.tid.value == 0;
  switch (which) {
    case plan::Builtin::kPid:
      return static_cast<std::uint64_t>(sample_.pid.value);
    case plan::Builtin::kPpid: {
      // Another one than at the sample's time, if its parent has ended since.
      const auto stat = target::read_stat(sample_.pid);
      return static_cast<std::uint64_t>(!idle && stat ? stat->parent.value : sample_.parent.value);
    }
    case plan::Builtin::kTid:
      return static_cast<std::uint64_t>(sample_.tid.value);
    case plan::Builtin::kUid:
    case plan::Builtin::kGid: {
      if (idle) return 0;
      const auto status = target::read_status(sample_.pid);
      if (!status) return kNobody;
      return which == plan::Builtin::kUid ? status->uid : status->gid;
    }
    case plan::Builtin::kCpu:
      return sample_.cpu;
    case plan::Builtin::kTimestamp:
      return sample_.time;
    case plan::Builtin::kWallTimestamp:
      return Clock::wall_ns() - (Clock::monotonic_ns() - sample_.time);
    case plan::Builtin::kVirtualTimestamp: {
      const auto time = target::read_run_time(sample_.pid, sample_.tid);
      return time ? static_cast<std::uint64_t>(time->count()) : 0;
    }
    case plan::Builtin::kProcessGroup:
    case plan::Builtin::kPriority: {
      const auto stat = target::read_stat(sample_.pid, sample_.tid);
      if (!stat) return 0;
      return static_cast<std::uint64_t>(which == plan::Builtin::kPriority ? kernel_priority(*stat)
                                                                          : stat->group.value);
    }
    default:
      return 0;
  }
}

std::optional<std::uint64_t> SampleSubject::user_register(plan::UserRegister which) {
  if (!sample_.registers) return std::nullopt;
  // The kernel's profiler does not tell these.
  const bool told = sample_.has_segments || which < plan::UserRegister::kDs;
  if (!told || (!sample_.has_segments && which == plan::UserRegister::kError)) return std::nullopt;
  return register_of(*sample_.registers, which);
}

bool SampleSubject::read(RemoteAddr from, std::span<std::byte> out) {
  if (sample_.pid.value <= 0) return false;
  const iovec local{out.data(), out.size()};
  const iovec remote{reinterpret_cast<void*>(from.value()), out.size()};
  return ::process_vm_readv(sample_.pid.value, &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(out.size());
}

bool SampleSubject::write(RemoteAddr to, std::span<const std::byte> bytes) {
  if (!place_.traced) return false;
  const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const iovec remote{reinterpret_cast<void*>(to.value()), bytes.size()};
  return ::process_vm_writev(sample_.pid.value, &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(bytes.size());
}

bool SampleSubject::is_progeny_of(std::int64_t pid) {
  return sample_.pid.value > 0 &&
         std::ranges::any_of(ancestors(sample_.pid), [&](auto a) { return a == pid; });
}

bool SampleSubject::raise(int signal) {
  if (!place_.traced) return false;
  (void)::kill(sample_.pid.value, signal);
  return true;
}

}  // namespace trapline::session
