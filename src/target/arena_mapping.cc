#include "target/arena_mapping.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, Linux 6.3
constexpr int kSealExec = 0x20;      // F_SEAL_EXEC, which that flag sets

// A string in the target that will do as the memfd's name.
Result<RemoteAddr> find_name(StoppedProcess& process) {
  using namespace std::string_view_literals;
  TL_TRY_ASSIGN(const auto maps, process.maps());
  constexpr auto kVdsoName = "linux-vdso.so.1\0"sv;
  for (const Mapping& m : maps) {
    if (m.path != "[vdso]") continue;
    std::string bytes(m.range.size(), '\0');
    const auto n =
        process.memory().read_some(m.range.start, std::as_writable_bytes(std::span(bytes)));
    const auto at = n ? std::string_view(bytes).find(kVdsoName) : bytes.npos;
    if (at != bytes.npos) return m.range.start + at;
  }
  // The empty string: the padding of an ELF header (e_ident[9..15]).
  for (const Mapping& m : maps) {
    if (!m.is_file() || m.offset.value() != 0 || !m.readable) continue;
    const auto head = process.memory().read_value<std::array<unsigned char, 16>>(m.range.start);
    if (head && (*head)[0] == 0x7f && (*head)[1] == 'E' && (*head)[15] == 0)
      return m.range.start + 15;
  }
  return Error(ErrorCode::kUnsupported,
               "process " + std::to_string(process.pid().value) + " has no ELF image mapped");
}

std::string limit_text(Pid pid, int resource) {
  const auto limit = read_limit(pid, resource);
  return limit && *limit != RLIM_INFINITY ? std::to_string(*limit) : "unlimited";
}

// A descriptor in the target, closed there on every path.
class RemoteFd {
 public:
  RemoteFd(RemoteCalls& calls, std::uint64_t fd) : calls_(calls), fd_(fd) {}
  RemoteFd(const RemoteFd&) = delete;
  RemoteFd& operator=(const RemoteFd&) = delete;
  ~RemoteFd() {
    if (open_) (void)close();
  }
  std::uint64_t get() const { return fd_; }
  Result<> close() {
    open_ = false;
    TL_TRY(calls_.call("close", SYS_close, fd_));
    return {};
  }

 private:
  RemoteCalls& calls_;
  std::uint64_t fd_;
  bool open_ = true;
};

// Room for one descriptor more than the process may have. It is stopped meanwhile, so it notices
// nothing.
class RoomForDescriptor {
 public:
  explicit RoomForDescriptor(Pid pid) : pid_(pid) {
    if (::prlimit(pid_.value, RLIMIT_NOFILE, nullptr, &before_) != 0) return;
    rlimit wider = before_;
    ++wider.rlim_cur;
    wider.rlim_max = std::max(wider.rlim_max, wider.rlim_cur);  // that is a privilege
    there_is_ = ::prlimit(pid_.value, RLIMIT_NOFILE, &wider, nullptr) == 0;
  }
  RoomForDescriptor(const RoomForDescriptor&) = delete;
  RoomForDescriptor& operator=(const RoomForDescriptor&) = delete;
  ~RoomForDescriptor() {
    if (there_is_) ::prlimit(pid_.value, RLIMIT_NOFILE, &before_, nullptr);
  }
  bool there_is() const { return there_is_; }

 private:
  Pid pid_;
  rlimit before_{};
  bool there_is_ = false;
};

