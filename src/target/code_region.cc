#include "target/code_region.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "target/text.h"

namespace trapline::target {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kReach =
    (1ull << 31) - 64 * 1024;  // of a jmp rel32, with room for both instructions' lengths
constexpr std::uint64_t kHighest = 0x7ffffffff000;
constexpr std::uint64_t kStackGap = 1 << 20;  // stack_guard_gap
constexpr int kTries = 8;

// The range in which the heap may grow: from its end, or from where it will start, to the next
// mapping.
AddressRange heap_growth(std::span<const Mapping> maps, const PlacementLimits& limits) {
  RemoteAddr end = limits.heap_start;
  for (const Mapping& m : maps) {
    if (m.path == "[heap]") end = std::max(end, m.range.end);
  }
  if (end.value() == 0) return {};
  for (const Mapping& m : maps) {
    if (m.range.start >= end) return {end, m.range.start};
  }
  return {end, RemoteAddr(kHighest)};
}

// The range into which the main stack may grow.
AddressRange stack_growth(std::span<const Mapping> maps, const PlacementLimits& limits) {
  for (const Mapping& m : maps) {
    if (m.path != "[stack]" && !m.range.contains(limits.start_stack)) continue;
    const std::uint64_t top = m.range.end.value();
    const std::uint64_t room = limits.stack_limit > top ? top : limits.stack_limit;
    const std::uint64_t down = std::min(top, room + kStackGap);
    return {RemoteAddr(limits.stack_limit == RLIM_INFINITY ? 0 : top - down), m.range.start};
  }
  return {};
}

std::uint64_t distance(AddressRange a, AddressRange b) {
  if (a.end <= b.start) return b.start - a.end;
  if (b.end <= a.start) return a.start - b.end;
  return 0;
}

}  // namespace

Result<PlacementLimits> read_placement_limits(Pid pid) {
  TL_TRY_ASSIGN(const Tid tid, live_thread(pid));
  TL_TRY_ASSIGN(const auto stat, read_stat(pid, tid));
  PlacementLimits limits;
  limits.heap_start = stat.start_brk;
  limits.start_stack = stat.start_stack;
  TL_TRY_ASSIGN(limits.stack_limit, read_limit(pid, RLIMIT_STACK));
  if (const auto text = read_proc_file("/proc/sys/vm/mmap_min_addr"); text) {
    limits.lowest =
        std::max<std::uint64_t>(limits.lowest, std::strtoull(text->c_str(), nullptr, 10));
  }
  return limits;
}

std::optional<AddressRange> find_code_gap(std::span<const Mapping> maps,
                                          const PlacementLimits& limits, AddressRange text,
                                          std::uint64_t size) {
  size = (size + kPage - 1) & ~(kPage - 1);
  const std::uint64_t low =
      std::max(limits.lowest, text.end.value() > kReach ? text.end.value() - kReach : 0);
  const std::uint64_t high = std::min(kHighest, text.start.value() + kReach);
  // What is taken, in order: the mappings with a page around each, and where heap and stack may
  // grow.
  std::vector<AddressRange> taken;
  for (const Mapping& m : maps) {
    const std::uint64_t below = m.range.start.value() > kPage ? m.range.start.value() - kPage : 0;
    taken.push_back({RemoteAddr(below), m.range.end + kPage});
  }
  taken.push_back(heap_growth(maps, limits));
  taken.push_back(stack_growth(maps, limits));
  taken.push_back({RemoteAddr(kHighest), RemoteAddr(~0ull)});
  std::ranges::sort(taken);

  std::optional<AddressRange> best;
  const auto consider = [&](std::uint64_t start) {
    const AddressRange range{RemoteAddr(start), RemoteAddr(start + size)};
    if (!best || distance(range, text) < distance(*best, text)) best = range;
  };
  std::uint64_t free_from = 0;
  for (const AddressRange& t : taken) {
    if (free_from >= high) break;
    // Within reach, and whole pages.
    const std::uint64_t from = (std::max(free_from, low) + kPage - 1) & ~(kPage - 1);
    const std::uint64_t to = std::min(t.start.value(), high) & ~(kPage - 1);
    if (to > from && to - from >= size) {
      consider(from);
      consider(to - size);
    }
    free_from = std::max(free_from, t.end.value());
  }
  return best;
}

