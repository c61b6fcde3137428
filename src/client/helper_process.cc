#include "client/helper_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "client/helper_path.h"
#include "client/syscalls.h"

namespace trapline::client {
namespace {

constexpr std::size_t kStackSize = 32 * 1024;
constexpr int kSignals = 64;
constexpr int kFirstFree = kStandardFiles[2] + 1;

// What the two children are told and tell. In the program's own memory, as everything that they
// see.
struct Start {
  const char* path;
  char** arguments;
  char** environment;
  char* helper_stack;  // its upper end
  int socket;          // the helper's end
  HelperOutput output;
  HelperFiles files;
  long helper = 0;  // out: the helper's pid, or -errno
  long error = 0;   // out: -errno of execve
};

// The children are not instrumented: sanitizers would take them for the thread whose control block
// they share.
#define TC_CHILD __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

TC_CHILD void close_all_from(unsigned first) {
  if (system_call(SYS_close_range, first, ~0u, 0) == 0) return;
  for (int fd = static_cast<int>(first); fd < 65536; ++fd) system_call(SYS_close, fd);
}

// SIG_IGN and blocked signals would be inherited by the helper, and by what it starts.
TC_CHILD void reset_signals() {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    std::uint64_t mask;
  } action = {SIG_DFL, 0, nullptr, 0};
  for (int signal = 1; signal <= kSignals; ++signal) {
    system_call(SYS_rt_sigaction, signal, as_long(&action), 0, sizeof action.mask);
  }
  const std::uint64_t none = 0;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, as_long(&none), 0, sizeof none);
}

// Makes `to` a copy of `from`, or of /dev/null where that is not open.
TC_CHILD void copy_file(long from, int to) {
  if (system_call(SYS_dup3, from, to, 0) >= 0) return;
  const long null = system_call(SYS_openat, AT_FDCWD, as_long("/dev/null"), O_RDWR);
  if (null < 0 || null == to) return;
  system_call(SYS_dup3, null, to, 0);
  system_call(SYS_close, null);
}

// The helper up to execve(). The socket's number is above 2 (see make_sockets).
TC_CHILD void helper_main(Start* start) {
  const long socket = system_call(SYS_fcntl, start->socket, F_DUPFD, kFirstFree);
  for (int i = 0; i < 3 && start->files == HelperFiles::kStandard; ++i) {
    copy_file(i, kStandardFiles[i]);
  }
  copy_file(socket, 0);
  copy_file(socket, 1);
  if (start->output == HelperOutput::kDiscarded) copy_file(-1, 2);
  close_all_from(start->files == HelperFiles::kStandard ? kFirstFree : 3);
  reset_signals();
  start->error = system_call(SYS_execve, as_long(start->path), as_long(start->arguments),
                             as_long(start->environment));
  system_call(SYS_exit_group, 127);
}

// Calls main(start), which does not return, in a child that shares our memory, on a stack of its
// own; returns its pid when it has ended or executed a program, or -errno. Not libc's clone():
// thread sanitizers take that one for a fork(). The child starts with our registers, but for rax,
// rsp.
//   syscall; rax == 0 in the child
//   child: rdi = start; call main
TC_CHILD long run_child(void (*main)(Start*), char* stack, Start* start) {
  long result;
  register long no_child_tid asm("r10") = 0;
  register long no_tls asm("r8") = 0;
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "movq %[start], %%rdi\n\t"
      "callq *%[main]\n\t"
      "hlt\n"
      "1:"
      : "=a"(result)
      : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK), "S"(stack), "d"(0), "r"(no_child_tid),
        "r"(no_tls), [main] "r"(main), [start] "r"(start)
      : "rcx", "r11", "memory", "cc");
  return result;
}

TC_CHILD void first_child_main(Start* start) {
  system_call(SYS_setsid);
  start->helper = run_child(helper_main, start->helper_stack, start);
  system_call(SYS_exit_group, 0);
}

