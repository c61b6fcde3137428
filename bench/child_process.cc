#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace trapline::bench {

namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds left(Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::string& preload) {
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
  // Room for all that a tracer prints while nobody reads: it must not come to wait for us.
  ::fcntl(from[1], F_SETPIPE_SZ, 1 << 20);
  input_ = Fd(to[1]);
  output_ = Fd(from[0]);
  errors_ = Fd(::memfd_create("errors", MFD_CLOEXEC));
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(to[0], STDIN_FILENO);
    ::dup2(from[1], STDOUT_FILENO);
    ::dup2(errors_.get(), STDERR_FILENO);
    if (!preload.empty()) ::setenv("LD_PRELOAD", preload.c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  // A pipe takes a line of this length whole. A child that has gone is noticed when its answer is
  // missing.
  if (::write(input_.get(), text.data(), text.size()) < 0) return;
}

std::optional<std::string> ChildProcess::read_line(std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  for (;;) {
    if (const std::size_t newline = pending_.find('\n'); newline != std::string::npos) {
      std::string line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return line;
    }
    pollfd waited{output_.get(), POLLIN, 0};
    const auto rest = left(end);
    if (rest.count() <= 0 || ::poll(&waited, 1, static_cast<int>(rest.count())) <= 0)
      return std::nullopt;
    char buffer[65536];
    const ssize_t n = ::read(output_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    pending_.append(buffer, static_cast<std::size_t>(n));
  }
}

std::optional<std::string> ChildProcess::read_until(const std::string& prefix,
                                                    std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  for (;;) {
    auto line = read_line(left(end));
    if (!line || line->starts_with(prefix)) return line;
  }
}

void ChildProcess::signal(int number) {
  if (pid_ > 0) ::kill(pid_, number);
}

int ChildProcess::wait(std::chrono::milliseconds limit) {
  input_.reset();
  const Clock::time_point end = Clock::now() + limit;
  while (auto line = read_line(left(end))) rest_ += *line + "\n";
  for (;;) {
    int status = 0;
    const pid_t done = ::waitpid(pid_, &status, WNOHANG);
    if (done == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (left(end).count() <= 0) return -1;
    ::poll(nullptr, 0, 5);
  }
}

std::string ChildProcess::errors() {
  std::string text;
  char buffer[4096];
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(errors_.get(), buffer, sizeof buffer, at);
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    at += n;
  }
}

}  // namespace trapline::bench
