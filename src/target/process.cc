#include "target/process.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>

#include "base/cursor.h"
#include "target/text.h"

namespace trapline::target {
namespace {

// include/linux/sched.h
constexpr std::uint64_t kPfIoWorker = 0x10;      // io_uring's workers since Linux 5.12
constexpr std::uint64_t kPfUserWorker = 0x4000;  // all such workers since Linux 6.4
constexpr std::uint64_t kPfKernelThread = 0x00200000;

// Reads fields of a text that the kernel wrote; what is not there is 0 or "".
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  std::string_view word() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t'))
      rest_.remove_prefix(1);
    return until(rest_.find_first_of(" \t\n"));
  }
  template <typename T>
  T number(int base = 10) {
    return parse<T>(word(), base);
  }
  char letter() {
    const auto w = word();
    return w.empty() ? '?' : w.front();
  }
  // Up to `separator`, which is skipped too.
  std::string_view field(char separator) {
    const auto out = until(rest_.find(separator));
    if (!rest_.empty()) rest_.remove_prefix(1);
    return out;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }
  void skip(int words) {
    while (words-- > 0) word();
  }

  template <typename T>
  static T parse(std::string_view text, int base = 10) {
    T value{};
    std::from_chars(text.data(), text.data() + text.size(), value, base);
    return value;
  }

 private:
  std::string_view until(std::size_t n) {
    const auto out = rest_.substr(0, n);
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest_;
};

// "7f10-7f20 r-xp 00001000 08:01 123   /usr/lib/x.so (deleted)"
Mapping parse_mapping(std::string_view line) {
  Fields fields(line);
  Mapping m;
  m.range.start = RemoteAddr(Fields::parse<std::uint64_t>(fields.field('-'), 16));
  m.range.end = RemoteAddr(fields.number<std::uint64_t>(16));
  const auto permissions = fields.word();
  if (permissions.size() >= 4) {
    m.readable = permissions[0] == 'r';
    m.writable = permissions[1] == 'w';
    m.executable = permissions[2] == 'x';
    m.shared = permissions[3] == 's';
  }
  m.offset = FileOffset(fields.number<std::uint64_t>(16));
  const auto device = fields.word();
  const auto colon = device.find(':');
  if (colon != device.npos) {
    m.device = makedev(Fields::parse<unsigned>(device.substr(0, colon), 16),
                       Fields::parse<unsigned>(device.substr(colon + 1), 16));
  }
  m.inode = fields.number<ino_t>();
  auto path = fields.rest();
  path.remove_prefix(std::min(path.find_first_not_of(' '), path.size()));
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) {
    m.deleted = true;
    path.remove_suffix(kDeleted.size());
  }
  m.path = path;
  return m;
}

// As /proc/PID/limits calls it; empty: not one that somebody asks for.
std::string_view limit_name(int resource) {
  switch (resource) {
    case RLIMIT_AS:
      return "Max address space";
    case RLIMIT_FSIZE:
      return "Max file size";
    case RLIMIT_MEMLOCK:
      return "Max locked memory";
    case RLIMIT_NOFILE:
      return "Max open files";
    case RLIMIT_STACK:
      return "Max stack size";
    default:
      return {};
  }
}

std::string process_name(Pid pid) {
  return "process " + std::to_string(pid.value) + " (" + command_name(pid) + ")";
}

Result<std::string> read_link(const std::string& path) {
  std::array<char, 4096> buffer;
  const ssize_t n = ::readlink(path.c_str(), buffer.data(), buffer.size());
  if (n < 0) {
    const int err = errno;
    const auto code = err == ENOENT || err == ESRCH   ? ErrorCode::kTargetGone
                      : err == EACCES || err == EPERM ? ErrorCode::kPermission
                                                      : ErrorCode::kOs;
    return Error(code, "reading " + path + ": " + std::strerror(err), err);
  }
  return std::string(buffer.data(), static_cast<std::size_t>(n));
}

}  // namespace

bool TaskStat::is_kernel_thread() const { return (flags & kPfKernelThread) != 0; }
bool TaskStat::is_user_worker() const { return (flags & (kPfUserWorker | kPfIoWorker)) != 0; }