Result<std::uint64_t> create_memfd(RemoteCalls& calls, RemoteAddr name) {
  auto fd = calls.call("memfd_create", SYS_memfd_create, name.value(),
                       MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  if (fd || fd.error().os_errno() != EINVAL) return fd;
  return calls.call("memfd_create", SYS_memfd_create, name.value(),
                    MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

Result<std::uint64_t> make_memfd(RemoteCalls& calls) {
  const Pid pid = calls.process().pid();
  TL_TRY_ASSIGN(const RemoteAddr name, find_name(calls.process()));
  auto fd = create_memfd(calls, name);
  if (!fd && fd.error().os_errno() == EMFILE) {
    const RoomForDescriptor room(pid);
    if (room.there_is()) return create_memfd(calls, name);
    return Error(ErrorCode::kOs,
                 "process " + std::to_string(pid.value) +
                     " has no free file descriptor (its limit is " +
                     limit_text(pid, RLIMIT_NOFILE) +
                     "), and mapping shared memory into it needs one for a moment: raise the limit "
                     "with prlimit --nofile",
                 EMFILE);
  }
  return fd;
}

// The target's descriptor as one of ours, checked to be a fresh memfd.
Result<Fd> take_over(StoppedProcess& process, Tid tid, std::uint64_t remote_fd) {
  const Fd& pidfd = process.tracees().pidfd;
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd.get(), remote_fd, 0)));
  if (!fd) {
    fd = Fd(::open(task_path(process.pid(), tid, "fd/" + std::to_string(remote_fd)).c_str(),
                   O_RDWR | O_CLOEXEC));
  }
  if (!fd) {
    if (errno == ENOENT || errno == ESRCH) return gone(process.pid());
    return Error::os(
        errno, "taking over the shared memory of process " + std::to_string(process.pid().value));
  }
  struct ::stat info{};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != 0 ||
      info.st_nlink != 0 || seals < 0 || (seals & ~kSealExec) != 0) {
    return Error(ErrorCode::kOs, "process " + std::to_string(process.pid().value) +
                                     " changed its shared memory while it was being set up");
  }
  return fd;
}

Error allocation_error(int err, std::uint64_t size) {
  return Error::os(err, "allocating " + std::to_string(size) + " bytes of shared memory");
}

Result<> size_and_seal(const Fd& fd, std::uint64_t size) {
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < size) {
    return Error(ErrorCode::kOs,
                 "trapline's own file size limit (ulimit -f) is " + std::to_string(limit.rlim_cur) +
                     " bytes, and " + std::to_string(size) + " bytes of shared memory are needed",
                 EFBIG);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return allocation_error(errno, size);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Error::os(errno, "sealing the shared memory");
  }
  return {};
}

Error mmap_error(const Error& error, Pid pid, std::uint64_t size) {
  const std::string name = "process " + std::to_string(pid.value);
  if (error.os_errno() == ENOMEM) {
    return {ErrorCode::kOs,
            name + " has no room for " + std::to_string(size) +
                " bytes more (its limit on address "
                "space is " +
                limit_text(pid, RLIMIT_AS) +
                "): use a smaller bufsize, or raise the "
                "limit with prlimit --as",
            ENOMEM};
  }
  if (error.os_errno() == EAGAIN) {
    return {ErrorCode::kOs,
            name + " locks all its memory (mlockall), and " + std::to_string(size) +
                " bytes more are over its limit (RLIMIT_MEMLOCK is " +
                limit_text(pid, RLIMIT_MEMLOCK) + ")",
            EAGAIN};
  }
  return error;
}

constexpr std::size_t kReadsAtOnce = 1024;          // IOV_MAX
constexpr std::uint64_t kFaultAround = 16 * kPage;  // mm/memory.c, fault_around_bytes

}  // namespace

ArenaMapping::ArenaMapping(ArenaMapping&& other) noexcept
    : file_(std::move(other.file_)),
      local_(std::exchange(other.local_, {})),
      range_(std::exchange(other.range_, {})) {}
ArenaMapping& ArenaMapping::operator=(ArenaMapping&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(local_, other.local_);
  std::swap(range_, other.range_);
  return *this;
}
ArenaMapping::~ArenaMapping() {
  if (!local_.empty()) ::munmap(local_.data(), local_.size());
}

