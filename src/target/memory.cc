#include "target/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "target/text.h"

namespace trapline::target {
namespace {

constexpr std::size_t kPage = 4096;

Error memory_error(Pid pid, std::string_view doing, RemoteAddr at, int err) {
  if (err == ESRCH) return gone(pid);
  return {err == EPERM || err == EACCES ? ErrorCode::kPermission : ErrorCode::kOs,
          std::string(doing) + " memory of process " + std::to_string(pid.value) + " at " +
              hex(at) + ": " + std::strerror(err),
          err};
}

}  // namespace

Result<Memory> Memory::open(Pid pid, Tid tid) {
  Fd fd(::open(task_path(pid, tid, "mem").c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    const int err = errno == ENOENT ? ESRCH : errno;
    return memory_error(pid, "opening", RemoteAddr(0), err);
  }
  return Memory(pid, std::move(fd));
}

Result<std::size_t> Memory::read_through_file(RemoteAddr from, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = ::pread(fd_.get(), to.data() + done, to.size() - done,
                              static_cast<off_t>(from.value() + done));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return gone(pid_);  // no mm any more
    if (n < 0) {
      if (errno == EIO || errno == EFAULT) break;
      return memory_error(pid_, "reading", from, errno);
    }
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Result<std::size_t> Memory::read_some(RemoteAddr from, std::span<std::byte> to) const {
  if (tid_.value == 0) return read_through_file(from, to);
  std::size_t done = 0;
  while (done < to.size()) {
    const ::iovec local{to.data() + done, to.size() - done};
    const ::iovec remote{reinterpret_cast<void*>(from.value() + done), to.size() - done};
    const ssize_t n = ::process_vm_readv(tid_.value, &local, 1, &remote, 1, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    // EFAULT: nothing there, or a mapping without read permission, which the file reads all the
    // same. Others (the call is filtered, the thread has ended): the file decides.
    TL_TRY_ASSIGN(const std::size_t more, read_through_file(from + done, to.subspan(done)));
    return done + more;
  }
  return done;
}

Result<> Memory::read(RemoteAddr from, std::span<std::byte> to) const {
  TL_TRY_ASSIGN(const std::size_t n, read_some(from, to));
  if (n != to.size()) return memory_error(pid_, "reading", from + n, EFAULT);
  return {};
}

Result<> Memory::read_all(std::span<const ReadRequest> requests) const {
  std::size_t done = 0;
  std::vector<::iovec> local, remote;
  while (done < requests.size()) {
    const auto batch =
        requests.subspan(done, std::min<std::size_t>(requests.size() - done, IOV_MAX));
    local.clear();
    remote.clear();
    std::size_t bytes = 0;
    for (const ReadRequest& r : batch) {
      local.push_back({r.to.data(), r.to.size()});
      remote.push_back({reinterpret_cast<void*>(r.from.value()), r.to.size()});
      bytes += r.to.size();
    }
    const ssize_t n = tid_.value == 0 ? -1
                                      : ::process_vm_readv(tid_.value, local.data(), local.size(),
                                                           remote.data(), remote.size(), 0);
    if (n < 0 || static_cast<std::size_t>(n) != bytes) {
      for (const ReadRequest& r : batch) TL_TRY(read(r.from, r.to));
    }
    done += batch.size();
  }
  return {};
}

Result<std::string> Memory::read_string(RemoteAddr from, std::size_t limit) const {
  std::string out;
  while (out.size() < limit) {
    // Up to the end of the page: the next may not be mapped.
    const std::size_t room =
        std::min(kPage - (from.value() + out.size()) % kPage, limit - out.size());
    const std::size_t old = out.size();
    out.resize(old + room);
    TL_TRY(read(from + old, std::as_writable_bytes(std::span(out).subspan(old))));
    const auto nul = out.find('\0', old);
    if (nul != out.npos) {
      out.resize(nul);
      break;
    }
  }
  return out;
}

Result<> Memory::write(RemoteAddr to, std::span<const std::byte> bytes) {
  if (by_words_) return poke(to, bytes);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(to.value() + done));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return gone(pid_);
    if (n < 0 && tid_.value == 0)
      return memory_error(pid_, "writing", to + done, errno == EIO ? EFAULT : errno);
    if (n < 0) return poke(to + done, bytes.subspan(done));
    done += static_cast<std::size_t>(n);
  }
  return {};
}

// Word by word; the first and last word keep the bytes around.
Result<> Memory::poke(RemoteAddr to, std::span<const std::byte> bytes) {
  const RemoteAddr end = to + bytes.size();
  for (RemoteAddr word = to - to.value() % 8; word < end; word += 8) {
    errno = 0;
    long value = ::ptrace(PTRACE_PEEKDATA, tid_.value, word.value(), nullptr);
    if (errno != 0) return memory_error(pid_, "writing", word, errno == EIO ? EFAULT : errno);
    const RemoteAddr first = std::max(word, to);
    const RemoteAddr last = std::min(word + 8, end);
    std::memcpy(reinterpret_cast<std::byte*>(&value) + (first - word), bytes.data() + (first - to),
                last - first);
    if (::ptrace(PTRACE_POKEDATA, tid_.value, word.value(), value) != 0) {
      return memory_error(pid_, "writing", word, errno == EIO ? EFAULT : errno);
    }
  }
  return {};
}

}  // namespace trapline::target
