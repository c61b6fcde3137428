#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "target/arena_mapping.h"
#include "target/attach.h"
#include "target/code_region.h"
#include "target/stopped.h"
#include "target/test_child.h"
#include "target/thread_pointer.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;
using testing::Shared;
using testing::TestChild;

int wait_for_stop(Shared& s) {
  ++s.ready;
  while (s.stop == 0) {
    ::usleep(200);
    ++s.counters[0];
  }
  return 0;
}

std::size_t count_fds(Pid pid) {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& e :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid.value) + "/fd")) {
    ++n;
  }
  return n;
}

// Kilobytes locked into memory.
Result<std::uint64_t> read_locked(Pid pid) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid.value) + "/status").c_str(), "r");
  char line[256];
  std::uint64_t kilobytes = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "VmLck: %lu kB", &kilobytes) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return kilobytes;
}

template <typename F>
Result<> with_calls(Pid pid, F f) {
  TL_TRY_ASSIGN(auto attachment, Attachment::seize(pid));
  TL_TRY_ASSIGN(auto stopped, attachment.stop());
  {
    TL_TRY_ASSIGN(auto calls, RemoteCalls::begin(stopped));
    TL_TRY(f(calls));
    TL_TRY(calls.end());
  }
  return stopped.detach();
}

#define ASSERT_OK(expression)                             \
  do {                                                    \
    const auto ok_result_ = (expression);                 \
    ASSERT_TRUE(ok_result_) << ok_result_.error().text(); \
  } while (false)

TEST(Memory, ReadsAndWrites) {
  static std::uint64_t word = 0x1122334455667788;
  static char text[] = "some text";
  static const std::uint64_t constant = 5;
  char* hidden = static_cast<char*>(
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  hidden[0] = 'h';
  ::mprotect(hidden, 4096, PROT_NONE);
  TestChild child([](Shared& s) {
    ++s.ready;
    while (s.stop == 0) ::usleep(100);
    return word == 0x1122334455667799 && *const_cast<const volatile std::uint64_t*>(&constant) == 6
               ? 0
               : 1;
  });
  ASSERT_TRUE(child.await_ready());
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    Memory& memory = calls.process().memory();
    const auto at = [](const void* p) { return RemoteAddr(reinterpret_cast<std::uint64_t>(p)); };
    TL_TRY_ASSIGN(const auto value, memory.read_value<std::uint64_t>(at(&word)));
    EXPECT_EQ(value, 0x1122334455667788u);
    TL_TRY_ASSIGN(const auto string, memory.read_string(at(text), 100));
    EXPECT_EQ(string, "some text");
    TL_TRY_ASSIGN(const auto cut, memory.read_string(at(text), 4));
    EXPECT_EQ(cut, "some");
    // No read permission: through the file.
    TL_TRY_ASSIGN(const auto h, memory.read_value<char>(at(hidden)));
    EXPECT_EQ(h, 'h');
    std::array<std::byte, 8192> two_pages{};
    TL_TRY(memory.read(at(hidden), two_pages));
    EXPECT_EQ(memory.read_value<char>(RemoteAddr(8)).error().os_errno(), EFAULT);
    TL_TRY_ASSIGN(const auto none, memory.read_some(RemoteAddr(8), two_pages));
    EXPECT_EQ(none, 0u);
    std::vector<std::uint8_t> bytes(3000);
    std::vector<ReadRequest> requests;
    for (auto& b : bytes) requests.push_back({at(&word), std::as_writable_bytes(std::span(&b, 1))});
    TL_TRY(memory.read_all(requests));
    EXPECT_TRUE(std::ranges::all_of(bytes, [](auto b) { return b == 0x88; }));
    TL_TRY(memory.write_value(at(&word), std::uint8_t{0x99}));
    TL_TRY(memory.write_value(at(&constant), std::uint64_t{6}));  // read-only there
    EXPECT_FALSE(memory.write_value(RemoteAddr(8), 1));
    return {};
  }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(constant, 5u);
  ::munmap(hidden, 8192);
}

