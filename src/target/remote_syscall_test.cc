#include "target/remote_syscall.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "target/attach.h"
#include "target/seccomp.h"
#include "target/stopped.h"
#include "target/test_child.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;
using testing::Shared;
using testing::TestChild;

// Counts, with values kept in general and vector registers, and checks them all the time.
// counters[1] counts faults.
int compute(Shared& s) {
  const std::uint64_t a = 0x1111, b = 0x2222;
  const double half = 0.5;
  ++s.ready;
  while (s.stop == 0) {
    std::uint64_t wrong = 0;
    asm volatile(
        "movq %[a], %%r12\n movq %[b], %%r13\n movq %[a], %%xmm7\n movsd %[half], %%xmm9\n"
        "movl $2000, %%ecx\n movq %%r12, -8(%%rsp)\n"
        "1: decl %%ecx\n jnz 1b\n"
        "movq %%xmm7, %%rax\n xorq %%r12, %%rax\n"
        "movq -8(%%rsp), %%rdx\n xorq %%r12, %%rdx\n orq %%rdx, %%rax\n"  // the red zone
        "movq %%r13, %%rdx\n xorq %[b], %%rdx\n orq %%rdx, %%rax\n"
        "ucomisd %[half], %%xmm9\n je 2f\n orq $1, %%rax\n 2: movq %%rax, %[wrong]\n"
        : [wrong] "=r"(wrong)
        : [a] "r"(a), [b] "r"(b), [half] "m"(half)
        : "rax", "rcx", "rdx", "r12", "r13", "xmm7", "xmm9", "memory", "cc");
    if (wrong != 0) ++s.counters[1];
    sigset_t mask;
    ::sigprocmask(SIG_BLOCK, nullptr, &mask);
    for (int signal = 1; signal < 32; ++signal) {
      if (sigismember(&mask, signal) != (signal == SIGUSR2 ? 1 : 0)) ++s.counters[1];
    }
    ++s.counters[0];
  }
  return s.counters[1] == 0 ? 0 : 1;
}

int compute_with_mask(Shared& s) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  return compute(s);
}

