// give_back_text: after probes are removed, the private copies of patched text pages equal the file
// again, and one MADV_DONTNEED makes the process share the page cache's pages as before.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "base/fd.h"
#include "target/code_region.h"
#include "target/text.h"

namespace trapline::target {
namespace {

constexpr std::uint64_t kPage = 4096;

std::string map_files_path(Pid pid, const AddressRange& range) {
  const auto digits = [](RemoteAddr a) { return hex(a).substr(2); };
  return "/proc/" + std::to_string(pid.value) + "/map_files/" + digits(range.start) + "-" +
         digits(range.end);
}

// The mapped file itself; invalid if it cannot be had for sure.
Fd open_mapped(Pid pid, const Mapping& m) {
  Fd fd(::open(map_files_path(pid, m.range).c_str(), O_RDONLY | O_CLOEXEC));  // needs privileges
  if (fd) return fd;
  if (m.deleted) return {};
  fd = Fd(::open(("/proc/" + std::to_string(pid.value) + "/root" + m.path).c_str(),
                 O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct ::stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_dev != m.device || info.st_ino != m.inode)
    return {};
  return fd;
}

bool equals_file(const Memory& memory, RemoteAddr page, const Fd& file, off_t offset) {
  std::array<std::byte, kPage> here{}, there{};
  if (!memory.read(page, here)) return false;
  return ::pread(file.get(), there.data(), kPage, offset) == static_cast<ssize_t>(kPage) &&
         here == there;
}

}  // namespace

Result<std::uint64_t> give_back_text(RemoteCalls& calls, std::span<const AddressRange> pages) {
  StoppedProcess& process = calls.process();
  TL_TRY_ASSIGN(const auto maps, process.maps());
  std::uint64_t given = 0;
  const Mapping* opened = nullptr;
  Fd file;
  for (const AddressRange& range : pages) {
    RemoteAddr run = range.start;  // [run, page): equal pages not given back yet
    for (RemoteAddr page = range.start;; page += kPage) {
      bool equal = false;
      if (page < range.end) {
        const Mapping* m = find_mapping(maps, page);
        if (m != nullptr && m != opened)
          file = m->is_file() ? open_mapped(process.pid(), *m) : Fd();
        opened = m;
        equal = m != nullptr && !m->shared && !m->writable && file &&
                equals_file(process.memory(), page, file,
                            static_cast<off_t>(m->offset.value() + (page - m->range.start)));
      }
      if (equal) continue;
      if (page > run) {
        const auto done =
            calls.call("madvise", SYS_madvise, run.value(), page - run, MADV_DONTNEED);
        if (!done && done.error().code() != ErrorCode::kOs) return done.error();
        if (done) given += page - run;  // locked memory refuses
      }
      run = page + kPage;
      if (page >= range.end) break;
    }
  }
  return given;
}

}  // namespace trapline::target