TEST(Memory, WritesWordByWord) {
  static unsigned char bytes[64];
  static const std::uint64_t constant = 5;
  TestChild child([](Shared& s) {
    ++s.ready;
    while (s.stop == 0) ::usleep(100);
    for (unsigned i = 0; i < sizeof bytes; ++i) {
      if (bytes[i] != (i >= 3 && i < 3 + 21 ? 0x40 + i : 0)) return 1;
    }
    return *const_cast<const volatile std::uint64_t*>(&constant) == 6 ? 0 : 2;
  });
  ASSERT_TRUE(child.await_ready());
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(auto memory, Memory::open(child.pid()));
    memory.write_by_words();
    memory.set_stopped_thread(calls.tid());
    std::array<unsigned char, 21> text{};
    for (unsigned i = 0; i < text.size(); ++i) text[i] = static_cast<unsigned char>(0x43 + i);
    TL_TRY(memory.write(RemoteAddr(reinterpret_cast<std::uint64_t>(bytes) + 3),
                        std::as_bytes(std::span(text))));
    EXPECT_EQ(memory.write_value(RemoteAddr(16), 1).error().os_errno(), EFAULT);
    return memory.write_value(RemoteAddr(reinterpret_cast<std::uint64_t>(&constant)),
                              std::uint64_t{6});
  }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Arena, SeenOnBothSidesAndRemoved) {
  TestChild child(wait_for_stop);
  ASSERT_TRUE(child.await_ready());
  const std::size_t fds = count_fds(child.pid());
  const std::size_t own_fds = count_fds(Pid{::getpid()});
  const auto maps_before = read_maps(child.pid());
  std::optional<ArenaMapping> arena;
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(arena, ArenaMapping::create(calls, (1 << 20) + 1));
    TL_TRY(arena->allocate());
    EXPECT_EQ(arena->local().size(), (1u << 20) + 4096);
    EXPECT_EQ(arena->remote_range().size(), arena->local().size());
    std::memcpy(arena->local().data() + 5000, "hello", 5);
    TL_TRY_ASSIGN(const auto text, calls.process().memory().read_string(arena->remote() + 5000, 5));
    EXPECT_EQ(text, "hello");
    TL_TRY(calls.process().memory().write_value(arena->remote() + (1 << 20), 4711));
    int value = 0;
    std::memcpy(&value, arena->local().data() + (1 << 20), sizeof value);
    EXPECT_EQ(value, 4711);
    TL_TRY_ASSIGN(const auto maps, calls.process().maps());
    const Mapping* m = find_mapping(maps, arena->remote());
    EXPECT_TRUE(m != nullptr && m->readable && m->writable && !m->executable && m->shared);
    return {};
  }));
  EXPECT_EQ(count_fds(child.pid()), fds);
  EXPECT_EQ(count_fds(Pid{::getpid()}), own_fds);
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) { return arena->remove(calls); }));
  EXPECT_EQ(static_cast<char>(arena->local()[5000]), 'h');
  const auto maps_after = read_maps(child.pid());
  ASSERT_TRUE(maps_before && maps_after);
  EXPECT_EQ(maps_before->size(), maps_after->size());
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

// Bytes of a mapping that the process's page tables hold.
std::uint64_t resident(Pid pid, AddressRange range) {
  std::ifstream smaps("/proc/" + std::to_string(pid.value) + "/smaps");
  char start[32];
  std::snprintf(start, sizeof start, "%lx-", range.start.value());
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(start)) here = true;
    if (here && line.starts_with("Rss:")) return std::stoull(line.substr(4)) * 1024;
  }
  return 0;
}

