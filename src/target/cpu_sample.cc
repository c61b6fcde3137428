#include "target/cpu_sample.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/cursor.h"
#include "base/fd.h"
#include "target/process.h"
#include "target/text.h"

namespace trapline::target {

namespace {

constexpr std::size_t kRingPages = 64;  // a power of two; at 4,999 Hz a quarter of a second
constexpr std::size_t kMostNames = 1 << 16;

// The kernel's numbers for registers in samples (asm/perf_regs.h), in the order of the bits of
// sample_regs_user; without ds, es, fs and gs, which it refuses.
constexpr std::array kRegisters = {
    &::user_regs_struct::rax,    &::user_regs_struct::rbx, &::user_regs_struct::rcx,
    &::user_regs_struct::rdx,    &::user_regs_struct::rsi, &::user_regs_struct::rdi,
    &::user_regs_struct::rbp,    &::user_regs_struct::rsp, &::user_regs_struct::rip,
    &::user_regs_struct::eflags, &::user_regs_struct::cs,  &::user_regs_struct::ss,
    &::user_regs_struct::r8,     &::user_regs_struct::r9,  &::user_regs_struct::r10,
    &::user_regs_struct::r11,    &::user_regs_struct::r12, &::user_regs_struct::r13,
    &::user_regs_struct::r14,    &::user_regs_struct::r15,
};
constexpr std::uint64_t kRegisterMask = 0xff0fff;
static_assert(__builtin_popcountll(kRegisterMask) == kRegisters.size());

int open_event(const perf_event_attr& attributes, pid_t pid, int cpu) {
  return static_cast<int>(
      ::syscall(SYS_perf_event_open, &attributes, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC));
}

Error open_error(int err) {
  if (err == EACCES || err == EPERM) {
    return {ErrorCode::kPermission,
            "the system does not allow perf events here (kernel.perf_event_paranoid, CAP_PERFMON, "
            "or a seccomp filter)",
            err};
  }
  if (err == ENOSYS || err == ENOENT || err == EOPNOTSUPP)
    return {ErrorCode::kUnsupported, "the kernel has no perf events", err};
  if (err == ENODEV || err == EINVAL)
    return {ErrorCode::kUnsupported, "there is no such processor", err};
  return Error::os(err, "perf_event_open");
}

perf_event_attr attributes_for(const CpuSampler::Wishes& wishes) {
  perf_event_attr a{};
  a.size = sizeof(a);
  a.type = PERF_TYPE_SOFTWARE;
  a.config = PERF_COUNT_SW_CPU_CLOCK;
  a.sample_period = static_cast<std::uint64_t>(wishes.period.count());
  a.sample_type =
      PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_REGS_USER;
  a.sample_regs_user = kRegisterMask;
  a.disabled = 1;
  a.comm = 1;
  a.task = 1;
  a.sample_id_all = 1;
  a.use_clockid = 1;
  a.clockid = CLOCK_MONOTONIC;
  return a;
}

// One processor's ring.
class Ring {
 public:
  static Result<Ring> map(int fd) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    // What an ordinary user may lock is small: a smaller ring is better than none.
    for (std::size_t pages = kRingPages; pages != 0; pages /= 2) {
      const std::size_t size = (pages + 1) * page;
      void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (at != MAP_FAILED) return Ring(at, size, pages * page);
      if (errno != EPERM && errno != ENOMEM) break;
    }
    return Error::os(errno, "mapping a ring of perf events");
  }
  Ring(Ring&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), size_(other.size_), data_(other.data_) {}
  Ring& operator=(Ring&&) = delete;
  ~Ring() {
    if (at_ != nullptr) ::munmap(at_, size_);
  }

  // Calls `f` with each record: its header and the bytes behind it.
  template <typename F>
  void drain(F f) {
    auto* const page = static_cast<perf_event_mmap_page*>(at_);
    const std::uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    std::uint64_t tail = page->data_tail;
    std::vector<std::byte> bytes;
    while (head - tail >= sizeof(perf_event_header)) {
      perf_event_header header{};
      copy(tail, std::as_writable_bytes(std::span(&header, 1)));
      if (header.size < sizeof(header) || header.size > head - tail) break;
      bytes.resize(header.size - sizeof(header));
      copy(tail + sizeof(header), bytes);
      tail += header.size;
      f(header, std::span<const std::byte>(bytes));
    }
    __atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
  }

