#include "report/sink.h"

#include <cerrno>

namespace trapline::report {

Result<> FileSink::fail(int os_errno) {
  failed_ = Error::os(os_errno, "failed to write to " + name_);
  std::clearerr(file_);
  return *failed_;
}

Result<> FileSink::write(std::string_view bytes) {
  if (failed_) return *failed_;
  while (!bytes.empty()) {
    errno = 0;
    const std::size_t written = std::fwrite(bytes.data(), 1, bytes.size(), file_);
    bytes.remove_prefix(written);
    if (bytes.empty()) break;
    if (errno != EINTR) return fail(errno);
    std::clearerr(file_);
  }
  return {};
}

Result<> FileSink::flush() {
  if (failed_) return *failed_;
  while (std::fflush(file_) != 0) {
    if (errno != EINTR) return fail(errno);
    std::clearerr(file_);
  }
  return {};
}

}  // namespace trapline::report