TEST(Arena, EnteredPagesCostTheTargetHardlyAFault) {
  TestChild child(wait_for_stop);
  ASSERT_TRUE(child.await_ready());
  constexpr std::uint64_t kSize = 5 << 20;  // more than one call's worth of pages
  std::optional<ArenaMapping> arena;
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(arena, ArenaMapping::create(calls, kSize));
    return {};
  }));
  EXPECT_EQ(resident(child.pid(), arena->remote_range()), 0u);
  ASSERT_OK(arena->allocate());
  EXPECT_EQ(resident(child.pid(), arena->remote_range()), 0u);
  arena->enter(child.pid(), 0, kSize / 2);
  EXPECT_LT(resident(child.pid(), arena->remote_range()), kSize / 100 * 52);
  arena->enter(child.pid(), kSize / 2, kSize);
  // The kernel leaves out a page here and there.
  EXPECT_GT(resident(child.pid(), arena->remote_range()), kSize / 100 * 98);
  EXPECT_TRUE(std::ranges::all_of(arena->local(), [](std::byte b) { return b == std::byte{0}; }));
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) { return arena->remove(calls); }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Arena, TargetCannotTruncateIt) {
  TestChild child(wait_for_stop);
  ASSERT_TRUE(child.await_ready());
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(const auto arena, ArenaMapping::create(calls, 1 << 16));
    const std::string path = "/proc/" + std::to_string(child.pid().value) + "/map_files/" + [&] {
      char text[64];
      std::snprintf(text, sizeof text, "%lx-%lx", arena.remote_range().start.value(),
                    arena.remote_range().end.value());
      return std::string(text);
    }();
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd) {
      EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
      EXPECT_EQ(errno, EPERM);
    }
    return {};
  }));
}

TEST(Arena, LimitsOfTheTargetGiveClearErrors) {
  struct Case {
    const char* text;
    void (*limit)();
    bool ok;
  };
  const Case cases[] = {
      {"no free file descriptor",
       [] {
         const ::rlimit none{3, 3};
         ::setrlimit(RLIMIT_NOFILE, &none);
         while (::dup(0) >= 0) {
         }
       },
       false},
      {"address space",
       [] {
         const ::rlimit little{1 << 20, 1 << 20};
         ::setrlimit(RLIMIT_AS, &little);
       },
       false},
      {"",
       [] {
         const ::rlimit none{0, 0};
         ::setrlimit(RLIMIT_FSIZE, &none);
       },
       true},
  };
  for (const Case& c : cases) {
    TestChild child([&](Shared& s) {
      c.limit();
      return wait_for_stop(s);
    });
    ASSERT_TRUE(child.await_ready());
    const std::size_t fds = count_fds(child.pid());
    const auto result = with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
      TL_TRY(ArenaMapping::create(calls, 8 << 20));
      return {};
    });
    EXPECT_EQ(result.has_value(), c.ok) << c.text;
    if (!result) {
      EXPECT_EQ(result.error().code(), ErrorCode::kOs);
      EXPECT_NE(result.error().text().find(c.text), std::string::npos) << result.error().text();
    }
    EXPECT_EQ(count_fds(child.pid()), fds);
    const auto count = child.shared().counters[0].load();
    EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] > count; }));
    child.shared().stop = 1;
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST(Arena, LockedTargetIsNotPopulated) {
  TestChild child([](Shared& s) {
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
    return wait_for_stop(s);
  });
  if (!child.await_ready()) GTEST_SKIP() << "mlockall is not allowed here";
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(const auto before, read_locked(child.pid()));
    TL_TRY_ASSIGN(const auto arena, ArenaMapping::create(calls, 32 << 20));
    TL_TRY_ASSIGN(const auto after, read_locked(child.pid()));
    EXPECT_LT(after, before + 1024);
    return {};
  }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

// mov $1234,%eax; ret
constexpr std::array<unsigned char, 6> kReturn1234{0xb8, 0xd2, 0x04, 0, 0, 0xc3};

