#include "target/seccomp.h"

#include <linux/audit.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "target/text.h"
#include "target/wait.h"

namespace trapline::target {
namespace {

constexpr int kGetFilter = 0x420c;  // PTRACE_SECCOMP_GET_FILTER
constexpr std::size_t kMaxFilters = 4096;
constexpr int kRefused = 3;  // exit status of a trial child

std::string link_text(const std::string& path) {
  char buffer[256];
  const ssize_t n = ::readlink(path.c_str(), buffer, sizeof buffer);
  return n < 0 ? std::string() : std::string(buffer, static_cast<std::size_t>(n));
}

bool same_surroundings(Pid pid, const TaskStatus& status, const TaskStatus& self) {
  const std::string theirs = "/proc/" + std::to_string(pid.value);
  const auto cgroup = read_proc_file(theirs + "/cgroup");
  const auto own_cgroup = read_proc_file("/proc/self/cgroup");
  const auto space = link_text(theirs + "/ns/pid");
  return status.seccomp_filters > 0 && status.seccomp_filters == self.seccomp_filters &&
         status.pid_namespaces == self.pid_namespaces && !space.empty() &&
         space == link_text("/proc/self/ns/pid") && cgroup && own_cgroup && *cgroup == *own_cgroup;
}

// Reads all filters of a stopped thread; false: not allowed to.
bool read_filters(Tid tid, std::vector<std::vector<::sock_filter>>& out) {
  for (unsigned long i = 0; i < kMaxFilters; ++i) {
    const long n = ::ptrace(static_cast<__ptrace_request>(kGetFilter), tid.value, i, nullptr);
    if (n < 0) return errno == ENOENT && i > 0;
    std::vector<::sock_filter> program(static_cast<std::size_t>(n));
    if (::ptrace(static_cast<__ptrace_request>(kGetFilter), tid.value, i, program.data()) < 0)
      return false;
    out.push_back(std::move(program));
  }
  return false;
}

// The call in a child that is thrown away: its arguments mean nothing there, so it may fail or
// crash, but a filter decides by number and argument values alone.
bool trial_allows(long number, const std::array<std::uint64_t, 6>& args) {
  const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child < 0) return false;
  if (child == 0) {
    const long rc = ::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    const bool refused = rc < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS);
    ::syscall(SYS_exit_group, refused ? kRefused : 0);
  }
  int status = 0;
  ChildSignals signals;
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return false;
    }
    signals.pause(deadline);
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status) != kRefused;
  return WTERMSIG(status) == SIGSEGV ||
         WTERMSIG(status) == SIGBUS;  // the call was let through and took memory away
}

class Machine {
 public:
  explicit Machine(const ::seccomp_data& data) { std::memcpy(words_.data(), &data, sizeof data); }
  std::uint32_t run(std::span<const ::sock_filter> program);

 private:
  bool alu(std::uint16_t code, std::uint32_t operand);
  bool load(const ::sock_filter& in);
  static bool jump_taken(std::uint16_t code, std::uint32_t a, std::uint32_t operand);

  std::uint32_t a_ = 0, x_ = 0;
  std::array<std::uint32_t, BPF_MEMWORDS> memory_{};
  std::array<std::uint32_t, sizeof(::seccomp_data) / 4> words_{};
};

bool Machine::load(const ::sock_filter& in) {
  std::uint32_t value = 0;
  switch (BPF_MODE(in.code)) {
    case BPF_IMM:
      value = in.k;
      break;
    case BPF_LEN:
      value = sizeof(::seccomp_data);
      break;
    case BPF_MEM:
      if (in.k >= memory_.size()) return false;
      value = memory_[in.k];
      break;
    case BPF_ABS:
      if (in.k % 4 != 0 || in.k / 4 >= words_.size()) return false;
      value = words_[in.k / 4];
      break;
    default:
      return false;
  }
  (BPF_CLASS(in.code) == BPF_LD ? a_ : x_) = value;
  return true;
}

bool Machine::alu(std::uint16_t code, std::uint32_t operand) {
  switch (BPF_OP(code)) {
    case BPF_ADD:
      a_ += operand;
      return true;
    case BPF_SUB:
      a_ -= operand;
      return true;
    case BPF_MUL:
      a_ *= operand;
      return true;
    case BPF_DIV:
      if (operand == 0) return false;
      a_ /= operand;
      return true;
    case BPF_MOD:
      if (operand == 0) return false;
      a_ %= operand;
      return true;
    case BPF_OR:
      a_ |= operand;
      return true;
    case BPF_AND:
      a_ &= operand;
      return true;
    case BPF_XOR:
      a_ ^= operand;
      return true;
    case BPF_LSH:
      a_ = operand < 32 ? a_ << operand : 0;
      return true;
    case BPF_RSH:
      a_ = operand < 32 ? a_ >> operand : 0;
      return true;
    case BPF_NEG:
      a_ = 0 - a_;
      return true;
    default:
      return false;
  }
}

