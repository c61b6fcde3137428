#include "target/tracees.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <thread>

#include "base/check.h"
#include "target/eintr.h"
#include "target/registers.h"
#include "target/text.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;

constexpr int kSyscallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD
constexpr std::byte kInt3{0xcc};

std::string thread_name(Tid tid, Pid pid) {
  return "thread " + std::to_string(tid.value) + " of process " + std::to_string(pid.value) + " (" +
         command_name(pid) + ")";
}

bool is_thread_of(pid_t tid, Pid pid) {
  return ::access(task_path(pid, Tid{tid}, "stat").c_str(), F_OK) == 0;
}

pid_t event_message(Tid tid) {
  unsigned long message = 0;
  if (::ptrace(PTRACE_GETEVENTMSG, tid.value, nullptr, &message) != 0) return 0;
  return static_cast<pid_t>(message);
}

// In an uninterruptible wait for its vfork child to exec or end: no stop is possible before that.
bool waits_for_vfork(Pid pid, Tid tid) {
  const auto stat = read_stat(pid, tid);
  if (!stat || stat->state != 'D') return false;
  const auto text = read_task_file(pid, tid, "syscall");
  if (!text) return false;
  long number = -1;
  std::from_chars(text->data(), text->data() + text->size(), number);
  return number == SYS_vfork || number == SYS_clone || number == SYS_clone3;
}

Error vfork_error(Pid pid, Tid tid) {
  return {ErrorCode::kTimeout,
          thread_name(tid, pid) +
              " waits for a child that it made with vfork and cannot be stopped before the child "
              "has executed a program or ended: try again then"};
}

// Before anybody is seized, since a thread that cannot be stopped cannot be let go of either.
Result<> wait_for_vfork_children(Pid pid, Clock::time_point deadline) {
  ChildSignals signals;
  for (;;) {
    TL_TRY_ASSIGN(const auto tasks, read_tasks(pid));
    const auto waiting =
        std::ranges::find_if(tasks, [&](Tid tid) { return waits_for_vfork(pid, tid); });
    if (waiting == tasks.end()) return {};
    if (Clock::now() >= deadline) return vfork_error(pid, *waiting);
    signals.pause(deadline);
  }
}

}  // namespace

bool undo_int3(const Memory& memory, Tid tid) {
  auto registers = read_registers(tid);
  if (!registers) return false;
  const auto byte = memory.read_value<std::byte>(registers->pc() - 1);
  if (!byte || *byte != kInt3) return false;
  registers->set_pc(registers->pc() - 1);
  return write_registers(tid, *registers).has_value();
}

void Tracees::check_owner() const { TL_CHECK(::gettid() == owner); }

unsigned long Tracees::ptrace_options() const {
  unsigned long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
  if (follow.forks) options |= PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
  if (kill_on_exit) options |= PTRACE_O_EXITKILL;
  return options;
}

Result<Memory*> Tracees::open_memory() {
  if (!memory) {
    TL_TRY_ASSIGN(const Tid tid, live_thread(pid));
    TL_TRY_ASSIGN(memory, Memory::open(pid, tid));
  }
  return &*memory;
}

Result<> Tracees::set_options(Tid tid, unsigned long more) {
  if (::ptrace(PTRACE_SETOPTIONS, tid.value, nullptr, ptrace_options() | more) != 0) {
    return call_error(tid, "setting the options of", errno);
  }
  return {};
}

void Tracees::add_thread(pid_t tid) {
  if (!threads.try_emplace(tid, Tracee{.tid = Tid{tid}}).second) return;
  if (follow.threads) events.push_back({.kind = Event::Kind::kThreadStarted, .tid = Tid{tid}});
}

Result<Tracees::Seized> Tracees::seize_thread(Tid tid) {
  const auto stat = read_stat(pid, tid);
  if (!stat || stat->is_user_worker() || stat->is_dead()) return Seized::kSkipped;
  if (::ptrace(PTRACE_SEIZE, tid.value, nullptr, ptrace_options()) == 0) {
    add_thread(tid.value);
    return Seized::kYes;
  }
  const int err = errno;
  if (err == ESRCH) return Seized::kSkipped;
  const auto status = read_status(pid, tid);
  if (!status || status->state == 'Z' || status->state == 'X') return Seized::kSkipped;
  if (status->tracer.value == owner) {  // by PTRACE_O_TRACECLONE
    add_thread(tid.value);
    return Seized::kYes;
  }
  return attach_error(pid, err);
}