// Memory for the children's stacks.
class Stacks {
 public:
  Stacks() {
    const long address = system_call(SYS_mmap, 0, 2 * kStackSize, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (address > 0 || address < -4095) base_ = reinterpret_cast<char*>(address);
    error_ = base_ == nullptr ? address : 0;
  }
  ~Stacks() {
    if (base_ != nullptr) system_call(SYS_munmap, as_long(base_), 2 * kStackSize);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  long error() const { return error_; }
  char* upper_end(int which) const {
    return base_ + static_cast<std::size_t>(which + 1) * kStackSize;
  }

 private:
  char* base_ = nullptr;
  long error_ = 0;
};

// Moves a descriptor out of 0 to 2: a program that has closed these does not want us there, and the
// helper's own are set up there.
Outcome<Fd> above_standard(Fd fd) {
  if (fd.get() > 2) return fd;
  const long moved = system_call(SYS_fcntl, fd.get(), F_DUPFD_CLOEXEC, 3);
  if (moved < 0) return os_failure("duplicating a socket", moved);
  return Fd(static_cast<int>(moved));
}

struct Sockets {
  Fd ours;
  Fd theirs;
};
Outcome<Sockets> make_sockets() {
  int pair[2] = {-1, -1};
  const long made =
      system_call(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, as_long(pair));
  if (made < 0) return os_failure("making a socket for the helper", made);
  Outcome<Fd> ours = above_standard(Fd(pair[0]));
  Outcome<Fd> theirs = above_standard(Fd(pair[1]));
  if (!ours) return Failure(std::move(ours).error());
  if (!theirs) return Failure(std::move(theirs).error());
  return Sockets{std::move(*ours), std::move(*theirs)};
}

}  // namespace

Outcome<HelperProcess> start_helper(const std::string& path, HelperOutput output, HelperFiles files,
                                    const Inside& /*inside*/) {
  Outcome<Sockets> sockets = make_sockets();
  if (!sockets) return Failure(std::move(sockets).error());
  const Stacks stacks;
  if (stacks.error() != 0)
    return os_failure("mapping a stack for the helper's start", stacks.error());

  std::string name = "trapline";
  std::string serve = "serve";
  char* arguments[] = {name.data(), serve.data(), nullptr};
  std::vector<char*> environment = helper_environment(environ);
  Start start{
      path.c_str(), arguments, environment.data(), stacks.upper_end(1), sockets->theirs.get(),
      output,       files};
  const long first = run_child(first_child_main, stacks.upper_end(0), &start);
  if (first < 0) return os_failure("starting the helper", first);
  // It has ended: CLONE_VFORK. ECHILD: the program waits with __WALL, and was quicker.
  while (system_call(SYS_wait4, first, 0, __WALL, 0) == -EINTR) {
  }
  if (start.helper < 0) return os_failure("starting the helper", start.helper);
  if (start.helper == 0) {
    return Failure{TRAPLINE_ERROR_HELPER_GONE, "the helper was killed before it had started"};
  }
  if (start.error != 0) {
    Failure failure = os_failure("the helper " + path + " cannot be executed", start.error);
    failure.code = TRAPLINE_ERROR_NO_HELPER;
    return failure;
  }
  return HelperProcess{std::move(sockets->ours), static_cast<int>(start.helper)};
}

int yama_scope() {
  const long fd = system_call(SYS_openat, AT_FDCWD, as_long("/proc/sys/kernel/yama/ptrace_scope"),
                              O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const Fd file(static_cast<int>(fd));
  char digit = '0';
  if (system_call(SYS_read, fd, as_long(&digit), 1) != 1 || digit < '0' || digit > '9') return 0;
  return digit - '0';
}

void allow_tracer(int pid) {
  if (yama_scope() == 1) system_call(SYS_prctl, PR_SET_PTRACER, pid);
}

}  // namespace trapline::client
