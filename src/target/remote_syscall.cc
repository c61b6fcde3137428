#include "target/remote_syscall.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "target/gadgets.h"
#include "target/safety_net.h"
#include "target/seccomp.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;

constexpr auto kCallTimeout = 5s;
constexpr auto kStopTimeout = 1s;
constexpr int kRseqTries = 30;
constexpr auto kRseqPause = 5us;  // longer by this with each try
constexpr std::size_t kThreadsTried = 32;
constexpr int kSyscallStop = SIGTRAP | 0x80;
constexpr int kGetRseqConfiguration = 0x420f;
constexpr std::uint64_t kUserCode64 = 0x33;  // cs of 64-bit code

struct RseqConfiguration {
  std::uint64_t area;
  std::uint32_t size, signature, flags, pad;
};
struct RseqSection {
  std::uint32_t version, flags;
  std::uint64_t start, length, abort;
};

// Whether the thread is inside a restartable sequence. What cannot be read counts as inside.
bool in_rseq_section(const Memory& memory, Tid tid, RemoteAddr pc) {
  RseqConfiguration configuration{};
  if (::ptrace(static_cast<__ptrace_request>(kGetRseqConfiguration), tid.value,
               sizeof configuration, &configuration) < 0 ||
      configuration.area == 0) {
    return false;  // none registered, or a kernel before 5.13: then libc's are the only ones, with
                   // no sections
  }
  const auto section = memory.read_value<std::uint64_t>(RemoteAddr(configuration.area) + 8);
  if (!section) return true;
  if (*section == 0) return false;
  const auto s = memory.read_value<RseqSection>(RemoteAddr(*section));
  return !s || pc.value() - s->start < s->length;
}

enum class SyscallStop : std::uint8_t { kEntry = 1, kExit = 2 };  // PTRACE_SYSCALL_INFO_*

// A kernel before 5.3 does not tell; there the stops alternate.
bool is_stop(Tid tid, SyscallStop wanted) {
  ::__ptrace_syscall_info info{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, tid.value, sizeof info, &info) <= 0) return true;
  return info.op == static_cast<std::uint8_t>(wanted);
}

}  // namespace

struct RemoteCalls::State {
  StoppedProcess* process = nullptr;
  StoppedThread thread;
  std::uint64_t signal_mask = 0;
  RemoteAddr syscall;
  RemoteAddr stack_pointer;
  SeccompGate gate;
  std::optional<SafetyNet> net;
  bool changed = false;  // registers and mask are not the thread's own

  Result<> prepare();
  Result<> choose_thread();
  Result<> leave_rseq(Tid tid);
  Result<> enter(long number, const std::array<std::uint64_t, 6>& args);
  Result<> run_to_syscall_stop(SyscallStop wanted, Clock::time_point deadline);
  Result<> recover();
  Result<> restop();
  Result<> put_back();
};

// Takes a thread without seccomp filters, not in a group-stop, in no restartable sequence; as near
// to that as there is.
Result<> RemoteCalls::State::choose_thread() {
  std::vector<std::pair<int, Tid>> order;  // unfitness
  for (const StoppedThread& t : process->threads()) {
    if (t.registers.raw.cs != kUserCode64) continue;
    const bool in_section = in_rseq_section(process->memory(), t.tid, t.registers.pc());
    order.emplace_back((t.group_stopped ? 2 : 0) + (in_section ? 1 : 0), t.tid);
    if (order.back().first == 0 && order.size() == kThreadsTried) break;
  }
  if (order.empty()) {
    return Error(
        ErrorCode::kUnsupported,
        "no thread of process " + std::to_string(process->pid().value) + " executes 64-bit code");
  }
  std::ranges::sort(order);
  // Filters are usually the same in all threads: a look at some is enough.
  if (order.size() > kThreadsTried) order.resize(kThreadsTried);
  Error last = gone(process->pid());
  std::optional<Tid> found;
  for (const auto& [unfitness, tid] : order) {
    auto opened = SeccompGate::open(process->pid(), tid);
    if (opened && found && !opened->unfiltered()) continue;
    Result<> left = opened ? leave_rseq(tid) : Result<>(opened.error());
    if (!left) {
      last = std::move(left).error();
      continue;
    }
    gate = std::move(*opened);
    found = tid;
    if (gate.unfiltered()) break;
  }
  if (!found) return last;
  const StoppedThread* chosen = process->find(*found);
  if (chosen == nullptr) return gone_thread(*found);
  thread = *chosen;
  return {};
}