Result<ArenaMapping> ArenaMapping::create(RemoteCalls& calls, std::uint64_t size) {
  StoppedProcess& process = calls.process();
  if (size == 0 || size > std::numeric_limits<std::int64_t>::max() / 2) {
    return Error(ErrorCode::kBadInput, "an arena of " + std::to_string(size) + " bytes");
  }
  size = (size + kPage - 1) & ~(kPage - 1);
  TL_TRY_ASSIGN(const std::uint64_t number, make_memfd(calls));
  RemoteFd remote_fd(calls, number);
  TL_TRY_ASSIGN(Fd fd, take_over(process, calls.tid(), remote_fd.get()));
  TL_TRY(size_and_seal(fd, size));

  ArenaMapping arena;
  void* local = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (local == MAP_FAILED)
    return Error::os(errno, "mapping " + std::to_string(size) + " bytes of shared memory");
  arena.local_ = {static_cast<std::byte*>(local), size};
  ::madvise(local, size, MADV_DONTDUMP);

  // PROT_NONE first: under mlockall(MCL_FUTURE) a readable mapping would be populated at once.
  process.refresh_maps();
  auto mapped = calls.call("mmap", SYS_mmap, 0, size, PROT_NONE, MAP_SHARED, remote_fd.get(), 0);
  if (!mapped) return mmap_error(mapped.error(), process.pid(), size);
  arena.range_ = {RemoteAddr(*mapped), RemoteAddr(*mapped) + size};
  const auto finish = [&]() -> Result<> {
    TL_TRY(remote_fd.close());
    TL_TRY(calls.call("munlock", SYS_munlock, *mapped, size));
    TL_TRY(calls.call("mprotect", SYS_mprotect, *mapped, size, PROT_READ | PROT_WRITE));
    const auto advised = calls.call("madvise", SYS_madvise, *mapped, size, MADV_DONTDUMP);
    if (!advised && advised.error().code() != ErrorCode::kOs) return advised.error();
    return {};
  };
  if (auto finished = finish(); !finished) {
    (void)arena.remove(calls);
    return finished.error();
  }
  arena.file_ = std::move(fd);
  return arena;
}

Result<ArenaMapping> ArenaMapping::create_here(std::uint64_t size) {
  size = (size + kPage - 1) / kPage * kPage;
  void* const local = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (local == MAP_FAILED)
    return Error::os(errno, "mapping " + std::to_string(size) + " bytes of memory");
  ArenaMapping arena;
  arena.local_ = {static_cast<std::byte*>(local), size};
  return arena;
}

Result<> ArenaMapping::allocate() {
  const std::uint64_t size = local_.size();
  const Fd file = std::move(file_);
  while (::fallocate(file.get(), 0, 0, static_cast<off_t>(size)) != 0) {
    if (errno != EINTR) return allocation_error(errno, size);
  }
  return {};
}

// Pages that were allocated and never touched are entered by none of a neighbour's faults: the
// tracer's side comes first. A read in the target then enters the other pages of its 64 KiB too,
// writable. Before Linux 5.14, or where the read is refused or the target has gone, nothing is
// entered.
void ArenaMapping::enter(Pid pid, std::uint64_t begin, std::uint64_t end) const {
  begin = begin / kPage * kPage;
  if (::madvise(local_.data() + begin, end - begin, MADV_POPULATE_WRITE) != 0) return;
  std::array<std::byte, kReadsAtOnce> bytes{};
  std::array<iovec, kReadsAtOnce> pages;
  const std::uint64_t last = range_.start.value() + end;
  for (std::uint64_t at = range_.start.value() + begin; at < last;) {
    std::size_t count = 0;
    while (count < kReadsAtOnce && at < last) {
      pages[count++] = {reinterpret_cast<void*>(at), 1};
      at = (at / kFaultAround + 1) * kFaultAround;
    }
    const iovec to{bytes.data(), count};
    if (::process_vm_readv(pid.value, &to, 1, pages.data(), count, 0) < 0) return;
  }
}

ArenaMapping ArenaMapping::adopt(AddressRange remote) {
  ArenaMapping arena;
  arena.range_ = remote;
  return arena;
}

Result<> ArenaMapping::remove(RemoteCalls& calls) {
  if (range_.size() == 0) return {};
  calls.process().refresh_maps();
  TL_TRY(calls.call("munmap", SYS_munmap, range_.start.value(), range_.size()));
  range_ = {};
  return {};
}

}  // namespace trapline::target