Result<bool> Tracees::seize_unknown(Purpose purpose) {
  TL_TRY_ASSIGN(const auto tasks, read_tasks(pid));
  bool found = false;
  for (const Tid tid : tasks) {
    if (threads.contains(tid.value)) continue;
    TL_TRY_ASSIGN(const Seized seized, seize_thread(tid));
    if (seized == Seized::kSkipped) continue;
    found = true;
    if (purpose == Purpose::kStop) interrupt(threads.at(tid.value));
  }
  return found;
}

Result<> Tracees::seize_all(Clock::time_point deadline) {
  TL_TRY(wait_for_vfork_children(pid, deadline));
  for (;;) {
    TL_TRY_ASSIGN(const bool found, seize_unknown(Purpose::kPump));
    if (!found) break;
    while (collect(Purpose::kPump)) {
    }
    if (Clock::now() >= deadline) {
      return Error(ErrorCode::kTimeout,
                   "process " + std::to_string(pid.value) +
                       " starts threads faster than they can be attached to: try again");
    }
  }
  if (threads.empty()) return target::gone(pid);
  return {};
}

void Tracees::interrupt(Tracee& t) {
  if (::ptrace(PTRACE_INTERRUPT, t.tid.value, nullptr, nullptr) == 0) t.interrupted = true;
}

void Tracees::go_on(Tracee& t, int signal, Purpose purpose) {
  if (purpose == Purpose::kStop) interrupt(t);
  t.state = TraceeState::kRunning;
  t.group_signal = 0;
  // ESRCH: it was killed; its end will be reported.
  ::ptrace(PTRACE_CONT, t.tid.value, nullptr, signal);
}

void Tracees::release_held(Tracee& t) {
  // What the caller was told of and did not answer: an int3 is executed again later, so that
  // nothing is lost.
  if (t.trap_pc.value() != 0) {
    const auto registers = read_registers(t.tid);
    const auto reader = open_memory();
    if (registers && reader && registers->pc() == t.trap_pc) undo_int3(**reader, t.tid);
    t.trap_pc = {};
    std::erase_if(events,
                  [&](const Event& e) { return e.kind == Event::Kind::kTrap && e.tid == t.tid; });
  }
  go_on(t, 0, Purpose::kStop);
}

Result<> Tracees::stop_all(Clock::time_point deadline, InKernel in_kernel) {
  for (auto& [tid, t] : threads) {
    if (t.state == TraceeState::kRunning || t.state == TraceeState::kListening) interrupt(t);
    if (t.state == TraceeState::kHeld) release_held(t);
  }
  ChildSignals signals;
  auto next_check = Clock::now() + 2ms;
  for (;;) {
    const bool progress = collect(Purpose::kStop);
    if (gone || threads.empty()) return target::gone(pid);
    if (all_stopped(progress ? InKernel::kIsAwaited : in_kernel)) {
      TL_TRY_ASSIGN(const bool found, seize_unknown(Purpose::kStop));
      if (!found && all_stopped(in_kernel)) return {};
      continue;
    }
    const auto now = Clock::now();
    if (now >= deadline) return not_stopped();
    if (progress) continue;
    if (now >= next_check) {
      mark_dead();
      next_check = now + 5ms;
    }
    signals.pause(std::min(deadline, next_check));
  }
}

bool Tracees::all_stopped(InKernel in_kernel) const {
  return std::ranges::all_of(threads, [&](const auto& entry) {
    const Tracee& t = entry.second;
    if (t.state == TraceeState::kStopped || t.state == TraceeState::kDead) return true;
    if (in_kernel == InKernel::kIsAwaited || !t.interrupted) return false;
    const auto stat = read_stat(pid, t.tid);
    return stat && stat->state == 'D';
  });
}

