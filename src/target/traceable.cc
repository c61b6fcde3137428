// check_traceable: which rule forbids to trace a process.
//
// The rules, in the order in which a person wants to hear of them; the kernel's own check
// (__ptrace_may_access, security/yama/yama_lsm.c, cap_ptrace_access_check) gives no reason but
// EPERM.

#include <elf.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "target/process.h"
#include "target/text.h"

namespace trapline::target {
namespace {

constexpr int kCapSysPtrace = 19;
constexpr int kMaxAncestors = 4096;

std::string process_name(Pid pid) {
  return "process " + std::to_string(pid.value) + " (" + command_name(pid) + ")";
}

std::string user_name(uid_t uid) {
  std::array<char, 4096> buffer;
  ::passwd entry{};
  ::passwd* found = nullptr;
  const std::string number = std::to_string(uid);
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return number;
  return std::string(found->pw_name) + " (" + number + ")";
}

Error forbidden(std::string text) { return {ErrorCode::kPermission, std::move(text), EPERM}; }

// Yama's scope; nullopt: Yama is not there.
std::optional<int> yama_scope() {
  const auto text = read_proc_file("/proc/sys/kernel/yama/ptrace_scope");
  if (!text || text->empty()) return std::nullopt;
  return text->front() - '0';
}

bool is_descendant(Pid pid) {
  const pid_t self = ::getpid();
  for (int i = 0; i < kMaxAncestors && pid.value > 1; ++i) {
    if (pid.value == self) return true;
    const auto stat = read_stat(pid);
    if (!stat) return false;
    pid = stat->parent;
  }
  return false;
}

Result<> check_kind(Pid pid, const TaskStatus& status) {
  const auto stat = read_stat(pid);
  if (!stat) return gone(pid);
  if (stat->is_kernel_thread()) {
    return Error(ErrorCode::kUnsupported,
                 process_name(pid) + " is a kernel thread: only user programs can be traced");
  }
  if (stat->is_dead() && !live_thread(pid)) {
    return Error(ErrorCode::kTargetGone, process_name(pid) +
                                             " has ended: it is a zombie that its parent, " +
                                             process_name(stat->parent) + ", has not waited for");
  }
  if (status.tracer.value != 0) {
    return forbidden(process_name(pid) + " is already traced by " + process_name(status.tracer) +
                     ": a process has one tracer at a time, so detach or end that one first");
  }
  return {};
}

// The rules that CAP_SYS_PTRACE lifts.
Result<> check_credentials(Pid pid, const TaskStatus& target, const TaskStatus& self) {
  const bool same_user =
      self.uid == target.uid && self.uid == target.euid && self.uid == target.suid;
  const bool same_group =
      self.gid == target.gid && self.gid == target.egid && self.gid == target.sgid;
  if (target.uid != target.euid || target.uid != target.suid || target.gid != target.egid ||
      target.gid != target.sgid) {
    return forbidden(process_name(pid) +
                     " runs a set-user-ID or set-group-ID program: only root may trace it");
  }
  if (!same_user) {
    return forbidden(process_name(pid) + " belongs to user " + user_name(target.uid) +
                     ", and you are " + user_name(self.uid) +
                     ": run trapline as that user, or as root");
  }
  if (!same_group) {
    return forbidden(process_name(pid) + " runs with group " + std::to_string(target.gid) +
                     ", and you with " + std::to_string(self.gid) +
                     ": use newgrp or sg to take that group, or run trapline as root");
  }
  if ((target.permitted_capabilities & ~self.permitted_capabilities) != 0) {
    return forbidden(process_name(pid) +
                     " has capabilities that you do not have: run trapline as root");
  }
  // Files in /proc/PID belong to root when the process is not dumpable.
  struct ::stat info{};
  if (::stat(("/proc/" + std::to_string(pid.value) + "/environ").c_str(), &info) == 0 &&
      info.st_uid != target.euid) {
    return forbidden(
        process_name(pid) +
        " is marked as not dumpable (file capabilities, an unreadable executable, or prctl "
        "PR_SET_DUMPABLE): only root may trace it");
  }
  return {};
}

Result<> check_yama(Pid pid, bool capable) {
  const auto scope = yama_scope();
  if (scope == 3) {
    return forbidden(
        "tracing is switched off on this system (kernel.yama.ptrace_scope is 3, until the next "
        "boot)");
  }
  if (scope == 2 && !capable) {
    return forbidden(
        "only root may trace on this system (kernel.yama.ptrace_scope is 2): run trapline as root, "
        "or "
        "start the program with -c after setting kernel.yama.ptrace_scope to 1");
  }
  // Scope 1: descendants, and processes that named us with PR_SET_PTRACER, which cannot be seen
  // from here.
  (void)pid;
  return {};
}

// As much of an ELF header as says for which machine it is.
using Head = std::array<char, 20>;
std::optional<Head> read_head(const Fd& fd) {
  Head head{};
  const bool all =
      ::pread(fd.get(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size());
  return all ? std::optional(head) : std::nullopt;
}

Result<> check_head(const Head& head, const std::string& subject, const std::string& what) {
  const auto machine = static_cast<unsigned char>(head[18]) |
                       static_cast<unsigned>(static_cast<unsigned char>(head[19])) << 8;
  if (head[EI_CLASS] == ELFCLASS32)
    return Error(ErrorCode::kUnsupported, subject + " a 32-bit " + what + ": not supported");
  if (machine != EM_X86_64) {
    return Error(ErrorCode::kUnsupported,
                 subject + " a program for another architecture (ELF machine " +
                     std::to_string(machine) + "): only x86-64 is supported");
  }
  return {};
}

bool has_ptrace_capability(const TaskStatus& self) {
  return (self.effective_capabilities >> kCapSysPtrace & 1) != 0;
}

bool is_this_program(Pid pid) {
  struct ::stat own{};
  struct ::stat other{};
  const std::string link = "/proc/" + std::to_string(pid.value) + "/exe";
  return ::stat("/proc/self/exe", &own) == 0 && ::stat(link.c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

}  // namespace

Result<> check_executable(Pid pid) {
  const auto tid = live_thread(pid);
  if (!tid) return tid.error();
  const Fd fd(::open(task_path(pid, *tid, "exe").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};  // the kernel will say so at the attach
  const auto head = read_head(fd);
  return head ? check_head(*head, process_name(pid) + " is", "process") : Result<>();
}

Result<bool> is_elf_program(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto head = fd ? read_head(fd) : std::nullopt;
  if (!head || !std::ranges::equal(std::span(*head).first(SELFMAG), std::string_view(ELFMAG)))
    return false;
  TL_TRY(check_head(*head, path + ":", "program"));
  return true;
}

Result<> check_traceable(Pid pid) {
  if (pid.value <= 0) {
    return Error(ErrorCode::kBadInput, std::to_string(pid.value) + " is not a process id");
  }
  const auto status = read_status(pid);
  if (!status) {
    return Error(ErrorCode::kNotFound,
                 "no process " + std::to_string(pid.value) + " (it may have ended)");
  }
  if (pid.value == ::getpid() || (pid.value == ::getppid() && is_this_program(pid))) {
    return Error(ErrorCode::kUnsupported,
                 "a process cannot trace itself: a helper process has to do so");
  }
  if (status->tgid.value != pid.value) {
    return Error(ErrorCode::kBadInput, std::to_string(pid.value) + " is a thread of " +
                                           process_name(status->tgid) + ": give the process id " +
                                           std::to_string(status->tgid.value));
  }
  TL_TRY(check_kind(pid, *status));
  TL_TRY_ASSIGN(const auto self, read_status(Pid{::getpid()}));
  const bool capable = has_ptrace_capability(self);
  if (!capable) TL_TRY(check_credentials(pid, *status, self));
  TL_TRY(check_yama(pid, capable));
  return check_executable(pid);
}

PermissionRule permission_rule(Pid pid) {
  const auto status = read_status(pid);
  const auto self = read_status(Pid{::getpid()});
  if (!status || !self) return PermissionRule::kOther;
  if (status->tracer.value != 0) return PermissionRule::kTracer;
  const bool capable = has_ptrace_capability(*self);
  if (!capable && !check_credentials(pid, *status, *self)) return PermissionRule::kOwner;
  if (!check_yama(pid, capable)) return PermissionRule::kYama;
  if (yama_scope() == 1 && !capable && !is_descendant(pid)) return PermissionRule::kYama;
  return PermissionRule::kOther;
}

bool held_by_same_program(Pid pid) {
  const auto status = read_status(pid);
  return status && status->tracer.value != 0 && is_this_program(status->tracer);
}

void await_same_program(Pid pid, std::chrono::steady_clock::time_point deadline) {
  while (held_by_same_program(pid) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Error attach_error(Pid pid, int err) {
  if (err == ESRCH) return gone(pid);
  if (err != EPERM) return Error::os(err, "attaching to " + process_name(pid));
  if (const auto again = check_traceable(pid); !again) return again.error();
  const auto self = read_status(Pid{::getpid()});
  const bool capable = self && has_ptrace_capability(*self);
  if (yama_scope() == 1 && !capable && !is_descendant(pid)) {
    return forbidden(
        process_name(pid) +
        " was not started by trapline, and this system lets only ancestors trace "
        "(kernel.yama.ptrace_scope is 1): start it with -c, run trapline as root, or set "
        "kernel.yama.ptrace_scope to 0");
  }
  if (!capable) {
    return forbidden(
        "the system does not allow tracing of " + process_name(pid) +
        " (in a container: start it with the SYS_PTRACE capability, or trace from inside it)");
  }
  return forbidden(
      "the system does not allow tracing of " + process_name(pid) +
      " even for root (another user namespace, or a security module such as SELinux or AppArmor)");
}

}  // namespace trapline::target