TEST(CodeRegion, NearTextExecutableAndRemoved) {
  TestChild child([](Shared& s) {
    ++s.ready;
    while (s.counters[1] == 0) ::usleep(100);
    const auto f = reinterpret_cast<int (*)()>(s.counters[1].load());
    s.counters[2] = static_cast<std::uint64_t>(f());
    while (s.stop == 0) ::usleep(100);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  const auto maps = read_maps(child.pid());
  ASSERT_TRUE(maps);
  std::vector<CodeRegion> regions;
  for (const std::uint64_t anchor :
       {reinterpret_cast<std::uint64_t>(&kReturn1234), reinterpret_cast<std::uint64_t>(&::fopen)}) {
    const Mapping* m = find_mapping(*maps, RemoteAddr(anchor));
    ASSERT_NE(m, nullptr);
    ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
      TL_TRY_ASSIGN(auto region, CodeRegion::allocate(calls, m->range, 100'000));
      EXPECT_EQ(region.range().size(), 102'400u);
      const auto low = std::min(region.range().start, m->range.start);
      const auto high = std::max(region.range().end, m->range.end);
      EXPECT_LT(high - low, 1ull << 31);
      EXPECT_FALSE(
          region.write(calls.process(), 102'400 - 5, std::as_bytes(std::span(kReturn1234))));
      TL_TRY(region.write(calls.process(), 64, std::as_bytes(std::span(kReturn1234))));
      regions.push_back(region);
      return {};
    }));
  }
  child.shared().counters[1] = (regions[0].range().start + 64).value();
  EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[2] == 1234; }));
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    for (auto& r : regions) TL_TRY(r.remove(calls));
    return {};
  }));
  const auto after = read_maps(child.pid());
  ASSERT_TRUE(after);
  EXPECT_EQ(after->size(), maps->size());
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(CodeRegion, UnderRefuseExecGain) {
  TestChild child([](Shared& s) {
    constexpr int kSetMdwe = 65;
    if (::prctl(kSetMdwe, 1, 0, 0, 0) != 0) return 77;
    return wait_for_stop(s);
  });
  if (!TestChild::eventually([&] {
        return child.shared().ready > 0 || ::waitpid(child.pid().value, nullptr, WNOHANG) != 0;
      }) ||
      child.shared().ready == 0) {
    child.taken();
    GTEST_SKIP() << "no PR_SET_MDWE in this kernel";
  }
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(const auto maps, calls.process().maps());
    const AddressRange text =
        find_mapping(maps, RemoteAddr(reinterpret_cast<std::uint64_t>(&wait_for_stop)))->range;
    TL_TRY_ASSIGN(auto region, CodeRegion::allocate(calls, text, 4096));
    TL_TRY(region.write(calls.process(), 0, std::as_bytes(std::span(kReturn1234))));
    TL_TRY(ArenaMapping::create(calls, 4096));
    return region.remove(calls);
  }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

Mapping mapping(std::uint64_t start, std::uint64_t end, std::string path = "") {
  Mapping m;
  m.range = {RemoteAddr(start), RemoteAddr(end)};
  m.path = std::move(path);
  return m;
}