Result<std::vector<Mapping>> read_maps(Pid pid) {
  auto text = read_proc_file("/proc/" + std::to_string(pid.value) + "/maps");
  if (!text || text->empty()) {
    TL_TRY_ASSIGN(const Tid tid, live_thread(pid));
    text = read_task_file(pid, tid, "maps");
  }
  if (!text) return text.error();
  if (text->empty()) return gone(pid);
  std::vector<Mapping> maps;
  Fields lines(*text);
  while (!lines.empty()) maps.push_back(parse_mapping(lines.field('\n')));
  std::ranges::sort(maps, {}, &Mapping::range);  // [vsyscall] comes last anyway
  return maps;
}

const Mapping* find_mapping(std::span<const Mapping> maps, RemoteAddr address) {
  const auto it =
      std::ranges::upper_bound(maps, address, {}, [](const Mapping& m) { return m.range.start; });
  if (it == maps.begin()) return nullptr;
  const Mapping& m = *std::prev(it);
  return m.range.contains(address) ? &m : nullptr;
}

Result<std::vector<Tid>> read_tasks(Pid pid) {
  const std::string path = "/proc/" + std::to_string(pid.value) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
  if (!dir) {
    if (errno == ENOENT || errno == ESRCH) return gone(pid);
    return Error::os(errno, "reading " + path);
  }
  std::vector<Tid> tasks;
  while (const dirent* entry = ::readdir(dir.get())) {
    const auto tid = Fields::parse<pid_t>(entry->d_name);
    if (tid > 0) tasks.push_back(Tid{tid});
  }
  if (tasks.empty()) return gone(pid);
  std::ranges::sort(tasks);
  return tasks;
}

Result<TaskStat> read_stat(Pid pid, Tid tid) {
  TL_TRY_ASSIGN(const std::string text, read_task_file(pid, tid, "stat"));
  // "12 (any text, even with ) in it) R 1 ...": the last ')' ends the name.
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == text.npos || close == text.npos || close < open) return gone(pid);
  TaskStat stat;
  stat.tid = tid;
  stat.comm = text.substr(open + 1, close - open - 1);
  Fields fields(std::string_view(text).substr(close + 1));
  stat.state = fields.letter();                                   // field 3
  stat.parent = Pid{fields.number<pid_t>()};                      // 4
  stat.group = Pid{fields.number<pid_t>()};                       // 5
  fields.skip(3);                                                 // 6..8
  stat.flags = fields.number<std::uint64_t>();                    // 9
  fields.skip(8);                                                 // 10..17
  stat.priority = fields.number<std::int64_t>();                  // 18
  fields.skip(3);                                                 // 19..21
  stat.start_time = fields.number<std::uint64_t>();               // 22
  fields.skip(3);                                                 // 23..25
  stat.start_code = RemoteAddr(fields.number<std::uint64_t>());   // 26
  fields.skip(1);                                                 // 27
  stat.start_stack = RemoteAddr(fields.number<std::uint64_t>());  // 28
  fields.skip(10);                                                // 29..38
  stat.processor = fields.number<std::uint32_t>();                // 39
  fields.skip(7);                                                 // 40..46
  stat.start_brk = RemoteAddr(fields.number<std::uint64_t>());    // 47
  return stat;
}

Result<std::chrono::nanoseconds> read_run_time(Pid pid, Tid tid) {
  TL_TRY_ASSIGN(const std::string text, read_task_file(pid, tid, "schedstat"));
  Fields fields(text);
  return std::chrono::nanoseconds(fields.number<std::int64_t>());
}