bool Machine::jump_taken(std::uint16_t code, std::uint32_t a, std::uint32_t operand) {
  switch (BPF_OP(code)) {
    case BPF_JEQ:
      return a == operand;
    case BPF_JGT:
      return a > operand;
    case BPF_JGE:
      return a >= operand;
    case BPF_JSET:
      return (a & operand) != 0;
    default:
      return false;
  }
}

std::uint32_t Machine::run(std::span<const ::sock_filter> program) {
  constexpr std::uint32_t kBad = SECCOMP_RET_KILL_PROCESS;
  for (std::size_t pc = 0; pc < program.size(); ++pc) {  // jumps only go forward
    const ::sock_filter& in = program[pc];
    const std::uint32_t operand = BPF_SRC(in.code) == BPF_X ? x_ : in.k;
    switch (BPF_CLASS(in.code)) {
      case BPF_LD:
      case BPF_LDX:
        if (!load(in)) return kBad;
        break;
      case BPF_ST:
      case BPF_STX:
        if (in.k >= memory_.size()) return kBad;
        memory_[in.k] = BPF_CLASS(in.code) == BPF_ST ? a_ : x_;
        break;
      case BPF_ALU:
        if (!alu(in.code, operand)) return kBad;
        break;
      case BPF_JMP:
        pc += BPF_OP(in.code) == BPF_JA ? in.k : jump_taken(in.code, a_, operand) ? in.jt : in.jf;
        break;
      case BPF_RET:
        return BPF_RVAL(in.code) == BPF_A ? a_ : in.k;
      case BPF_MISC:
        (BPF_MISCOP(in.code) == BPF_TAX ? x_ : a_) = BPF_MISCOP(in.code) == BPF_TAX ? a_ : x_;
        break;
      default:
        return kBad;
    }
  }
  return kBad;
}

}  // namespace

std::uint32_t run_filter(std::span<const ::sock_filter> program, const ::seccomp_data& data) {
  return Machine(data).run(program);
}

Result<SeccompGate> SeccompGate::open(Pid pid, Tid tid) {
  TL_TRY_ASSIGN(const auto status, read_status(pid, tid));
  SeccompGate gate;
  gate.pid_ = pid;
  if (status.seccomp == 0) return gate;
  const std::string name = "process " + std::to_string(pid.value) + " (" + status.name + ")";
  if (status.seccomp == 1) {
    return Error(ErrorCode::kUnsupported,
                 name + " is in seccomp's strict mode: nothing can be mapped into it");
  }
  if (read_filters(tid, gate.filters_)) {
    gate.how_ = How::kEvaluate;
    return gate;
  }
  TL_TRY_ASSIGN(const auto self, read_status(Pid{::getpid()}));
  if (same_surroundings(pid, status, self)) {
    gate.how_ = How::kTry;
    return gate;
  }
  return Error(
      ErrorCode::kUnsupported,
      name +
          " has seccomp filters, which may forbid (or kill for) the system calls that map a "
          "probe's code "
          "into it: run trapline as root, which can read the filters, or inside the same sandbox");
}

Result<> SeccompGate::check(long number, const std::array<std::uint64_t, 6>& args,
                            RemoteAddr pc) const {
  bool allowed = true;
  if (how_ == How::kEvaluate) {
    ::seccomp_data data{};
    data.nr = static_cast<int>(number);
    data.arch = AUDIT_ARCH_X86_64;
    data.instruction_pointer = pc.value();
    for (std::size_t i = 0; i < args.size(); ++i) data.args[i] = args[i];
    for (const auto& program : filters_) {
      const std::uint32_t action = run_filter(program, data) & SECCOMP_RET_ACTION_FULL;
      allowed = allowed && (action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG);
    }
  } else if (how_ == How::kTry) {
    allowed = trial_allows(number, args);
  }
  if (allowed) return {};
  return Error(ErrorCode::kUnsupported,
               "process " + std::to_string(pid_.value) +
                   " has a seccomp filter that does not allow system call number " +
                   std::to_string(number) + ", which mapping a probe's code needs");
}

}  // namespace trapline::target