Result<CodeRegion> CodeRegion::allocate(RemoteCalls& calls, AddressRange text, std::uint64_t size) {
  StoppedProcess& process = calls.process();
  const std::string name = "process " + std::to_string(process.pid().value);
  size = (size + kPage - 1) & ~(kPage - 1);
  TL_TRY_ASSIGN(const PlacementLimits limits, read_placement_limits(process.pid()));
  for (int i = 0; i < kTries; ++i) {
    TL_TRY_ASSIGN(const auto maps, process.maps());
    const auto gap = find_code_gap(maps, limits, text, size);
    if (!gap) {
      return Error(ErrorCode::kNotFound, name + " has no free " + std::to_string(size) +
                                             " bytes within 2 GiB of its code at " +
                                             hex(text.start));
    }
    process.refresh_maps();
    const auto got = calls.call("mmap", SYS_mmap, gap->start.value(), size, PROT_READ | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, ~0ull, 0);
    if (got && RemoteAddr(*got) == gap->start) return CodeRegion(*gap);
    if (got) {  // a kernel before 4.17 takes the address as a hint
      TL_TRY(calls.call("munmap", SYS_munmap, *got, size));
      continue;
    }
    const int err = got.error().os_errno();
    if (err == EACCES || err == EPERM) {
      return Error(ErrorCode::kPermission,
                   name +
                       " may not have new executable memory (SELinux execmem or a like rule): "
                       "nothing can be "
                       "mapped into it",
                   err);
    }
    if (err == ENOMEM) {
      return Error(ErrorCode::kOs,
                   name + " has no room for " + std::to_string(size) +
                       " bytes of code (RLIMIT_AS, or too many mappings: vm.max_map_count)",
                   err);
    }
    if (err != EEXIST) return got.error();
  }
  return Error(ErrorCode::kTimeout, name + " changes its mappings too fast: try again");
}

Result<> CodeRegion::write(StoppedProcess& process, std::uint64_t offset,
                           std::span<const std::byte> bytes) {
  if (offset > range_.size() || bytes.size() > range_.size() - offset) {
    return Error(ErrorCode::kInternal, "a write beyond the end of a code region");
  }
  return process.memory().write(range_.start + offset, bytes);
}

Result<> CodeRegion::remove(RemoteCalls& calls) {
  if (range_.size() == 0) return {};
  calls.process().refresh_maps();
  TL_TRY(calls.call("munmap", SYS_munmap, range_.start.value(), range_.size()));
  range_ = {};
  return {};
}

Result<ForkPage> ForkPage::create(RemoteCalls& calls) {
  StoppedProcess& process = calls.process();
  process.refresh_maps();
  TL_TRY_ASSIGN(const std::uint64_t at,
                calls.call("mmap", SYS_mmap, 0, kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, ~0ull, 0));
  ForkPage page{RemoteAddr(at)};
  const auto fill = [&]() -> Result<> {
    TL_TRY(calls.call("madvise", SYS_madvise, at, kPage, MADV_WIPEONFORK));
    const auto advised = calls.call("madvise", SYS_madvise, at, kPage, MADV_DONTDUMP);
    if (!advised && advised.error().code() != ErrorCode::kOs) return advised.error();
    TL_TRY(process.memory().write_value<std::uint32_t>(page.address_, 1));
    TL_TRY(calls.call("mprotect", SYS_mprotect, at, kPage, PROT_READ));
    return {};
  };
  if (auto filled = fill(); !filled) {
    (void)page.remove(calls);
    return filled.error();
  }
  return page;
}

Result<> ForkPage::remove(RemoteCalls& calls) {
  if (address_.value() == 0) return {};
  calls.process().refresh_maps();
  TL_TRY(calls.call("munmap", SYS_munmap, address_.value(), kPage));
  address_ = {};
  return {};
}

Result<> register_membarrier(RemoteCalls& calls) {
  TL_TRY(calls.call("membarrier", SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
  return {};
}

Result<> membarrier_global_expedited() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
    return Error::os(errno, "membarrier");
  return {};
}

}  // namespace trapline::target