TEST(RemoteCalls, RightResultsAndNothingChanged) {
  TestChild child(compute_with_mask);
  ASSERT_TRUE(child.await_ready());
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment) << attachment.error().text();
  std::chrono::nanoseconds total{};
  for (int i = 0; i < 50; ++i) {
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    const auto before = stopped->threads()[0].registers;
    std::array<std::byte, 16384> below{}, below_after{};
    ASSERT_TRUE(stopped->memory().read(before.sp() - below.size(), below));
    const auto start = Clock::now();
    {
      auto calls = RemoteCalls::begin(*stopped);
      ASSERT_TRUE(calls) << calls.error().text();
      const auto pid = calls->call("getpid", SYS_getpid);
      ASSERT_TRUE(pid) << pid.error().text();
      EXPECT_EQ(static_cast<pid_t>(*pid), child.pid().value);
      const auto parent = calls->call("getppid", SYS_getppid);
      ASSERT_TRUE(parent);
      EXPECT_EQ(static_cast<pid_t>(*parent), ::getpid());
      const auto bad = calls->call("close", SYS_close, 12345);
      ASSERT_FALSE(bad);
      EXPECT_EQ(bad.error().os_errno(), EBADF);
      const auto map =
          calls->call("mmap", SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, ~0ull, 0);
      ASSERT_TRUE(map) << map.error().text();
      EXPECT_TRUE(calls->call("munmap", SYS_munmap, *map, 4096));
      ASSERT_TRUE(calls->end());
    }
    total += Clock::now() - start;
    const auto after = read_registers(stopped->threads()[0].tid);
    ASSERT_TRUE(after);
    EXPECT_EQ(std::memcmp(&after->raw, &before.raw, sizeof before.raw), 0);
    ASSERT_TRUE(stopped->memory().read(before.sp() - below.size(), below_after));
    EXPECT_EQ(below, below_after);
    ASSERT_TRUE(stopped->resume());
  }
  printf("five injected calls with begin and end: %lld us\n",
         static_cast<long long>(
             std::chrono::duration_cast<std::chrono::microseconds>(total).count() / 50));
  ASSERT_TRUE(attachment->detach());
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(RemoteCalls, FromABlockedSystemCall) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  TestChild child([&](Shared& s) {
    ++s.ready;
    errno = 77;
    char c = 0;
    ::pollfd p{pipe[0], POLLIN, 0};
    if (::poll(&p, 1, 20'000) != 1) return errno;
    if (::read(pipe[0], &c, 1) != 1) return errno;
    return errno == 77 && c == 'x' ? 0 : 1;
  });
  ASSERT_TRUE(child.await_ready());
  for (int i = 0; i < 20; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped);
    {
      auto calls = RemoteCalls::begin(*stopped);
      ASSERT_TRUE(calls) << calls.error().text();
      EXPECT_TRUE(calls->call("getpid", SYS_getpid));
    }
    ASSERT_TRUE(stopped->detach());
  }
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  EXPECT_EQ(child.wait(), 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(RemoteCalls, InAGroupStop) {
  TestChild child(compute_with_mask);
  ASSERT_TRUE(child.await_ready());
  child.kill(SIGSTOP);
  const auto is_stopped = [&] {
    const auto stat = read_stat(child.pid());
    return stat && stat->state == 'T';
  };
  ASSERT_TRUE(TestChild::eventually(is_stopped));
  for (int i = 0; i < 10; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped);
    auto calls = RemoteCalls::begin(*stopped);
    ASSERT_TRUE(calls) << calls.error().text();
    const auto pid = calls->call("getpid", SYS_getpid);
    ASSERT_TRUE(pid) << pid.error().text();
    EXPECT_EQ(static_cast<pid_t>(*pid), child.pid().value);
    ASSERT_TRUE(calls->end());
    ASSERT_TRUE(stopped->detach());
    ASSERT_TRUE(TestChild::eventually(is_stopped));
  }
  const auto count = child.shared().counters[0].load();
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(count, child.shared().counters[0].load());
  child.kill(SIGCONT);
  ASSERT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] != count; }));
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(RemoteCalls, SigstopArrivesMeanwhile) {
  TestChild child(compute_with_mask);
  ASSERT_TRUE(child.await_ready());
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  auto stopped = attachment->stop();
  ASSERT_TRUE(stopped);
  auto calls = RemoteCalls::begin(*stopped);
  ASSERT_TRUE(calls);
  ASSERT_TRUE(calls->call("getpid", SYS_getpid));
  child.kill(SIGSTOP);
  const auto pid = calls->call("getpid", SYS_getpid);
  ASSERT_TRUE(pid) << pid.error().text();
  EXPECT_EQ(static_cast<pid_t>(*pid), child.pid().value);
  ASSERT_TRUE(calls->end());
  ASSERT_TRUE(stopped->detach());
  EXPECT_TRUE(TestChild::eventually([&] {
    const auto stat = read_stat(child.pid());
    return stat && stat->state == 'T';
  }));
  child.kill(SIGCONT);
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(RemoteCalls, SignalsDuringCallsArriveOnce) {
  static std::atomic<std::uint64_t>* received;
  TestChild child([](Shared& s) {
    received = &s.counters[10];
    struct ::sigaction action{};
    action.sa_handler = [](int) { ++*received; };
    ::sigaction(SIGRTMIN + 1, &action, nullptr);
    return compute_with_mask(s);
  });
  ASSERT_TRUE(child.await_ready());
  std::uint64_t sent = 0;
  for (int i = 0; i < 30; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped);
    auto calls = RemoteCalls::begin(*stopped);
    ASSERT_TRUE(calls);
    for (int n = 0; n < 3; ++n) {
      ASSERT_EQ(::sigqueue(child.pid().value, SIGRTMIN + 1, {}), 0);
      ++sent;
      EXPECT_TRUE(calls->call("getpid", SYS_getpid));
    }
    ASSERT_TRUE(calls->end());
    ASSERT_TRUE(stopped->detach());
  }
  EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[10] == sent; }))
      << child.shared().counters[10] << " of " << sent;
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(RemoteCalls, IgnoredSigtrapStaysIgnored) {
  TestChild child([](Shared& s) {
    ::signal(SIGTRAP, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTRAP);
    ::sigprocmask(SIG_BLOCK, &mask, nullptr);
    ++s.ready;
    while (s.stop == 0) ++s.counters[0];
    struct ::sigaction action{};
    ::sigaction(SIGTRAP, nullptr, &action);
    ::sigprocmask(SIG_BLOCK, nullptr, &mask);
    return action.sa_handler == SIG_IGN && sigismember(&mask, SIGTRAP) == 1 ? 0 : 1;
  });
  ASSERT_TRUE(child.await_ready());
  {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped);
    auto calls = RemoteCalls::begin(*stopped);
    ASSERT_TRUE(calls);
    EXPECT_TRUE(calls->call("getpid", SYS_getpid));
  }
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(RemoteCalls, TargetKilledMeanwhile) {
  std::minstd_rand random(2);
  for (int i = 0; i < 60; ++i) {
    TestChild child(compute_with_mask);
    ASSERT_TRUE(child.await_ready());
    const pid_t pid = child.pid().value;
    const auto delay = std::chrono::microseconds(random() % 2000);
    std::thread killer([=] {
      std::this_thread::sleep_for(delay);
      ::kill(pid, SIGKILL);
    });
    const auto run = [&]() -> Result<> {
      TL_TRY_ASSIGN(auto attachment, Attachment::seize(child.pid()));
      TL_TRY_ASSIGN(auto stopped, attachment.stop());
      TL_TRY_ASSIGN(auto calls, RemoteCalls::begin(stopped));
      for (;;) TL_TRY(calls.call("getpid", SYS_getpid));
    };
    const auto before = Clock::now();
    const auto result = run();
    EXPECT_LT(Clock::now() - before, 10s);
    ASSERT_FALSE(result);
    EXPECT_TRUE(result.error().code() == ErrorCode::kTargetGone ||
                result.error().code() == ErrorCode::kNotFound)
        << result.error().text();
    killer.join();
  }
}