TEST(CodeGap, NeverAboveTheHeapNorBelowTheStack) {
  // A program at its traditional address: the room above its heap is forbidden, that below the
  // program is not.
  const std::vector<Mapping> maps{mapping(0x400000, 0x800000, "/bin/x"),
                                  mapping(0x900000, 0xa00000, "[heap]"),
                                  mapping(0x7f0000000000, 0x7f0000200000, "/lib/libc.so.6"),
                                  mapping(0x7ffffff00000, 0x7ffffff20000, "[stack]")};
  PlacementLimits limits{RemoteAddr(0x900000), 8 << 20, RemoteAddr(0x7ffffff10000)};
  const AddressRange text{RemoteAddr(0x400000), RemoteAddr(0x500000)};
  std::vector<Mapping> with_vsyscall = maps;
  with_vsyscall.push_back(mapping(0xffffffffff600000, 0xffffffffff601000, "[vsyscall]"));
  auto gap = find_code_gap(maps, limits, text, 0x10000);
  ASSERT_TRUE(gap);
  EXPECT_EQ(gap->end, RemoteAddr(0x3ff000));
  // Larger than what is below: only the space between the program's end and the heap's start is
  // left, too small here.
  EXPECT_FALSE(find_code_gap(maps, limits, text, 0x800000));
  gap = find_code_gap(maps, limits, text, 0xf0000);
  ASSERT_TRUE(gap);
  EXPECT_LE(gap->end, RemoteAddr(0x3ff000));
  EXPECT_FALSE(find_code_gap(with_vsyscall, limits, text, 0x800000));
  // No heap yet: its start is known.
  const std::vector<Mapping> no_heap{maps[0], maps[2], maps[3]};
  EXPECT_FALSE(find_code_gap(no_heap, limits, text, 0x800000));
  // Near the stack.
  const AddressRange near_stack{RemoteAddr(0x7fffffd00000), RemoteAddr(0x7fffffd10000)};
  std::vector<Mapping> with_library = maps;
  with_library.insert(with_library.end() - 1, mapping(0x7fffffd00000, 0x7fffffd10000, "/lib/x"));
  with_library.push_back(mapping(0x7ffffff20000, 0x7ffffffff000, "[vvar]"));
  gap = find_code_gap(with_library, limits, near_stack, 0x10000);
  ASSERT_TRUE(gap);
  EXPECT_LE(gap->end, RemoteAddr(0x7ffffff20000 - (8 << 20) - (1 << 20)));
  limits.stack_limit = RLIM_INFINITY;
  EXPECT_FALSE(find_code_gap({with_library.data() + 2, 4}, limits, near_stack, 0x10000));
}

TEST(CodeGap, IsWithinReachAndFree) {
  std::minstd_rand random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Mapping> maps;
    std::uint64_t at = 0x550000000000;
    for (int i = 0; i < 40; ++i) {
      at += (random() % 64) * 4096 * (random() % 3 == 0 ? 4096 : 1);
      const std::uint64_t size = (1 + random() % 512) * 4096;
      maps.push_back(mapping(at, at + size));
      at += size;
    }
    maps.push_back(mapping(0xffffffffff600000, 0xffffffffff601000, "[vsyscall]"));
    const AddressRange text = maps[random() % (maps.size() - 1)].range;
    const std::uint64_t size = (1 + random() % 1024) * 4096;
    const auto gap = find_code_gap(maps, {}, text, size);
    ASSERT_TRUE(gap);
    EXPECT_EQ(gap->size(), size);
    EXPECT_EQ(gap->start.value() % 4096, 0u);
    for (const Mapping& m : maps) EXPECT_FALSE(m.range.overlaps(*gap));
    EXPECT_LT(std::max(gap->end, text.end) - std::min(gap->start, text.start), 1ull << 31);
  }
}

TEST(ForkPage, ReadsZeroInAForkedChild) {
  TestChild child([](Shared& s) {
    ++s.ready;
    while (s.counters[1] == 0) ::usleep(100);
    const volatile auto* word = reinterpret_cast<const std::uint32_t*>(s.counters[1].load());
    const std::uint32_t here = *word;
    const pid_t forked = ::fork();
    if (forked == 0) ::_exit(static_cast<int>(100 + *word));
    int status = 0;
    ::waitpid(forked, &status, 0);
    s.counters[2] = here * 1000 + static_cast<std::uint64_t>(WEXITSTATUS(status));
    while (s.stop == 0) ::usleep(100);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  std::optional<ForkPage> page;
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    TL_TRY_ASSIGN(page, ForkPage::create(calls));
    return {};
  }));
  child.shared().counters[1] = page->address().value();
  EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[2] != 0; }));
  EXPECT_EQ(child.shared().counters[2], 1100u);
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) { return page->remove(calls); }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Membarrier, IsRegisteredInTheTarget) {
  TestChild child([](Shared& s) {
    ++s.ready;
    while (s.stop == 0) ::usleep(100);
    // PRIVATE_EXPEDITED is not registered; asking what is (Linux 6.3) tells.
    const long state = ::syscall(SYS_membarrier, 1 << 9, 0, 0);
    if (state < 0) return 77;
    return (state & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 ||
                   (state & MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0
               ? 0
               : 1;
  });
  ASSERT_TRUE(child.await_ready());
  ASSERT_OK(with_calls(child.pid(), [](RemoteCalls& calls) { return register_membarrier(calls); }));
  EXPECT_TRUE(membarrier_global_expedited());
  child.shared().stop = 1;
  const int status = WEXITSTATUS(child.wait());
  if (status == 77) GTEST_SKIP() << "this kernel does not tell registrations";
  EXPECT_EQ(status, 0);
}

std::uint64_t private_dirty(Pid pid, RemoteAddr at) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid.value) + "/smaps").c_str(), "r");
  char line[512];
  std::uint64_t start = 0, end = 0, kilobytes = 0, found = ~0ull;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    std::uint64_t a = 0, b = 0;
    if (std::sscanf(line, "%lx-%lx ", &a, &b) == 2) start = a, end = b;
    if (std::sscanf(line, "Private_Dirty: %lu kB", &kilobytes) == 1 && at.value() >= start &&
        at.value() < end) {
      found = kilobytes;
    }
  }
  if (file != nullptr) std::fclose(file);
  return found;
}

