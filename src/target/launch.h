// Starting a command under trace, stopped before its first instruction.
//
//   fork -> the child waits on a pipe -> the parent seizes it (options: TRACEEXEC, EXITKILL) -> the
//   child execs -> stop at the exec event: the kernel has mapped the executable, its loader and the
//   vDSO; nothing has run.
// run_until_loaded() then lets it run to the executable's entry point (AT_ENTRY): the loader has
// mapped and relocated every DT_NEEDED library and has run their initialisers. A temporary int3 is
// used there.
//
// The child stays in the caller's process group and session: it shares the terminal, and Ctrl-C
// reaches both. It gets the signal mask that the caller gives; descriptors are inherited unless
// they are close-on-exec. Sources: ptrace(2), execve(2).

#pragma once

#include <signal.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "target/attach.h"
#include "target/stopped.h"

namespace trapline::target {

// Splits as dtrace -c does, at blanks; beyond that '...', "..." and backslashes are honoured as by
// a shell. kBadInput: an open quote, or nothing there.
Result<std::vector<std::string>> split_command(std::string_view command);

struct LaunchOptions {
  AttachOptions attach{
      .follow = {}, .timeout = std::chrono::milliseconds(5000), .kill_on_exit = true};
  std::optional<sigset_t>
      signal_mask;  // for the child; unset: the calling thread's (SIGCHLD blocked?)
  // Descriptors that become the child's standard input, output and error; unset: the caller's own.
  std::optional<std::array<int, 3>> stdio;
};

class LaunchedProcess {
 public:
  // argv[0] is looked up in PATH like execvp. Errors: kNotFound (no such command), kPermission (not
  // executable; may not be traced), kBadInput (not a program), kUnsupported (32-bit), each with the
  // command's name.
  static Result<LaunchedProcess> start(const std::vector<std::string>& argv,
                                       const LaunchOptions& options = {});

  LaunchedProcess(LaunchedProcess&&) noexcept = default;
  LaunchedProcess& operator=(LaunchedProcess&&) noexcept = default;
  // If it has not been detached it dies; else it runs on. Its exit status is then nobody's: see
  // wait_exit.
  ~LaunchedProcess();

  Pid pid() const { return pid_; }
  Attachment& attachment() { return attachment_; }

  // Precondition: stopped at an exec event (after start(), or Event::kExec). Runs it to AT_ENTRY;
  // then every thread is stopped. From then on it outlives the tracer. Execs on the way are
  // followed; kTargetGone: it ended before (see wait_exit()).
  Result<StoppedProcess> run_until_loaded(
      std::chrono::milliseconds timeout = std::chrono::seconds(30));
  // Stops everything at the exec event itself, so that the loader's own code can be probed.
  Result<StoppedProcess> stop_at_exec();

  // Waits for the end of the process, traced or detached; the status as waitpid gives it; nullopt:
  // it still runs.
  Result<std::optional<int>> wait_exit(std::chrono::milliseconds timeout);

 private:
  LaunchedProcess(Pid pid, Attachment attachment) : pid_(pid), attachment_(std::move(attachment)) {}
  Result<> await_exec(const std::string& command, std::chrono::milliseconds timeout);
  bool exited() const;
  Pid pid_;
  Attachment attachment_;
};

// run_until_loaded for any attachment that is stopped at Event::kExec.
Result<StoppedProcess> run_until_loaded(Attachment& attachment, std::chrono::milliseconds timeout);

}  // namespace trapline::target
