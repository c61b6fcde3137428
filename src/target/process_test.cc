#include "target/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <thread>

#include "target/attach.h"
#include "target/test_child.h"
#include "target/text.h"

namespace trapline::target {
namespace {

using testing::Shared;
using testing::TestChild;

const Pid kSelf{::getpid()};

int idle(Shared& s) {
  ++s.ready;
  while (s.stop == 0) ::usleep(1000);
  return 0;
}

TEST(Process, MapsOfItself) {
  const auto maps = read_maps(kSelf);
  ASSERT_TRUE(maps);
  EXPECT_TRUE(std::ranges::is_sorted(*maps, {}, &Mapping::range));
  const auto* code = find_mapping(*maps, RemoteAddr(reinterpret_cast<std::uint64_t>(&read_maps)));
  ASSERT_NE(code, nullptr);
  EXPECT_TRUE(code->readable && code->executable && !code->writable && !code->shared &&
              code->is_file());
  EXPECT_NE(code->path.find("target_test"), std::string::npos);
  const int local = 0;
  const auto* stack = find_mapping(*maps, RemoteAddr(reinterpret_cast<std::uint64_t>(&local)));
  ASSERT_NE(stack, nullptr);
  EXPECT_EQ(stack->path, "[stack]");
  EXPECT_EQ(find_mapping(*maps, RemoteAddr(0)), nullptr);
  EXPECT_EQ(find_mapping(*maps, RemoteAddr(~0ull)), nullptr);
}

TEST(Process, DeletedFileIsSeen) {
  char name[] = "/tmp/trapline process test XXXXXX";
  const int fd = ::mkstemp(name);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  ::unlink(name);
  const auto maps = read_maps(kSelf);
  ASSERT_TRUE(maps);
  const auto* m = find_mapping(*maps, RemoteAddr(reinterpret_cast<std::uint64_t>(at)));
  ASSERT_NE(m, nullptr);
  EXPECT_TRUE(m->deleted);
  EXPECT_EQ(m->path, name);
  ::munmap(at, 4096);
  ::close(fd);
}

TEST(Process, StatusStatAndAuxiliaryVector) {
  const auto status = read_status(kSelf);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->uid, ::getuid());
  EXPECT_EQ(status->tgid, kSelf);
  EXPECT_EQ(status->seccomp, 0);
  EXPECT_GE(status->pid_namespaces, 1);
  const auto stat = read_stat(kSelf);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent.value, ::getppid());
  EXPECT_EQ(stat->state, 'R');
  EXPECT_FALSE(stat->is_kernel_thread());
  EXPECT_FALSE(stat->is_user_worker());
  EXPECT_GT(stat->start_time, 0u);
  EXPECT_NE(stat->start_brk, RemoteAddr(0));
  const auto auxiliary = read_auxiliary_vector(kSelf);
  ASSERT_TRUE(auxiliary);
  EXPECT_NE(auxiliary->entry, RemoteAddr(0));
  EXPECT_NE(auxiliary->program_headers, RemoteAddr(0));
  EXPECT_FALSE(auxiliary->secure);
}

TEST(Process, NameWithParenthesesAndSpaces) {
  TestChild child([](Shared& s) {
    ::prctl(PR_SET_NAME, "a) R (b");
    return idle(s);
  });
  ASSERT_TRUE(child.await_ready());
  const auto stat = read_stat(child.pid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->comm, "a) R (b");
  EXPECT_EQ(stat->parent, kSelf);
}

TEST(Process, IdentityTellsAPidUsedAgain) {
  TestChild child([](Shared& s) { return idle(s); });
  const auto first = identify(child.pid());
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, *identify(child.pid()));
  EXPECT_NE(*first, *identify(kSelf));
}

void expect_refused(Pid pid, ErrorCode code, std::string_view text) {
  const auto result = check_traceable(pid);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), code);
  EXPECT_NE(result.error().text().find(text), std::string::npos) << result.error().text();
}

TEST(Traceable, Ok) {
  TestChild child([](Shared& s) { return idle(s); });
  const auto result = check_traceable(child.pid());
  EXPECT_TRUE(result) << result.error().text();
}

TEST(Traceable, NoSuchProcess) {
  expect_refused(Pid{0x3ffffff}, ErrorCode::kNotFound, "no process 67108863");
  expect_refused(Pid{-1}, ErrorCode::kBadInput, "-1");
  expect_refused(kSelf, ErrorCode::kUnsupported, "itself");
}

TEST(Traceable, KernelThread) {
  const auto two = read_stat(Pid{2});
  if (!two || !two->is_kernel_thread()) GTEST_SKIP() << "no kernel thread to be seen here";
  expect_refused(Pid{2}, ErrorCode::kUnsupported, "kernel thread");
}