// The kernel aborts the section when the thread goes on (it has been scheduled out), so a moment is
// enough.
Result<> RemoteCalls::State::leave_rseq(Tid tid) {
  for (int i = 0;; ++i) {
    const StoppedThread* t = process->find(tid);
    if (t == nullptr) return gone_thread(tid);
    if (!in_rseq_section(process->memory(), tid, t->registers.pc())) return {};
    if (i == kRseqTries || t->group_stopped) {
      return Error(ErrorCode::kTimeout, "thread " + std::to_string(tid.value) +
                                            " stays in a restartable sequence: try again");
    }
    TL_TRY(process->tracees().run_briefly(tid, kRseqPause * i, Clock::now() + kStopTimeout));
    TL_TRY(process->settle());
  }
}

Result<> RemoteCalls::State::prepare() {
  TL_TRY(choose_thread());
  Tracees& tracees = process->tracees();
  process->memory().set_stopped_thread(thread.tid);
  TL_TRY_ASSIGN(const auto maps, process->maps());
  if (!tracees.gadgets || !still_there(process->memory(), *tracees.gadgets)) {
    tracees.gadgets = find_gadgets(process->memory(), maps);
  }
  syscall = tracees.gadgets->syscall;
  if (syscall.value() == 0) {
    TL_TRY(read_registers(thread.tid));  // a process that was just killed has nothing mapped
    return Error(ErrorCode::kUnsupported, "process " + std::to_string(process->pid().value) +
                                              " has no system call instruction mapped");
  }
  stack_pointer = thread.registers.sp();
  if (::ptrace(PTRACE_GETSIGMASK, thread.tid.value, sizeof signal_mask, &signal_mask) != 0) {
    return call_error(thread.tid, "reading the signal mask of", errno);
  }
  const auto status = read_status(process->pid(), thread.tid);
  if (status && !status->shadow_stack) {
    TL_TRY_ASSIGN(net, spread_net(process->memory(), thread.tid, thread.registers, signal_mask,
                                  *tracees.gadgets, maps));
  }
  if (net) {
    syscall = net->syscall;
    stack_pointer = net->stack_pointer;
  }
  return {};
}

// Registers first, the mask second (and the other way round at the end): whenever the tracer dies
// in between, the safety net has the right mask.
Result<> RemoteCalls::State::enter(long number, const std::array<std::uint64_t, 6>& args) {
  Registers r = thread.registers;
  r.raw.rip = syscall.value();
  r.raw.rsp = stack_pointer.value();
  r.raw.rax = static_cast<std::uint64_t>(number);
  r.raw.orig_rax = ~0ull;  // not in a system call: nothing to be restarted
  r.raw.rdi = args[0];
  r.raw.rsi = args[1];
  r.raw.rdx = args[2];
  r.raw.r10 = args[3];
  r.raw.r8 = args[4];
  r.raw.r9 = args[5];
  TL_TRY(write_registers(thread.tid, r));
  if (changed) return {};
  changed = true;
  // SIGTRAP stays unblocked: the kernel would reset its handler if one came while it is blocked.
  const std::uint64_t all = ~(1ull << (SIGTRAP - 1));
  if (::ptrace(PTRACE_SETSIGMASK, thread.tid.value, sizeof all, &all) != 0) {
    return call_error(thread.tid, "setting the signal mask of", errno);
  }
  return {};
}