void Tracees::mark_dead() {
  for (auto& [tid, t] : threads) {
    if (t.state == TraceeState::kStopped || t.state == TraceeState::kDead) continue;
    const auto stat = read_stat(pid, t.tid);
    if (stat && stat->is_dead()) t.state = TraceeState::kDead;
  }
}

Error Tracees::not_stopped() const {
  for (const auto& [tid, t] : threads) {
    if (t.state == TraceeState::kStopped || t.state == TraceeState::kDead) continue;
    if (waits_for_vfork(pid, t.tid)) return vfork_error(pid, t.tid);
    const auto stat = read_stat(pid, t.tid);
    return {ErrorCode::kTimeout, thread_name(t.tid, pid) + " did not stop in time (its state is " +
                                     std::string(1, stat ? stat->state : '?') +
                                     "; D is a wait in the kernel that nothing interrupts)"};
  }
  return {ErrorCode::kTimeout, "process " + std::to_string(pid.value) + " did not stop in time"};
}

Result<int> Tracees::wait_for(Tid tid, Clock::time_point deadline) {
  ChildSignals signals;
  auto next_check = Clock::now() + 2ms;
  for (;;) {
    int status = 0;
    const pid_t got = ::waitpid(tid.value, &status, WNOHANG | __WALL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return gone_thread(tid);
    if (got > 0 && !WIFSTOPPED(status)) {
      on_end(tid.value, status);
      return gone_thread(tid);
    }
    if (got > 0) return status;
    const auto now = Clock::now();
    if (now >= deadline) {
      return Error(ErrorCode::kTimeout, thread_name(tid, pid) + " did not stop in time");
    }
    if (now >= next_check) {
      // A leader whose process was killed is a zombie, and not reported before its other threads
      // are.
      if (const auto stat = read_stat(pid, tid); !stat || stat->is_dead()) return gone_thread(tid);
      next_check = now + 10ms;
    }
    signals.pause(deadline);
  }
}

Result<> Tracees::restop(Tid tid, Clock::time_point deadline, int signal) {
  const auto it = threads.find(tid.value);
  if (it == threads.end()) return gone_thread(tid);
  go_on(it->second, signal, Purpose::kStop);
  while (it->second.state != TraceeState::kStopped) {
    TL_TRY_ASSIGN(const int status, wait_for(tid, deadline));
    on_status(tid.value, status, Purpose::kStop);
  }
  return {};
}

Result<> Tracees::run_briefly(Tid tid, std::chrono::microseconds time, Clock::time_point deadline) {
  const auto it = threads.find(tid.value);
  if (it == threads.end()) return gone_thread(tid);
  go_on(it->second, 0, Purpose::kPump);
  std::this_thread::sleep_for(time);
  interrupt(it->second);
  while (it->second.state != TraceeState::kStopped) {
    TL_TRY_ASSIGN(const int status, wait_for(tid, deadline));
    on_status(tid.value, status, Purpose::kStop);
  }
  return {};
}

void Tracees::resume_all() {
  for (auto& [tid, t] : threads) {
    if (t.state != TraceeState::kStopped) continue;
    if (t.group_signal != 0 && ::ptrace(PTRACE_LISTEN, tid, nullptr, nullptr) == 0) {
      t.state = TraceeState::kListening;
    } else {
      go_on(t, 0, Purpose::kPump);
    }
  }
}

Result<> Tracees::detach_stopped(Clock::time_point deadline) {
  bool dying = false;
  for (auto it = threads.begin(); it != threads.end();) {
    Tracee& t = it->second;
    if (t.state == TraceeState::kStopped) {
      if (::ptrace(PTRACE_DETACH, it->first, nullptr, nullptr) == 0) {
        it = threads.erase(it);
        continue;
      }
      t.state = TraceeState::kRunning;  // killed: its end will be reported, and has to be taken
    }
    if (t.state == TraceeState::kRunning) dying = true;
    ++it;
  }
  strays.insert(forked.begin(), forked.end());
  forked.clear();
  ChildSignals signals;
  while ((dying && !threads.empty()) || !strays.empty()) {
    const bool progress = collect(Purpose::kStop);
    if (gone) break;
    if (Clock::now() >= deadline) break;
    if (!progress) {
      mark_dead();
      dying = std::ranges::any_of(
          threads, [](const auto& e) { return e.second.state != TraceeState::kDead; });
      signals.pause(deadline);
    }
  }
  return {};
}

bool Tracees::collect(Purpose purpose) {
  bool any = false;
  for (;;) {
    ::siginfo_t info{};
    const int rc =
        ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD);
    if (rc != 0) {
      if (errno == EINTR) continue;
      return scan(purpose) || any;  // ECHILD: no tracee is left
    }
    if (info.si_pid == 0) return any;
    if (!threads.contains(info.si_pid)) {
      if (!strays.contains(info.si_pid) && !forked.contains(info.si_pid) &&
          is_thread_of(info.si_pid, pid)) {
        add_thread(info.si_pid);
      } else {
        // A child of this thread that is none of ours is in front: ask for each of ours.
        return scan(purpose) || any;
      }
    }
    int status = 0;
    const pid_t got = ::waitpid(info.si_pid, &status, WNOHANG | __WALL);
    if (got <= 0) return scan(purpose) || any;
    any = true;
    on_status(got, status, purpose);
    if (gone) return true;
  }
}