// The tracer is killed at a random moment while it injects calls: the target must compute on, all
// registers right.
TEST(RemoteCalls, TracerKilledMeanwhile) {
  std::minstd_rand random(3);
  TestChild child(compute_with_mask);
  ASSERT_TRUE(child.await_ready());
  int injected = 0;
  for (int i = 0; i < 150; ++i) {
    TestChild tracer([&](Shared& s) {
      auto attachment = Attachment::seize(child.pid());
      if (!attachment) return 1;
      auto stopped = attachment->stop();
      if (!stopped) return 2;
      ++s.ready;
      for (;;) {
        auto calls = RemoteCalls::begin(*stopped);
        if (!calls) return 3;
        for (int n = 0; n < 4; ++n) {
          if (!calls->call("getpid", SYS_getpid)) return 4;
          ++s.counters[0];
        }
        if (!calls->end()) return 5;
      }
    });
    ASSERT_TRUE(tracer.await_ready());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
    tracer.kill(SIGKILL);
    const int status = tracer.wait();
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    injected += static_cast<int>(tracer.shared().counters[0]);
    const auto count = child.shared().counters[0].load();
    ASSERT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] > count + 1; })) << i;
    ASSERT_EQ(child.shared().counters[1], 0u) << i;
  }
  EXPECT_GT(injected, 100);
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(RemoteCalls, TracerKilledWhileTargetIsBlocked) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  TestChild child([&](Shared& s) {
    ++s.ready;
    errno = 77;
    char c = 0;
    if (::read(pipe[0], &c, 1) != 1) return errno;
    return errno == 77 && c == 'x' ? 0 : 1;
  });
  ASSERT_TRUE(child.await_ready());
  for (int i = 0; i < 40; ++i) {
    TestChild tracer([&](Shared& s) {
      auto attachment = Attachment::seize(child.pid());
      if (!attachment) return 1;
      auto stopped = attachment->stop();
      if (!stopped) return 2;
      auto calls = RemoteCalls::begin(*stopped);
      if (!calls) return 3;
      ++s.ready;
      while (calls->call("getpid", SYS_getpid)) {
      }
      return 4;
    });
    ASSERT_TRUE(tracer.await_ready());
    std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
    tracer.kill(SIGKILL);
    tracer.wait();
  }
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  EXPECT_EQ(child.wait(), 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// A restartable sequence that spins for ever: the kernel aborts it at every interruption.
TEST(RemoteCalls, LeavesRestartableSequences) {
  TestChild child([](Shared& s) {
    struct alignas(32) Section {
      std::uint32_t version, flags;
      std::uint64_t start, length, abort;
    };
    struct alignas(32) Area {
      std::uint32_t cpu_start, cpu;
      std::uint64_t section;
      std::uint32_t flags, pad[3];
    };
    static Area area;
    static Section section;
    // libc has registered its own: take it off, or registration fails.
    if (const auto* offset =
            static_cast<const std::ptrdiff_t*>(::dlsym(RTLD_DEFAULT, "__rseq_offset"))) {
      char* self;
      asm("mov %%fs:0, %0" : "=r"(self));
      ::syscall(SYS_rseq, self + *offset, 32, 1, 0x53053053);
    }
    if (::syscall(SYS_rseq, &area, 32, 0, 0x53053053) != 0) return 77;
    ++s.ready;
    // 1: in the section until `stop`; the abort handler counts and enters it again.
    asm volatile(
        "leaq 1f(%%rip), %%rax\n movq %%rax, 8(%[section])\n"
        "leaq 2f(%%rip), %%rcx\n subq %%rax, %%rcx\n movq %%rcx, 16(%[section])\n"
        "leaq 4f(%%rip), %%rax\n movq %%rax, 24(%[section])\n"
        "0: movq %[section], 8(%[area])\n"
        "1: cmpq $0, (%[stop])\n je 1b\n"
        "2: jmp 3f\n"
        ".long 0x53053053\n"
        "4: incq (%[count])\n jmp 0b\n"
        "3:\n"
        :
        :
        [section] "r"(&section), [area] "r"(&area), [stop] "r"(&s.stop), [count] "r"(&s.counters[0])
        : "rax", "rcx", "memory", "cc");
    return 0;
  });
  if (!child.await_ready()) {
    ASSERT_EQ(WEXITSTATUS(child.wait()), 77);
    GTEST_SKIP() << "rseq cannot be registered here";
  }
  std::this_thread::sleep_for(1ms);
  for (int i = 0; i < 20; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped);
    auto calls = RemoteCalls::begin(*stopped);
    if (!calls) {
      EXPECT_EQ(calls.error().code(), ErrorCode::kTimeout);  // it was caught inside each time
    } else {
      EXPECT_TRUE(calls->call("getpid", SYS_getpid));
    }
  }
  EXPECT_GT(child.shared().counters[0], 0u);
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

int install_filter(std::initializer_list<::sock_filter> program) {
  std::vector<::sock_filter> copy(program);
  ::sock_fprog filter{static_cast<unsigned short>(copy.size()), copy.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

// Kills for `number`, allows the rest.
int install_killer(unsigned number) {
  return install_filter({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)});
}

TEST(Seccomp, FiltersAreReadAndObeyed) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to read filters";
  TestChild child([](Shared& s) {
    if (install_killer(SYS_memfd_create) != 0) return 1;
    return compute_with_mask(s);
  });
  ASSERT_TRUE(child.await_ready());
  {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped);
    auto calls = RemoteCalls::begin(*stopped);
    ASSERT_TRUE(calls) << calls.error().text();
    EXPECT_TRUE(calls->call("getpid", SYS_getpid));
    const auto refused = calls->call("memfd_create", SYS_memfd_create, 0, 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().text().find("seccomp"), std::string::npos) << refused.error().text();
  }
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Seccomp, OwnFiltersAreTriedInAChild) {
  // Both processes live under the same filter, and the tracer may not read it: it is in it itself.
  TestChild outer([](Shared& result) {
    if (install_killer(SYS_membarrier) != 0) return 1;
    TestChild child(compute_with_mask);
    if (!child.await_ready()) return 2;
    {
      auto attachment = Attachment::seize(child.pid());
      if (!attachment) return 3;
      auto stopped = attachment->stop();
      if (!stopped) return 4;
      auto calls = RemoteCalls::begin(*stopped);
      if (!calls) return 5;
      if (!calls->call("getpid", SYS_getpid)) return 6;
      const auto refused = calls->call("membarrier", SYS_membarrier, 4, 0, 0);
      if (refused || refused.error().code() != ErrorCode::kUnsupported) return 7;
    }
    result.ready = 1;
    child.shared().stop = 1;
    return child.wait() == 0 ? 0 : 8;
  });
  const int status = outer.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Seccomp, StrangersAreRefused) {
  // The tracer has another number of filters than the target, and may not read them.
  TestChild outer([](Shared&) {
    TestChild child([](Shared& s) {
      if (install_killer(SYS_membarrier) != 0) return 1;
      return compute_with_mask(s);
    });
    if (!child.await_ready()) return 2;
    if (install_killer(SYS_reboot) != 0 || install_killer(SYS_acct) != 0) return 9;
    {
      auto attachment = Attachment::seize(child.pid());
      if (!attachment) return 3;
      auto stopped = attachment->stop();
      if (!stopped) return 4;
      const auto calls = RemoteCalls::begin(*stopped);
      if (calls || calls.error().code() != ErrorCode::kUnsupported) return 5;
    }
    child.shared().stop = 1;
    return child.wait() == 0 ? 0 : 8;
  });
  const int status = outer.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Seccomp, FilterMachine) {
  ::seccomp_data data{};
  data.nr = 9;
  data.arch = 0xc000003e;
  data.args[2] = 0x1'0000'0005;
  const std::vector<::sock_filter> by_argument{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, args[2])),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 13),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  EXPECT_EQ(run_filter(by_argument, data), SECCOMP_RET_ERRNO | 13u);
  data.args[2] = 3;
  EXPECT_EQ(run_filter(by_argument, data), SECCOMP_RET_ALLOW);
  const std::vector<::sock_filter> with_memory{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                                               BPF_STMT(BPF_ST, 3),
                                               BPF_STMT(BPF_LD | BPF_IMM, 100),
                                               BPF_STMT(BPF_LDX | BPF_MEM, 3),
                                               BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
                                               BPF_STMT(BPF_MISC | BPF_TAX, 0),
                                               BPF_STMT(BPF_LD | BPF_IMM, 0),
                                               BPF_STMT(BPF_MISC | BPF_TXA, 0),
                                               BPF_STMT(BPF_RET | BPF_A, 0)};
  EXPECT_EQ(run_filter(with_memory, data), 91u);
  EXPECT_EQ(run_filter({}, data), SECCOMP_RET_KILL_PROCESS);
  const std::vector<::sock_filter> beyond{BPF_STMT(BPF_JMP | BPF_JA, 100)};
  EXPECT_EQ(run_filter(beyond, data), SECCOMP_RET_KILL_PROCESS);
  const std::vector<::sock_filter> by_zero{BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0),
                                           BPF_STMT(BPF_RET | BPF_A, 0)};
  EXPECT_EQ(run_filter(by_zero, data), SECCOMP_RET_KILL_PROCESS);
}

}  // namespace
}  // namespace trapline::target