// SIGSTOP cannot be blocked, and a group-stop reports itself once more: both are answered by going
// on.
Result<> RemoteCalls::State::run_to_syscall_stop(SyscallStop wanted, Clock::time_point deadline) {
  Tracees& tracees = process->tracees();
  int signal = 0;
  for (;;) {
    if (::ptrace(PTRACE_SYSCALL, thread.tid.value, nullptr, signal) != 0) {
      return call_error(thread.tid, "resuming", errno);
    }
    TL_TRY_ASSIGN(const int status, tracees.wait_for(thread.tid, deadline));
    const int event = status >> 16;
    if (event == 0 && WSTOPSIG(status) == kSyscallStop && is_stop(thread.tid, wanted)) return {};
    signal = event == 0 && WSTOPSIG(status) != kSyscallStop ? WSTOPSIG(status) : 0;
  }
}

// After a failure half-way: the thread may run. Brings it to any stop.
Result<> RemoteCalls::State::recover() {
  Tracees& tracees = process->tracees();
  ::ptrace(PTRACE_INTERRUPT, thread.tid.value, nullptr, nullptr);
  if (read_registers(thread.tid)) return {};  // it is stopped
  TL_TRY(tracees.wait_for(thread.tid, Clock::now() + kStopTimeout));
  return {};
}

// Back to PTRACE_EVENT_STOP, without an instruction executed.
Result<> RemoteCalls::State::restop() {
  return process->tracees().restop(thread.tid, Clock::now() + kStopTimeout);
}

Result<> RemoteCalls::State::put_back() {
  if (changed) {
    if (::ptrace(PTRACE_SETSIGMASK, thread.tid.value, sizeof signal_mask, &signal_mask) != 0) {
      return call_error(thread.tid, "restoring the signal mask of", errno);
    }
    TL_TRY(write_registers(thread.tid, thread.registers));
    changed = false;
    if (net) TL_TRY(fold_net(process->memory(), *net));
    net.reset();
    return restop();
  }
  if (net) TL_TRY(fold_net(process->memory(), *net));
  net.reset();
  return {};
}

RemoteCalls::RemoteCalls(std::unique_ptr<State> state) : state_(std::move(state)) {}
RemoteCalls::RemoteCalls(RemoteCalls&&) noexcept = default;
RemoteCalls::~RemoteCalls() {
  if (state_) (void)end();
}

Result<RemoteCalls> RemoteCalls::begin(StoppedProcess& process) {
  process.tracees().check_owner();
  auto state = std::make_unique<State>();
  state->process = &process;
  TL_TRY(state->prepare());
  return RemoteCalls(std::move(state));
}

Result<std::uint64_t> RemoteCalls::run(std::string_view what, long number,
                                       const std::array<std::uint64_t, 6>& args) {
  State& s = *state_;
  const auto doing = [&] {
    return std::string(what) + " in process " + std::to_string(s.process->pid().value);
  };
  if (const auto allowed = s.gate.check(number, args, s.syscall + 2); !allowed)
    return allowed.error().within(doing());
  const auto deadline = Clock::now() + kCallTimeout;
  auto done = s.enter(number, args);
  if (done) done = s.run_to_syscall_stop(SyscallStop::kEntry, deadline);
  if (done) done = s.run_to_syscall_stop(SyscallStop::kExit, deadline);
  if (!done) {
    if (done.error().code() != ErrorCode::kTargetGone) (void)s.recover();
    return done.error().within(doing());
  }
  TL_TRY_ASSIGN(const Registers after, read_registers(s.thread.tid));
  const auto result = static_cast<std::int64_t>(after.raw.rax);
  if (result < 0 && result >= -4095) {
    return Error(ErrorCode::kOs, doing() + ": " + std::strerror(static_cast<int>(-result)),
                 static_cast<int>(-result));
  }
  return static_cast<std::uint64_t>(result);
}

Tid RemoteCalls::tid() const { return state_->thread.tid; }
StoppedProcess& RemoteCalls::process() { return *state_->process; }

Result<> RemoteCalls::end() {
  const auto state = std::exchange(state_, nullptr);
  if (!state) return {};
  state->process->refresh_maps();
  return state->put_back();
}

}  // namespace trapline::target