 private:
  Ring(void* at, std::size_t size, std::size_t data) : at_(at), size_(size), data_(data) {}

  void copy(std::uint64_t from, std::span<std::byte> to) const {
    const auto* const data = static_cast<const std::byte*>(at_) + (size_ - data_);
    const std::size_t start = from % data_;
    const std::size_t first = std::min(to.size(), data_ - start);
    std::memcpy(to.data(), data + start, first);
    std::memcpy(to.data() + first, data, to.size() - first);
  }

  void* at_;
  std::size_t size_;
  std::size_t data_;
};

// A record that somebody needs, with what orders it among those of other processors.
struct Happening {
  std::uint64_t time = 0;
  enum class Kind : std::uint8_t { kSample, kName, kFork, kEnd } kind = Kind::kSample;
  CpuSample sample;  // kName: pid, tid, name; kFork: and parent (a process or a thread); kEnd
  Tid maker;         // kFork: the thread that made it
};

bool in_user_mode(std::uint16_t misc) {
  const auto mode = misc & PERF_RECORD_MISC_CPUMODE_MASK;
  return mode == PERF_RECORD_MISC_USER || mode == PERF_RECORD_MISC_GUEST_USER;
}

std::optional<Happening> parse_sample(std::uint16_t misc, Cursor in) {
  Happening h;
  CpuSample& s = h.sample;
  const auto pc = in.read<std::uint64_t>();
  (in_user_mode(misc) ? s.user_pc : s.kernel_pc) = pc;
  // A task of another namespace is -1 or 0.
  s.pid = Pid{std::max(in.read<pid_t>(), 0)};
  s.tid = Tid{std::max(in.read<pid_t>(), 0)};
  h.time = s.time = in.read<std::uint64_t>();
  s.cpu = in.read<std::uint32_t>();
  in.skip(4);
  if (in.read<std::uint64_t>() != PERF_SAMPLE_REGS_ABI_NONE) {
    ::user_regs_struct registers{};
    for (const auto member : kRegisters) registers.*member = in.read<std::uint64_t>();
    registers.orig_rax = ~0ULL;  // not told
    s.registers = registers;
  }
  return in.failed() ? std::nullopt : std::optional(std::move(h));
}

// What sample_id_all puts behind the records that are no samples: tid, time, cpu.
constexpr std::size_t kTrailer = 24;

std::optional<Happening> parse_other(const perf_event_header& header,
                                     std::span<const std::byte> bytes) {
  if (bytes.size() < kTrailer) return std::nullopt;
  Happening h;
  Cursor in(bytes.first(bytes.size() - kTrailer));
  Cursor trailer(bytes.last(kTrailer));
  trailer.skip(8);
  h.time = trailer.read<std::uint64_t>();
  h.sample.pid = Pid{in.read<pid_t>()};
  if (header.type == PERF_RECORD_COMM) {
    h.kind = Happening::Kind::kName;
    h.sample.tid = Tid{in.read<pid_t>()};
    const auto text = in.read_bytes(in.remaining());
    const std::string_view name(reinterpret_cast<const char*>(text.data()), text.size());
    h.sample.name = name.substr(0, name.find('\0'));
    return h;
  }
  h.kind = header.type == PERF_RECORD_FORK ? Happening::Kind::kFork : Happening::Kind::kEnd;
  const Pid parent{in.read<pid_t>()};
  h.sample.tid = Tid{in.read<pid_t>()};
  h.maker = Tid{in.read<pid_t>()};
  if (parent != h.sample.pid) h.sample.parent = parent;
  return in.failed() ? std::nullopt : std::optional(std::move(h));
}

}  // namespace