TEST(GiveBackText, OnlyPagesThatEqualTheFile) {
  TestChild child(wait_for_stop);
  ASSERT_TRUE(child.await_ready());
  const auto maps = read_maps(child.pid());
  ASSERT_TRUE(maps);
  const Mapping* libc = find_mapping(*maps, RemoteAddr(reinterpret_cast<std::uint64_t>(&::qsort)));
  ASSERT_NE(libc, nullptr);
  const RemoteAddr first = libc->range.start + 4096 * 8;
  ASSERT_OK(with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
    Memory& memory = calls.process().memory();
    // Touches the first byte of six pages; puts all but the third back.
    std::array<std::byte, 6> old{};
    for (std::size_t i = 0; i < 6; ++i) {
      TL_TRY_ASSIGN(old[i], memory.read_value<std::byte>(first + i * 4096));
      TL_TRY(memory.write_value(first + i * 4096, std::byte{0x90}));
    }
    EXPECT_EQ(private_dirty(child.pid(), first), 24u);
    for (std::size_t i = 0; i < 6; ++i) {
      if (i != 2) TL_TRY(memory.write_value(first + i * 4096, old[i]));
    }
    const AddressRange range{first, first + 6 * 4096};
    TL_TRY_ASSIGN(const std::uint64_t given, give_back_text(calls, std::span(&range, 1)));
    if (old[2] != std::byte{0x90}) {
      EXPECT_EQ(given, 5u * 4096);
      EXPECT_EQ(private_dirty(child.pid(), first), 4u);
    }
    TL_TRY(memory.write_value(first + 2 * 4096, old[2]));
    return {};
  }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(ThreadPointer, OffsetOfTheThreadId) {
  TestChild child([](Shared& s) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&s] {
        ++s.ready;
        while (s.stop == 0) ::usleep(1000);
      });
    }
    for (auto& t : threads) t.join();
    return 0;
  });
  ASSERT_TRUE(child.await_ready(4));
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  auto stopped = attachment->stop();
  ASSERT_TRUE(stopped);
  const auto pointers = read_thread_pointers(*stopped);
  ASSERT_TRUE(pointers);
  EXPECT_EQ(pointers->threads.size(), 5u);
  EXPECT_TRUE(pointers->all_ready());
  for (const auto& e : pointers->threads) EXPECT_TRUE(e.self_pointer);
  ASSERT_NE(pointers->tid_offset, 0u);
  // What libc itself calls the thread's id: a robust check, since no other word may change with the
  // thread.
  for (const auto& e : pointers->threads) {
    const auto id = stopped->memory().read_value<pid_t>(e.pointer + pointers->tid_offset);
    ASSERT_TRUE(id);
    EXPECT_EQ(*id, e.tid.value);
  }
  ASSERT_TRUE(stopped->detach());
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(ThreadPointer, OfASingleThread) {
  TestChild child(wait_for_stop);
  ASSERT_TRUE(child.await_ready());
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  auto stopped = attachment->stop();
  ASSERT_TRUE(stopped);
  const auto pointers = read_thread_pointers(*stopped);
  ASSERT_TRUE(pointers);
  EXPECT_NE(pointers->tid_offset, 0u);
}

