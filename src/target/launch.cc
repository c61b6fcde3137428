#include "target/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "target/process.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;

constexpr int kExecFailed = 127;

struct Pipe {
  Fd read_end, write_end;
};
Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Error::os(errno, "pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

// Where execvp will find the command; empty: nowhere.
std::string find_command(const std::string& name) {
  if (name.find('/') != name.npos) return name;
  const char* const path = ::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/bin:/usr/bin";
  for (;;) {
    const std::size_t end = folders.find(':');
    const std::string folder(folders.substr(0, end));
    const std::string file = folder.empty() ? name : folder + "/" + name;
    struct ::stat facts{};
    if (::stat(file.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
        ::access(file.c_str(), X_OK) == 0)
      return file;
    if (end == folders.npos) return {};
    folders.remove_prefix(end + 1);
  }
}

// Copied out of the way first: any of the three may be any of 0, 1 and 2. Async-signal-safe.
bool set_stdio(std::array<int, 3> fds) {
  for (int& fd : fds) {
    fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return false;
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(fds[static_cast<std::size_t>(i)], i) < 0) return false;
  }
  return true;
}

// In the child: only async-signal-safe calls. `program`: what execvp would find, if that is an ELF
// file: what the kernel refuses of those, execvp would have a shell read as a script.
[[noreturn]] void run_child(const Pipe& go, const Pipe& report, const char* program,
                            char* const* argv, const LaunchOptions& options) {
  char byte = 0;
  ssize_t n;
  do n = ::read(go.read_end.get(), &byte, 1);
  while (n < 0 && errno == EINTR);
  if (n != 1) ::_exit(kExecFailed);  // the tracer has ended
  if (options.signal_mask) ::sigprocmask(SIG_SETMASK, &*options.signal_mask, nullptr);
  if (options.stdio && !set_stdio(*options.stdio)) {
    const int err = errno;
    (void)!::write(report.write_end.get(), &err, sizeof err);
    ::_exit(kExecFailed);
  }
  if (program != nullptr)
    ::execv(program, argv);
  else
    ::execvp(argv[0], argv);
  const int err = errno;
  (void)!::write(report.write_end.get(), &err, sizeof err);
  ::_exit(kExecFailed);
}

Error exec_error(const std::string& command, int err) {
  switch (err) {
    case ENOENT:
      return {ErrorCode::kNotFound, command + ": no such command (or its interpreter is missing)",
              err};
    case EACCES:
      return {ErrorCode::kPermission,
              command + ": it may not be executed (no execute permission, or a directory)", err};
    case ENOEXEC:
      return {ErrorCode::kBadInput, command + ": not a program that this system can run", err};
    default:
      return Error::os(err, "starting " + command);
  }
}

void kill_and_reap(Pid pid) {
  ::kill(pid.value, SIGKILL);
  int status = 0;
  while (::waitpid(pid.value, &status, __WALL) >= 0 && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
}

// What the child says about a failed exec; 0: nothing.
int reported_error(const Pipe& report) {
  int err = 0;
  return ::read(report.read_end.get(), &err, sizeof err) == sizeof err ? err : 0;
}

}  // namespace

Result<std::vector<std::string>> split_command(std::string_view command) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < command.size() &&
               (quote == 0 || command[i + 1] == '"' || command[i + 1] == '\\')) {
      word += command[++i];
      in_word = true;
    } else if (quote != 0) {
      word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0)
    return Error(ErrorCode::kBadInput,
                 "the command has an open " + std::string(1, quote) + " quote");
  if (in_word) words.push_back(word);
  if (words.empty()) return Error(ErrorCode::kBadInput, "the command is empty");
  return words;
}

Result<LaunchedProcess> LaunchedProcess::start(const std::vector<std::string>& argv,
                                               const LaunchOptions& options) {
  if (argv.empty() || argv.front().empty())
    return Error(ErrorCode::kBadInput, "the command is empty");
  const std::string program = find_command(argv.front());
  TL_TRY_ASSIGN(const bool elf, is_elf_program(program));
  TL_TRY_ASSIGN(Pipe go, make_pipe());
  TL_TRY_ASSIGN(Pipe report, make_pipe());
  std::vector<char*> pointers;
  for (const std::string& a : argv) pointers.push_back(const_cast<char*>(a.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return Error::os(errno, "fork");
  if (child == 0) run_child(go, report, elf ? program.c_str() : nullptr, pointers.data(), options);
  const Pid pid{child};

  AttachOptions attach = options.attach;
  attach.follow.exec = true;
  auto attachment = Attachment::seize(pid, attach);
  if (!attachment) {
    kill_and_reap(pid);
    return attachment.error().within("starting " + argv.front());
  }
  LaunchedProcess process(pid, std::move(*attachment));
  report.write_end.reset();
  if (::write(go.write_end.get(), "g", 1) != 1) return Error::os(errno, "starting " + argv.front());
  TL_TRY(process.await_exec(argv.front(), options.attach.timeout));
  if (const int err = process.exited() ? reported_error(report) : 0; err != 0)
    return exec_error(argv.front(), err);
  if (process.exited())
    return Error(ErrorCode::kTargetGone, argv.front() + " was killed before it started");
  TL_TRY(check_executable(pid));
  process.attachment_.tracees_->follow.exec = options.attach.follow.exec;
  return process;
}

bool LaunchedProcess::exited() const { return attachment_.gone(); }

// Up to the exec event, or the child's end.
Result<> LaunchedProcess::await_exec(const std::string& command,
                                     std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    TL_TRY_ASSIGN(const auto event, attachment_.wait_event(100ms));
    if (!event) continue;
    if (event->kind == Event::Kind::kExec || event->kind == Event::Kind::kExit) return {};
  }
  return Error(ErrorCode::kTimeout, "starting " + command + ": it has not been loaded in time");
}

LaunchedProcess::~LaunchedProcess() {
  if (!attachment_.tracees_ || attachment_.gone() || attachment_.tracees_->threads.empty()) return;
  ::kill(pid_.value, SIGKILL);
  const auto deadline = Clock::now() + 2s;
  while (!attachment_.gone() && Clock::now() < deadline) (void)attachment_.wait_event(100ms);
}

Result<StoppedProcess> LaunchedProcess::run_until_loaded(std::chrono::milliseconds timeout) {
  return target::run_until_loaded(attachment_, timeout);
}

Result<StoppedProcess> LaunchedProcess::stop_at_exec() { return attachment_.stop(); }

Result<std::optional<int>> LaunchedProcess::wait_exit(std::chrono::milliseconds timeout) {
  Tracees& t = *attachment_.tracees_;
  const auto deadline = Clock::now() + timeout;
  ChildSignals signals;
  for (;;) {
    if (!t.exit_status && !t.threads.empty()) {
      t.collect(Purpose::kPump);
    } else if (!t.exit_status) {
      int status = 0;
      const pid_t got = ::waitpid(pid_.value, &status, WNOHANG);
      if (got < 0) {
        return Error(ErrorCode::kNotFound, "the exit status of process " +
                                               std::to_string(pid_.value) +
                                               " was taken by somebody else");
      }
      if (got == pid_.value) t.exit_status = status;
    }
    if (t.exit_status) return t.exit_status;
    if (Clock::now() >= deadline) return std::optional<int>();
    signals.pause(deadline);
  }
}

}  // namespace trapline::target