TEST(Traceable, Zombie) {
  TestChild child([](Shared&) { return 0; });
  ASSERT_TRUE(TestChild::eventually([&] {
    const auto stat = read_stat(child.pid());
    return stat && stat->is_dead();
  }));
  expect_refused(child.pid(), ErrorCode::kTargetGone, "zombie");
}

TEST(Traceable, ThreadIdIsNamedAsSuch) {
  TestChild child([](Shared& s) {
    std::thread([&s] {
      s.counters[0] = static_cast<std::uint64_t>(::gettid());
      idle(s);
    }).join();
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  expect_refused(Pid{static_cast<pid_t>(child.shared().counters[0])}, ErrorCode::kBadInput,
                 "give the process id " + std::to_string(child.pid().value));
}

TEST(Process, ThatHasEndedIsNamed) {
  TestChild child([](Shared&) { return 0; });
  child.wait();
  const std::string wanted = "process " + std::to_string(child.pid().value) + " has ended";
  const auto stat = read_stat(child.pid());
  ASSERT_FALSE(stat);
  EXPECT_EQ(stat.error().code(), ErrorCode::kTargetGone);
  EXPECT_EQ(stat.error().text(), wanted);
  const auto status = read_status(child.pid());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().text(), wanted);
}

TEST(Traceable, AlreadyTraced) {
  TestChild child([](Shared& s) { return idle(s); });
  const auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  expect_refused(child.pid(), ErrorCode::kPermission,
                 "already traced by process " + std::to_string(::getpid()) + " (target_test");
}

TEST(Traceable, ThirtyTwoBitProcess) {
  // A whole 32-bit program: pause() in a loop.
  constexpr unsigned char kProgram[] = {
      0x7f, 'E', 'L',  'F', 1,    1,    1,    0,    0,   0,    0,    0,    0, 0,    0, 0, 2,    0,
      3,    0,   1,    0,   0,    0,    0x54, 0x80, 4,   8,    0x34, 0,    0, 0,    0, 0, 0,    0,
      0,    0,   0,    0,   0x34, 0,    0x20, 0,    1,   0,    0,    0,    0, 0,    0, 0,  // header
      1,    0,   0,    0,   0,    0,    0,    0,    0,   0x80, 4,    8,    0, 0x80, 4, 8, 0x5d, 0,
      0,    0,   0x5d, 0,   0,    0,    5,    0,    0,   0,    0,    0x10, 0, 0,  // segment
      0xb8, 29,  0,    0,   0,    0xcd, 0x80, 0xeb, 0xf7};
  char name[] = "/tmp/trapline_elf32_XXXXXX";
  const int fd = ::mkstemp(name);
  ASSERT_EQ(::write(fd, kProgram, sizeof kProgram), static_cast<ssize_t>(sizeof kProgram));
  ::fchmod(fd, 0755);
  ::close(fd);
  TestChild child([&](Shared& s) {
    ++s.ready;
    ::execl(name, name, nullptr);
    return 77;
  });
  ASSERT_TRUE(child.await_ready());
  TestChild::eventually([&] {
    const auto path = executable_path(child.pid());
    return !path || *path == name;
  });
  const auto path = executable_path(child.pid());
  ::unlink(name);
  if (!path || *path != name) GTEST_SKIP() << "this kernel does not run 32-bit programs";
  expect_refused(child.pid(), ErrorCode::kUnsupported, "32-bit process: not supported");
}

TEST(Traceable, AnotherUser) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to change the user";
  TestChild root([](Shared& s) { return idle(s); });
  TestChild hidden([](Shared& s) {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) return 1;
    ::prctl(PR_SET_DUMPABLE, 0);
    return idle(s);
  });
  ASSERT_TRUE(root.await_ready());
  ASSERT_TRUE(hidden.await_ready());
  TestChild other([&](Shared&) {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) return 1;
    const auto result = check_traceable(root.pid());
    if (result || result.error().code() != ErrorCode::kPermission) return 2;
    if (result.error().text().find("belongs to user root (0), and you are nobody (65534)") ==
        std::string::npos)
      return 3;
    const auto attached = Attachment::seize(hidden.pid());
    if (attached || attached.error().code() != ErrorCode::kPermission) return 4;
    if (attached.error().text().find("not dumpable") == std::string::npos) return 5;
    return 0;
  });
  EXPECT_EQ(WEXITSTATUS(other.wait()), 0);
}

TEST(Traceable, Limits) {
  const auto limit = read_limit(kSelf, RLIMIT_NOFILE);
  ASSERT_TRUE(limit);
  ::rlimit own{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &own), 0);
  EXPECT_EQ(*limit, own.rlim_cur);
}

}  // namespace
}  // namespace trapline::target