// The tracer dies at any moment of a whole cycle; the target never notices.
TEST(Mappings, TracerKilledMeanwhile) {
  TestChild child([](Shared& s) {
    std::thread other([&s] {
      ++s.ready;
      while (s.stop == 0) ++s.counters[1];
    });
    const int rc = wait_for_stop(s);
    other.join();
    return rc;
  });
  ASSERT_TRUE(child.await_ready(2));
  std::minstd_rand random(7);
  const auto maps = read_maps(Pid{::getpid()});
  const AddressRange text =
      find_mapping(*maps, RemoteAddr(reinterpret_cast<std::uint64_t>(&::qsort)))->range;
  std::uint64_t rounds = 0;
  for (int i = 0; i < 60; ++i) {
    TestChild tracer([&](Shared& s) {
      ++s.ready;
      for (;;) {
        const auto result = with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
          TL_TRY_ASSIGN(auto arena, ArenaMapping::create(calls, 1 << 16));
          TL_TRY_ASSIGN(auto region, CodeRegion::allocate(calls, text, 4096));
          TL_TRY(region.write(calls.process(), 0, std::as_bytes(std::span(kReturn1234))));
          TL_TRY_ASSIGN(auto page, ForkPage::create(calls));
          TL_TRY(page.remove(calls));
          TL_TRY(region.remove(calls));
          return arena.remove(calls);
        });
        if (!result) return 1;
        ++s.counters[0];
      }
    });
    ASSERT_TRUE(tracer.await_ready());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    tracer.kill(SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(tracer.wait()));
    rounds += tracer.shared().counters[0];
    for (const int c : {0, 1}) {
      const auto count = child.shared().counters[c].load();
      ASSERT_TRUE(TestChild::eventually([&] { return child.shared().counters[c] > count; }));
    }
  }
  printf("whole cycles of attach, map, unmap, detach: %lu\n", rounds);
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Mappings, TargetKilledMeanwhile) {
  std::minstd_rand random(6);
  for (int i = 0; i < 60; ++i) {
    TestChild child([](Shared& s) {
      std::thread([&s] { wait_for_stop(s); }).detach();
      return wait_for_stop(s);
    });
    ASSERT_TRUE(child.await_ready(2));
    const pid_t pid = child.pid().value;
    const auto delay = std::chrono::microseconds(random() % 3000);
    std::thread killer([=] {
      std::this_thread::sleep_for(delay);
      ::kill(pid, SIGKILL);
    });
    const auto maps = read_maps(Pid{::getpid()});
    const AddressRange text =
        find_mapping(*maps, RemoteAddr(reinterpret_cast<std::uint64_t>(&::qsort)))->range;
    Result<> result;
    while (result) {
      result = with_calls(child.pid(), [&](RemoteCalls& calls) -> Result<> {
        TL_TRY_ASSIGN(auto arena, ArenaMapping::create(calls, 1 << 16));
        TL_TRY_ASSIGN(auto region, CodeRegion::allocate(calls, text, 4096));
        TL_TRY(region.write(calls.process(), 0, std::as_bytes(std::span(kReturn1234))));
        TL_TRY_ASSIGN(auto page, ForkPage::create(calls));
        TL_TRY(register_membarrier(calls));
        TL_TRY(page.remove(calls));
        TL_TRY(region.remove(calls));
        return arena.remove(calls);
      });
    }
    EXPECT_TRUE(result.error().code() == ErrorCode::kTargetGone ||
                result.error().code() == ErrorCode::kNotFound)
        << result.error().text();
    killer.join();
  }
}

}  // namespace
}  // namespace trapline::target