std::vector<std::uint32_t> online_processors() {
  std::vector<std::uint32_t> online;
  const auto text = read_proc_file("/sys/devices/system/cpu/online");  // "0-3,5\n"
  const char* at = text ? text->data() : nullptr;
  const char* const end = text ? text->data() + text->size() : nullptr;
  while (at != end) {
    std::uint32_t first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{}) break;
    std::uint32_t last = first;
    if (parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    for (std::uint32_t cpu = first; cpu <= last; ++cpu) online.push_back(cpu);
    at = parsed.ptr;
    if (at != end) ++at;
  }
  if (online.empty()) {
    const long count = std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L);
    for (std::uint32_t cpu = 0; cpu < static_cast<std::uint32_t>(count); ++cpu)
      online.push_back(cpu);
  }
  return online;
}

struct CpuSampler::Clocks {
  struct Known {
    std::string name;
    Pid parent;
  };

  perf_event_attr attributes{};
  std::vector<Fd> events;
  std::map<std::uint32_t, int> leaders;  // by processor: the event that has the ring
  std::vector<Ring> rings;
  std::unordered_map<pid_t, Known> known;  // by thread
  std::uint64_t lost = 0;

  Result<> add(pid_t pid, std::uint32_t cpu) {
    int fd = open_event(attributes, pid, static_cast<int>(cpu));
    // Kernels before 5.13 do not know it; children's samples are then left out by their pid.
    if (fd < 0 && errno == EINVAL && attributes.inherit_thread) {
      attributes.inherit_thread = 0;
      fd = open_event(attributes, pid, static_cast<int>(cpu));
    }
    if (fd < 0 && errno == EACCES && !attributes.exclude_kernel && pid > 0) {
      attributes.exclude_kernel = 1;
      attributes.exclude_hv = 1;
      fd = open_event(attributes, pid, static_cast<int>(cpu));
    }
    if (fd < 0) return open_error(errno);
    events.emplace_back(fd);
    const auto [leader, first] = leaders.try_emplace(cpu, fd);
    if (!first) {
      if (::ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, leader->second) != 0)
        return Error::os(errno, "PERF_EVENT_IOC_SET_OUTPUT");
      return {};
    }
    TL_TRY_ASSIGN(Ring ring, Ring::map(fd));
    rings.push_back(std::move(ring));
    return {};
  }

  // A thread that one of those that have clocks makes gets its own from the kernel: so when no
  // unknown one is left, none will be missed.
  Result<> add_process(Pid pid, std::span<const std::uint32_t> cpus, std::set<pid_t>& added) {
    for (bool any = true; any;) {
      any = false;
      TL_TRY_ASSIGN(const std::vector<Tid> tasks, read_tasks(pid));
      for (const Tid tid : tasks) {
        if (!added.insert(tid.value).second) continue;
        any = true;
        for (const std::uint32_t cpu : cpus) {
          const Result<> done = add(tid.value, cpu);
          if (!done && done.error().os_errno() == ESRCH) break;  // it has ended
          if (!done) return done;
        }
      }
    }
    return {};
  }

  void take_record(const perf_event_header& header, std::span<const std::byte> bytes,
                   std::vector<Happening>& all) {
    std::optional<Happening> h;
    switch (header.type) {
      case PERF_RECORD_SAMPLE:
        h = parse_sample(header.misc, Cursor(bytes));
        break;
      case PERF_RECORD_COMM:
      case PERF_RECORD_FORK:
      case PERF_RECORD_EXIT:
        h = parse_other(header, bytes);
        break;
      case PERF_RECORD_LOST: {
        Cursor in(bytes);
        in.skip(8);
        lost += in.read<std::uint64_t>();
        return;
      }
      case PERF_RECORD_THROTTLE:
        ++lost;  // at least one: until the next tick of the kernel's no sample is taken
        return;
      default:
        return;
    }
    if (h) all.push_back(std::move(*h));
  }

  // Brings what is known of threads up to date, and says it of a sample's.
  void apply(Happening& h) {
    CpuSample& s = h.sample;
    switch (h.kind) {
      case Happening::Kind::kName:
        known[s.tid.value].name = s.name;
        return;
      case Happening::Kind::kFork: {
        Known fresh = look_up(s.parent.value != 0 ? s.parent : s.pid, h.maker);
        if (s.parent.value != 0) fresh.parent = s.parent;
        known[s.tid.value] = std::move(fresh);
        return;
      }
      case Happening::Kind::kEnd:
        known.erase(s.tid.value);
        return;
      case Happening::Kind::kSample:
        name(s);
        return;
    }
  }

  void name(CpuSample& s) {
    if (s.tid.value == 0) {
      // A task of another namespace, which we have no name for, has registers of user mode.
      if (!s.registers) s.name = "swapper/" + std::to_string(s.cpu);
      return;
    }
    const Known& known_of = look_up(s.pid, s.tid);
    s.name = known_of.name;
    s.parent = known_of.parent;
  }

  // The kernel tells of changes; what was there before is asked for.
  Known& look_up(Pid pid, Tid tid) {
    Known& entry = known[tid.value];
    if (!entry.name.empty()) return entry;
    if (const auto stat = read_stat(pid, tid)) entry = {stat->comm, stat->parent};
    return entry;
  }
};

