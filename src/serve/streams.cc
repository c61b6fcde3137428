#include "serve/streams.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

namespace trapline::serve {

namespace {

constexpr int kFirstFree = 3;

// Those from 3 on that are open.
Result<std::set<int>> open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return Error::os(errno, "/proc/self/fd");
  std::set<int> fds;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);
    if (fd >= kFirstFree && fd != ::dirfd(folder.get())) fds.insert(fd);
  }
  return fds;
}

Result<Fd> move_away(int fd) {
  Fd moved(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFree));
  if (!moved) return Error::os(errno, "standard input and output");
  return moved;
}

}  // namespace

Result<Streams> Streams::take(Protocol protocol) {
  Streams streams;
  // Missing ones first, so that nothing else lands there.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::dup(fd)) {
    if (fd < kFirstFree) continue;
    ::close(fd);
    break;
  }
  TL_TRY_ASSIGN(streams.inherited_, open_descriptors());
  for (const int fd : streams.inherited_) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (protocol == Protocol::kStandardStreams) {
    TL_TRY_ASSIGN(streams.input_, move_away(STDIN_FILENO));
    TL_TRY_ASSIGN(streams.output_, move_away(STDOUT_FILENO));
  }
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error::os(errno, "/dev/null");
  if (::dup2(null.get(), STDIN_FILENO) < 0 || ::dup2(null.get(), STDOUT_FILENO) < 0)
    return Error::os(errno, "/dev/null");
  return streams;
}

Result<std::array<int, 3>> Streams::for_command(
    const std::optional<std::array<int, 3>>& wanted) const {
  if (!wanted) return std::array<int, 3>{STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  for (const int fd : *wanted) {
    if (fd >= kFirstFree && !inherited_.contains(fd)) {
      return Error(ErrorCode::kBadInput, "stdio: " + std::to_string(fd) +
                                             " is no descriptor that serve was started with, or "
                                             "it has been handed over already");
    }
  }
  return *wanted;
}

void Streams::hand_over(const std::array<int, 3>& fds) {
  for (const int fd : fds) {
    if (inherited_.erase(fd) != 0) ::close(fd);
  }
}

}  // namespace trapline::serve
