#include "guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>

#include "messages.h"
#include "session/restore.h"

namespace trapline::tool {

namespace {

// Those that a user ends or pauses tracing by. The others end the first process, and so the worker.
constexpr int kOfCommands[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP};
constexpr int kOfServers[] = {SIGINT,  SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGHUP,
                              SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM};
// What the kernel tells the worker by when the first process has ended.
const int kFrontGone = SIGRTMIN + 5;

volatile sig_atomic_t front_gone = 0;  // of the process, as a signal handler is
int nowhere = -1;                      // /dev/null

// A write that waits for a reader ends with EINTR and goes on to /dev/null.
void on_front_gone(int) {
  const int error = errno;
  front_gone = 1;
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  errno = error;
}

// False: the first process has ended already.
bool watch_front(pid_t front, Role role) {
  if (role == Role::kServer) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    return ::getppid() == front;
  }
  nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  struct sigaction action{};
  action.sa_handler = on_front_gone;  // without SA_RESTART
  ::sigaction(kFrontGone, &action, nullptr);
  ::prctl(PR_SET_PDEATHSIG, kFrontGone);
  return ::getppid() == front;
}

// The terminal has sent its signals to the worker, too, while that is still in the group.
bool has_it_already(pid_t worker, const siginfo_t& info) {
  return info.si_code == SI_KERNEL && ::getpgid(worker) == ::getpgrp();
}

void pause_together(pid_t worker) {
  ::kill(worker, SIGSTOP);
  ::raise(SIGSTOP);
  ::kill(worker, SIGCONT);
}

// Waits for the worker, of which nothing may be left but a zombie; its wait status.
int await(pid_t worker, const sigset_t& signals, Role role) {
  for (;;) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&signals, &info);
    if (role == Role::kServer) {
      if (number == SIGTERM) ::kill(worker, number);
    } else if (number == SIGTSTP) {
      pause_together(worker);
    } else if (number > 0 && number != SIGCHLD && !has_it_already(worker, info)) {
      ::kill(worker, number);
    }
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(worker), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == worker) {
      return ended.si_code == CLD_EXITED ? W_EXITCODE(ended.si_status, 0) : ended.si_status;
    }
  }
}

void clean_up(const target::ProcessIdentity& worker, int number, const session::Ledger& ledger) {
  const session::Restored restored = session::restore_after(worker, ledger);
  const char* name = ::sigabbrev_np(number);
  say(fmt::format("the tracing process was killed (SIG{}): {} process{} restored",
                  name != nullptr ? name : std::to_string(number), restored.processes,
                  restored.processes == 1 ? "" : "es"));
  for (const std::string& text : restored.left) say(text);
}

[[noreturn]] void end_as_worker_did(int number) {
  std::fflush(nullptr);
  const rlimit no_second_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_second_core);
  ::signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(number);
  ::_exit(128 + number);
}

void close_descriptors() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0u, 0);
}

sigset_t block_signals(Role role, sigset_t& original) {
  // Ignored, a SIGCHLD would not come, and the worker's end could not be told from another's.
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t blocked;
  sigemptyset(&blocked);
  const std::span<const int> numbers =
      role == Role::kServer ? std::span<const int>(kOfServers) : std::span<const int>(kOfCommands);
  for (const int number : numbers) sigaddset(&blocked, number);
  sigaddset(&blocked, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &blocked, &original);
  return blocked;
}

}  // namespace

bool Front::is_gone() const { return front_gone != 0; }

void Front::step_aside() const {
  ::signal(SIGTTOU, SIG_IGN);  // the terminal may be written to all the same
  ::setpgid(0, 0);
}

int run_guarded(Role role, const std::function<int(const Front&)>& work) {
  session::Ledger ledger;
  const Front front(session::Invoker::self(), ledger);
  sigset_t original;
  const sigset_t signals = block_signals(role, original);
  std::fflush(nullptr);
  const pid_t worker = ::fork();
  if (worker <= 0) ::sigprocmask(SIG_SETMASK, &original, nullptr);
  if (worker < 0) {
    say(fmt::format("cannot start a process: {}", std::strerror(errno)));
    return 1;
  }
  if (worker == 0) return watch_front(front.invoker().pid.value, role) ? work(front) : 1;
  if (role == Role::kServer) close_descriptors();
  const auto identity = session::identify_tracer(Pid{worker});
  const int status = await(worker, signals, role);
  if (WIFSIGNALED(status) && identity) clean_up(*identity, WTERMSIG(status), ledger);
  ::waitpid(worker, nullptr, 0);
  if (WIFSIGNALED(status)) end_as_worker_did(WTERMSIG(status));
  return WEXITSTATUS(status);
}

}  // namespace trapline::tool