Result<TaskStatus> read_status(Pid pid, Tid tid) {
  TL_TRY_ASSIGN(const std::string text, read_task_file(pid, tid, "status"));
  TaskStatus status;
  status.seccomp_filters = -1;
  Fields lines(text);
  while (!lines.empty()) {
    Fields line(lines.field('\n'));
    const auto key = line.field(':');
    if (key == "Name")
      status.name = line.rest().empty() ? "" : line.rest().substr(1);
    else if (key == "State")
      status.state = line.letter();
    else if (key == "Tgid")
      status.tgid = Pid{line.number<pid_t>()};
    else if (key == "TracerPid")
      status.tracer = Pid{line.number<pid_t>()};
    else if (key == "Uid") {
      status.uid = line.number<uid_t>();
      status.euid = line.number<uid_t>();
      status.suid = line.number<uid_t>();
    } else if (key == "Gid") {
      status.gid = line.number<gid_t>();
      status.egid = line.number<gid_t>();
      status.sgid = line.number<gid_t>();
    } else if (key == "NStgid") {
      status.pid_namespaces = 0;
      while (!line.word().empty()) ++status.pid_namespaces;
    } else if (key == "Seccomp")
      status.seccomp = line.number<int>();
    else if (key == "Seccomp_filters")
      status.seccomp_filters = line.number<int>();
    else if (key == "CapPrm")
      status.permitted_capabilities = line.number<std::uint64_t>(16);
    else if (key == "CapEff")
      status.effective_capabilities = line.number<std::uint64_t>(16);
    else if (key == "SigBlk")
      status.blocked_signals = line.number<std::uint64_t>(16);
    else if (key == "SigIgn")
      status.ignored_signals = line.number<std::uint64_t>(16);
    else if (key == "SigCgt")
      status.caught_signals = line.number<std::uint64_t>(16);
    else if (key == "x86_Thread_features")
      status.shadow_stack = line.rest().find("shstk") != line.rest().npos;
  }
  return status;
}

Result<AuxiliaryVector> read_auxiliary_vector(Pid pid) {
  TL_TRY_ASSIGN(const Tid tid, live_thread(pid));
  TL_TRY_ASSIGN(const std::string bytes, read_task_file(pid, tid, "auxv"));
  if (bytes.empty()) return gone(pid);
  AuxiliaryVector out;
  Cursor cursor(std::as_bytes(std::span(bytes)));
  while (cursor.remaining() >= sizeof(Elf64_auxv_t)) {
    const auto entry = cursor.read<Elf64_auxv_t>();
    const std::uint64_t value = entry.a_un.a_val;
    switch (entry.a_type) {
      case AT_ENTRY:
        out.entry = RemoteAddr(value);
        break;
      case AT_BASE:
        out.interpreter_base = RemoteAddr(value);
        break;
      case AT_PHDR:
        out.program_headers = RemoteAddr(value);
        break;
      case AT_PHNUM:
        out.program_header_count = value;
        break;
      case AT_SYSINFO_EHDR:
        out.vdso = RemoteAddr(value);
        break;
      case AT_SECURE:
        out.secure = value != 0;
        break;
      default:
        break;
    }
  }
  return out;
}

Result<Tid> live_thread(Pid pid) {
  TL_TRY_ASSIGN(const auto tasks, read_tasks(pid));
  const auto is_live = [&](Tid tid) {
    const auto stat = read_stat(pid, tid);
    return stat && !stat->is_dead();
  };
  if (is_live(Tid{pid.value})) return Tid{pid.value};
  for (const Tid tid : tasks) {
    if (is_live(tid)) return tid;
  }
  return gone(pid);
}

std::string command_name(Pid pid) {
  auto text = read_proc_file("/proc/" + std::to_string(pid.value) + "/comm");
  if (!text) return "?";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

Result<std::string> executable_path(Pid pid) {
  TL_TRY_ASSIGN(const Tid tid, live_thread(pid));
  return read_link(task_path(pid, tid, "exe"));
}

// From the file, as prlimit() asks for rights that a tracer need not have: the same user's ids, or
// CAP_SYS_RESOURCE, which containers take from their root.
Result<std::uint64_t> read_limit(Pid pid, int resource) {
  const std::string_view name = limit_name(resource);
  TL_TRY_ASSIGN(const std::string text, read_task_file(pid, Tid{pid.value}, "limits"));
  const std::size_t at = name.empty() ? text.npos : text.find(name);
  if (at == text.npos) {
    return Error(ErrorCode::kUnsupported,
                 "the limits of process " + std::to_string(pid.value) + " cannot be read");
  }
  Fields fields(std::string_view(text).substr(at + name.size()));
  const std::string_view value = fields.word();
  if (value == "unlimited") return std::uint64_t{RLIM_INFINITY};
  return Fields::parse<std::uint64_t>(value, 10);
}

Result<Fd> open_pidfd(Pid pid) {
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid.value, 0)));
  if (fd) return fd;
  if (errno == ESRCH) return gone(pid);
  return Error::os(errno, "pidfd_open of " + process_name(pid));
}

Result<ProcessIdentity> identify(Pid pid) {
  TL_TRY_ASSIGN(const auto stat, read_stat(pid));
  return ProcessIdentity{pid, stat.start_time};
}

}  // namespace trapline::target