bool Tracees::scan(Purpose purpose) {
  bool any = false;
  std::vector<pid_t> tids;
  for (const auto& [tid, t] : threads) tids.push_back(tid);
  for (const pid_t tid : tids) {
    int status = 0;
    const pid_t got = ::waitpid(tid, &status, WNOHANG | __WALL);
    if (got == 0 || !threads.contains(tid)) continue;
    any = true;
    if (got == tid) {
      on_status(tid, status, purpose);
    } else if (errno == ECHILD) {
      on_end(tid, 0);  // taken with its whole process, by an exec of another thread
    }
    if (gone) return true;
  }
  if (!strays.empty()) release_children();
  return any;
}

void Tracees::release_children() {
  std::erase_if(strays, [](pid_t child) {
    int status = 0;
    const pid_t got = ::waitpid(child, &status, WNOHANG | __WALL);
    if (got == 0) return false;
    if (got == child && WIFSTOPPED(status)) ::ptrace(PTRACE_DETACH, child, nullptr, nullptr);
    return true;
  });
}

void Tracees::on_end(pid_t tid, int status) {
  threads.erase(tid);
  if (tid == pid.value || threads.empty()) {
    gone = true;
    exit_status = status;
    events.push_back({.kind = Event::Kind::kExit, .tid = Tid{tid}, .status = status});
  } else if (follow.threads) {
    events.push_back({.kind = Event::Kind::kThreadEnded, .tid = Tid{tid}, .status = status});
  }
}

void Tracees::on_status(pid_t tid, int status, Purpose purpose) {
  if (WIFEXITED(status) || WIFSIGNALED(status)) return on_end(tid, status);
  if (!WIFSTOPPED(status)) return;
  Tracee& t = threads.at(tid);
  t.interrupted = t.interrupted && status >> 16 == PTRACE_EVENT_STOP;
  switch (status >> 16) {
    case PTRACE_EVENT_STOP:
      return on_stop(t, WSTOPSIG(status), purpose);
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
      return on_new_task(t, status >> 16, purpose);
    case PTRACE_EVENT_EXEC:
      return on_exec(tid, purpose);
    case 0:
      if (WSTOPSIG(status) != kSyscallStop) return on_signal(t, WSTOPSIG(status), purpose);
      [[fallthrough]];
    default:
      return go_on(t, 0, purpose);
  }
}

void Tracees::repair(const Tracee& t) {
  auto registers = read_registers(t.tid);
  if (registers && repair_interrupted_call(*registers)) (void)write_registers(t.tid, *registers);
}

// An int3 was executed, and the stop for PTRACE_INTERRUPT came before its SIGTRAP was delivered
// (kernel/signal.c, get_signal).
bool Tracees::int3_pending(Tid tid) {
  ::__ptrace_peeksiginfo_args which{.off = 0, .flags = 0, .nr = 1};
  for (;; ++which.off) {
    ::siginfo_t info{};
    if (::ptrace(PTRACE_PEEKSIGINFO, tid.value, &which, &info) != 1) return false;
    if (info.si_signo == SIGTRAP && info.si_code == SI_KERNEL) return true;
  }
}

