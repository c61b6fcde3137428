#include "report/sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

Result<> ByteSink::reopen(const std::string&) {
  return Error(ErrorCode::kUnsupported, "this output goes to one place only");
}

// The descriptor is exchanged beneath the stream: whoever else holds the stream goes along.
Result<> FileSink::reopen(const std::string& path) {
  TL_TRY(flush());
  const int ours = ::fileno(file_);
  if (path.empty()) {
    if (first_ && ::dup2(first_.get(), ours) < 0) return Error::os(errno, "restoring the output");
    first_.reset();
    return {};
  }
  const Fd opened(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!opened) return Error::os(errno, "failed to freopen() \"" + path + "\"");
  if (!first_) first_ = Fd(::fcntl(ours, F_DUPFD_CLOEXEC, 0));
  if (!first_ || ::dup2(opened.get(), ours) < 0) return Error::os(errno, "redirecting the output");
  return {};
}

Result<> FileSink::truncate() {
  TL_TRY(flush());
  struct stat status{};
  const int ours = ::fileno(file_);
  if (::fstat(ours, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  if (::ftruncate(ours, 0) != 0 || ::lseek(ours, 0, SEEK_SET) < 0)
    return Error::os(errno, "truncating the output");
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
