#include "target/hidden_instruction.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "isa/x86_64/decode.h"
#include "isa/x86_64/emulate.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStopPatience{2000};
constexpr milliseconds kStepPatience{200};
constexpr std::byte kInt3{0xcc};

constexpr std::uint64_t bit_of(int signal) { return 1ull << (signal - 1); }
// What an instruction can raise: blocked, it would end the process.
constexpr std::uint64_t kFaults = bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGFPE) |
                                  bit_of(SIGILL) | bit_of(SIGTRAP) | bit_of(SIGSYS);

bool is_fault(int signal) { return (bit_of(signal) & kFaults) != 0; }

// By process_vm_*, which respects how the pages are protected.
class ThreadStack final : public isa::MachineStack {
 public:
  explicit ThreadStack(Pid pid) : pid_(pid) {}
  bool read(std::uint64_t address, std::span<std::byte> out) override {
    const ::iovec local{out.data(), out.size()};
    const ::iovec remote{reinterpret_cast<void*>(address), out.size()};
    return ::process_vm_readv(pid_.value, &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(out.size());
  }
  bool write(std::uint64_t address, std::span<const std::byte> bytes) override {
    const ::iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const ::iovec remote{reinterpret_cast<void*>(address), bytes.size()};
    return ::process_vm_writev(pid_.value, &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(bytes.size());
  }

 private:
  Pid pid_;
};

isa::MachineState to_state(const ::user_regs_struct& r) {
  return {{r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
           r.r13, r.r14, r.r15},
          r.rip,
          r.eflags};
}

void from_state(const isa::MachineState& state, ::user_regs_struct& r) {
  unsigned long long* const registers[] = {&r.rax, &r.rcx, &r.rdx, &r.rbx, &r.rsp, &r.rbp,
                                           &r.rsi, &r.rdi, &r.r8,  &r.r9,  &r.r10, &r.r11,
                                           &r.r12, &r.r13, &r.r14, &r.r15};
  for (std::size_t i = 0; i < state.general.size(); ++i) *registers[i] = state.general[i];
  r.rip = state.pc;
  r.eflags = state.flags;
}

// While it lives, nobody who shares the memory executes an instruction.
class Quiet {
 public:
  explicit Quiet(std::span<Attachment* const> sharing) : sharing_(sharing) {}
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet() {
    for (Attachment* attachment : sharing_) attachment->tracees().resume_all();
  }

  Result<> begin() {
    const Clock::time_point deadline = Clock::now() + kStopPatience;
    for (Attachment* attachment : sharing_) {
      const Result<> stopped = attachment->tracees().stop_all(deadline, InKernel::kIsEnough);
      if (!stopped && stopped.error().code() != ErrorCode::kTargetGone) return stopped;
    }
    return {};
  }

 private:
  std::span<Attachment* const> sharing_;
};

// The original byte, until its end.
class Uncovered {
 public:
  static Result<Uncovered> make(Memory& memory, const HiddenInstruction& hidden) {
    TL_TRY_ASSIGN(const std::byte there, memory.read_value<std::byte>(hidden.at));
    // Somebody has put it back, or something else there: the thread executes what it finds.
    if (there != kInt3) return Uncovered(nullptr, hidden.at);
    TL_TRY(memory.write(hidden.at, std::span(hidden.bytes).first(1)));
    return Uncovered(&memory, hidden.at);
  }
  Uncovered(Uncovered&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), at_(other.at_) {}
  Uncovered& operator=(Uncovered&&) = delete;
  ~Uncovered() {
    if (memory_ != nullptr) (void)memory_->write_value(at_, kInt3);
  }

 private:
  Uncovered(Memory* memory, RemoteAddr at) : memory_(memory), at_(at) {}
  Memory* memory_;
  RemoteAddr at_;
};

struct Stepped {
  enum class How : std::uint8_t { kDone, kFault, kWaits };
  How how = How::kDone;
  int fault = 0;
  bool stop_signal = false;            // a SIGSTOP came, and was put off
  std::optional<::siginfo_t> put_off;  // so was one that somebody sent, of those not blocked
};

// Of the second one of these its number is kept.
void put_off(Pid pid, Tid tid, const ::siginfo_t& info, Stepped& result) {
  if (result.put_off) {
    ::syscall(SYS_tgkill, pid.value, tid.value, info.si_signo);
  } else {
    result.put_off = info;
  }
}

// One step, with everything in place for it.
Result<Stepped> step(Tracees& tracees, Tid tid, RemoteAddr at) {
  Stepped result;
  const Clock::time_point deadline = Clock::now() + kStepPatience;
  for (;;) {
    if (::ptrace(PTRACE_SINGLESTEP, tid.value, nullptr, nullptr) != 0)
      return call_error(tid, "stepping", errno);
    const auto status = tracees.wait_for(tid, deadline);
    if (!status && status.error().code() == ErrorCode::kTimeout) {
      result.how = Stepped::How::kWaits;
      return result;
    }
    if (!status) return status.error();
    const int signal = WSTOPSIG(*status);
    if (*status >> 16 != 0) continue;  // a group-stop tells of itself again
    if (signal == SIGSTOP) {
      result.stop_signal = true;
      continue;
    }
    ::siginfo_t info{};
    if (::ptrace(PTRACE_GETSIGINFO, tid.value, nullptr, &info) != 0)
      return call_error(tid, "reading a signal of", errno);
    if (signal == SIGTRAP && info.si_code == TRAP_TRACE) {
      TL_TRY_ASSIGN(const Registers after, read_registers(tid));
      if (after.pc() == at) continue;  // a repeated one: not yet at its end
      return result;
    }
    if (info.si_code <= 0) {
      put_off(tracees.pid, tid, info, result);
      continue;
    }
    if (is_fault(signal)) {
      result.how = Stepped::How::kFault;
      result.fault = signal;
      return result;
    }
  }
}

bool is_call_or_return(std::span<const std::byte> bytes) {
  const auto instruction = isa::decode(bytes, 0);
  return instruction &&
         (instruction->kind == isa::Kind::kCallDirect ||
          instruction->kind == isa::Kind::kCallIndirect || instruction->kind == isa::Kind::kRet);
}

// Precondition: everybody is quiet.
Result<std::optional<Unfinished>> step_alone(Attachment& own, Tid tid,
                                             const HiddenInstruction& hidden,
                                             const Registers& registers,
                                             std::optional<std::uint64_t> signal_mask) {
  Tracees& tracees = own.tracees();
  TL_TRY_ASSIGN(Memory* const memory, tracees.open_memory());
  memory->set_stopped_thread(tid);
  std::uint64_t mask = 0;
  if (signal_mask) {
    mask = *signal_mask;
  } else if (::ptrace(PTRACE_GETSIGMASK, tid.value, sizeof mask, &mask) != 0) {
    return call_error(tid, "reading the signal mask of", errno);
  }
  Result<Stepped> stepped;
  {
    TL_TRY_ASSIGN(const Uncovered uncovered, Uncovered::make(*memory, hidden));
    TL_TRY(set_signal_mask(tid, mask | ~kFaults));
    stepped = step(tracees, tid, hidden.at);
  }
  memory->set_stopped_thread({});
  if (!stepped) return stepped.error();
  const auto thread = tracees.threads.find(tid.value);
  if (thread == tracees.threads.end()) return gone_thread(tid);
  if (stepped->stop_signal) ::syscall(SYS_tgkill, own.pid().value, tid.value, SIGSTOP);
  if (stepped->how == Stepped::How::kWaits) {
    thread->second.state = TraceeState::kRunning;
    thread->second.stepping = true;
    return std::optional(Unfinished{registers.sp().value(), mask});
  }
  TL_TRY(set_signal_mask(tid, mask));
  int signal = stepped->how == Stepped::How::kFault ? stepped->fault : 0;
  if (stepped->put_off && signal != 0) {
    ::syscall(SYS_tgkill, own.pid().value, tid.value, stepped->put_off->si_signo);
  } else if (stepped->put_off) {
    signal = stepped->put_off->si_signo;
    ::ptrace(PTRACE_SETSIGINFO, tid.value, nullptr, &*stepped->put_off);
  }
  TL_TRY(tracees.restop(tid, Clock::now() + kStopPatience, signal));
  return std::optional<Unfinished>();
}

}  // namespace

Result<> set_signal_mask(Tid tid, std::uint64_t mask) {
  if (::ptrace(PTRACE_SETSIGMASK, tid.value, sizeof mask, &mask) != 0)
    return call_error(tid, "setting the signal mask of", errno);
  return {};
}

bool InstructionServer::emulate(Pid pid, const HiddenInstruction& hidden,
                                Registers& registers) const {
  if (shadow_stack_ == ShadowStack::kYes && is_call_or_return(hidden.bytes)) return false;
  isa::MachineState state = to_state(registers.raw);
  ThreadStack stack(pid);
  if (isa::emulate(hidden.bytes, state, stack) != isa::Emulated::kDone) return false;
  from_state(state, registers.raw);
  return true;
}

Result<std::optional<Unfinished>> InstructionServer::run(std::span<Attachment* const> sharing,
                                                         Attachment& own, Tid tid,
                                                         const HiddenInstruction& hidden,
                                                         const Registers& registers,
                                                         std::optional<std::uint64_t> signal_mask) {
  Registers changed = registers;
  if (!signal_mask && emulate(own.pid(), hidden, changed)) {
    ++emulated_;
    TL_TRY(write_registers(tid, changed));
    TL_TRY(own.resume(tid));
    return std::optional<Unfinished>();
  }
  ++stepped_;
  TL_TRY(write_registers(tid, registers));
  Quiet quiet(sharing);
  TL_TRY(quiet.begin());
  return step_alone(own, tid, hidden, registers, signal_mask);
}

}  // namespace trapline::target