CpuSampler::CpuSampler(std::unique_ptr<Clocks> clocks) : clocks_(std::move(clocks)) {}
CpuSampler::CpuSampler(CpuSampler&&) noexcept = default;
CpuSampler& CpuSampler::operator=(CpuSampler&&) noexcept = default;
CpuSampler::~CpuSampler() = default;

Result<CpuSampler> CpuSampler::machine(const Wishes& wishes) {
  auto clocks = std::make_unique<Clocks>();
  clocks->attributes = attributes_for(wishes);
  std::vector<std::uint32_t> cpus = online_processors();
  if (wishes.cpu) cpus = {*wishes.cpu};
  for (const std::uint32_t cpu : cpus) {
    const Result<> done = clocks->add(-1, cpu);
    // One that was taken offline just now.
    if (!done && done.error().os_errno() == ENODEV && !wishes.cpu) continue;
    if (!done) return done.error();
  }
  return CpuSampler(std::move(clocks));
}

Result<CpuSampler> CpuSampler::processes(std::span<const Pid> pids, Children children,
                                         const Wishes& wishes) {
  auto clocks = std::make_unique<Clocks>();
  clocks->attributes = attributes_for(wishes);
  clocks->attributes.inherit = 1;
  clocks->attributes.inherit_thread = children == Children::kLeftOut ? 1 : 0;
  std::vector<std::uint32_t> cpus = online_processors();
  if (wishes.cpu) cpus = {*wishes.cpu};
  std::set<pid_t> added;
  for (const Pid pid : pids) {
    const Result<> done = clocks->add_process(pid, cpus, added);
    if (!done && done.error().code() == ErrorCode::kTargetGone) continue;
    if (!done) return done.error();
  }
  if (clocks->events.empty())
    return Error(ErrorCode::kTargetGone, "none of the processes to be sampled lives");
  return CpuSampler(std::move(clocks));
}

Result<> CpuSampler::start() {
  for (const Fd& event : clocks_->events) {
    if (::ioctl(event.get(), PERF_EVENT_IOC_ENABLE, 0) != 0)
      return Error::os(errno, "PERF_EVENT_IOC_ENABLE");
  }
  return {};
}

std::vector<CpuSample> CpuSampler::take() {
  std::vector<Happening> all;
  for (Ring& ring : clocks_->rings) {
    ring.drain([&](const perf_event_header& header, std::span<const std::byte> bytes) {
      clocks_->take_record(header, bytes, all);
    });
  }
  std::ranges::stable_sort(all, {}, &Happening::time);
  std::vector<CpuSample> samples;
  for (Happening& h : all) {
    clocks_->apply(h);
    if (h.kind == Happening::Kind::kSample) samples.push_back(std::move(h.sample));
  }
  // Threads of which nobody told that they ended (in another namespace) must not pile up.
  if (clocks_->known.size() > kMostNames) clocks_->known.clear();
  return samples;
}

std::uint64_t CpuSampler::take_lost() { return std::exchange(clocks_->lost, 0); }

bool CpuSampler::reaches_kernel() const { return !clocks_->attributes.exclude_kernel; }

}  // namespace trapline::target