void Tracees::on_stop(Tracee& t, int signal, Purpose purpose) {
  if (purpose == Purpose::kStop && follow.traps && int3_pending(t.tid)) {
    // Its SIGTRAP comes next, before any instruction, and is undone then.
    t.interrupted = false;
    t.state = TraceeState::kRunning;
    ::ptrace(PTRACE_CONT, t.tid.value, nullptr, nullptr);
    return;
  }
  const bool ours = std::exchange(t.interrupted, false);
  t.group_signal = signal == SIGTRAP ? 0 : signal;
  if (t.group_signal == 0 && ours) {
    repair(t);  // not in a group-stop: there an EINTR is what the target would have got without us
  }
  t.state = TraceeState::kStopped;
  if (purpose == Purpose::kStop) return;
  if (t.group_signal != 0 && ::ptrace(PTRACE_LISTEN, t.tid.value, nullptr, nullptr) == 0) {
    t.state = TraceeState::kListening;
  } else {
    go_on(t, 0, purpose);
  }
}

void Tracees::on_signal(Tracee& t, int signal, Purpose purpose) {
  if (signal != SIGTRAP) {
    // A traced thread is woken even by a signal that it ignores, which nobody would have noticed
    // otherwise; where a handler runs, the repaired call returns EINTR all the same.
    if (signal != SIGSTOP && signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU) repair(t);
    return go_on(t, signal, purpose);
  }
  ::siginfo_t info{};
  if (::ptrace(PTRACE_GETSIGINFO, t.tid.value, nullptr, &info) != 0)
    return go_on(t, signal, purpose);
  const bool step = info.si_code == TRAP_TRACE && t.stepping;
  const bool trap = info.si_code == SI_KERNEL || info.si_code == TRAP_HWBKPT;
  if (step) t.stepping = false;
  if (!step && (!trap || !follow.traps)) return go_on(t, signal, purpose);
  const auto registers = read_registers(t.tid);
  if (!registers) return;  // killed
  const auto code = info.si_code;
  if (purpose == Purpose::kStop) {
    // An int3 is executed again later; a hardware breakpoint, too, since its instruction has not
    // been executed.
    const auto reader = open_memory();
    const bool undone = code == SI_KERNEL && reader && undo_int3(**reader, t.tid);
    return go_on(t, code == SI_KERNEL && !undone ? signal : 0, purpose);
  }
  t.state = TraceeState::kHeld;
  t.trap_pc = code == SI_KERNEL ? registers->pc() : RemoteAddr{};
  events.push_back(
      {.kind = Event::Kind::kTrap, .tid = t.tid, .pc = registers->pc(), .trap_code = code});
}

void Tracees::on_exec(pid_t tid, Purpose purpose) {
  ++image;
  memory.reset();
  gadgets.reset();
  // The thread that called exec is the leader now, whatever it was; all others have ended.
  std::erase_if(threads, [&](const auto& entry) { return entry.first != tid; });
  Tracee& t = threads.at(tid);
  t = Tracee{.tid = Tid{tid}};
  if (follow.exec) events.push_back({.kind = Event::Kind::kExec, .tid = t.tid});
  if (purpose == Purpose::kPump && follow.exec) {
    t.state = TraceeState::kHeld;
  } else {
    go_on(t, 0, purpose);
  }
}

void Tracees::on_new_task(Tracee& parent, int event, Purpose purpose) {
  const pid_t child = event_message(parent.tid);
  if (child > 0 && is_thread_of(child, pid)) {
    add_thread(child);
  } else if (child > 0 && (follow.forks || event != PTRACE_EVENT_CLONE)) {
    forked.insert(child);
    events.push_back({.kind = Event::Kind::kFork,
                      .tid = parent.tid,
                      .child = Pid{child},
                      .vfork = event == PTRACE_EVENT_VFORK});
  } else if (child > 0) {
    strays.insert(child);  // clone() without CLONE_THREAD and SIGCHLD counts as a clone
  }
  go_on(parent, 0, purpose);
}

}  // namespace trapline::target
