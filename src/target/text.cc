#include "target/text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/fd.h"

namespace trapline::target {

std::string hex(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return "0x" + std::string(digits, end);
}

std::string task_path(Pid pid, Tid tid, std::string_view file) {
  std::string path = "/proc/" + std::to_string(pid.value) + "/task/" + std::to_string(tid.value);
  path += '/';
  path += file;
  return path;
}

Result<std::string> read_proc_file(const std::string& path) {
  const auto failed = [&](int err) -> Error {
    const auto code = err == ENOENT || err == ESRCH   ? ErrorCode::kTargetGone
                      : err == EACCES || err == EPERM ? ErrorCode::kPermission
                                                      : ErrorCode::kOs;
    return {code, "reading " + path + ": " + std::strerror(err), err};
  };
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed(errno);
  std::string text;
  std::size_t used = 0;
  for (;;) {
    if (text.size() - used < 16 * 1024) text.resize(text.size() * 2 + 32 * 1024);
    const ssize_t n = ::read(fd.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno);
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  text.resize(used);
  return text;
}

Result<std::string> read_task_file(Pid pid, Tid tid, std::string_view file) {
  auto text = read_proc_file(task_path(pid, tid, file));
  if (text || text.error().code() != ErrorCode::kTargetGone) return text;
  return tid.value == pid.value ? gone(pid) : gone_thread(tid);
}

Error gone(Pid pid) {
  return {ErrorCode::kTargetGone, "process " + std::to_string(pid.value) + " has ended"};
}

Error gone_thread(Tid tid) {
  return {ErrorCode::kTargetGone, "thread " + std::to_string(tid.value) + " has ended"};
}

Error call_error(Tid tid, std::string_view doing, int err) {
  std::string text = std::string(doing) + " thread " + std::to_string(tid.value) + ": ";
  if (err == ESRCH) return {ErrorCode::kTargetGone, text + "it has ended", err};
  return {ErrorCode::kOs, text + std::strerror(err), err};
}

}  // namespace trapline::target
