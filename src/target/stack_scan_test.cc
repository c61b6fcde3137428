#include "target/stack_scan.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "target/attach.h"
#include "target/stopped.h"
#include "target/test_child.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;
using testing::Shared;
using testing::TestChild;

// A page of code whose instructions the tests know.
struct Code {
  unsigned char* page = static_cast<unsigned char*>(::mmap(
      nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  void put(std::size_t at, const std::vector<unsigned char>& bytes) {
    std::copy(bytes.begin(), bytes.end(), page + at);
  }
  std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(page) + offset;
  }
  AddressRange range(std::size_t from, std::size_t to) const {
    return {RemoteAddr(at(from)), RemoteAddr(at(to))};
  }
  ~Code() { ::munmap(page, 4096); }
};

// 0: xor eax,eax  2: inc rax (3)  5: inc rcx (3)  8: nop  9: jmp 2: a loop of four instructions, 11
// bytes
void put_loop(Code& code) {
  code.put(0, {0x31, 0xc0, 0x48, 0xff, 0xc0, 0x48, 0xff, 0xc1, 0x90, 0xeb, 0xf7});
}

template <typename F>
void with_stopped(Pid pid, F f) {
  auto attachment = Attachment::seize(pid);
  ASSERT_TRUE(attachment) << attachment.error().text();
  auto stopped = attachment->stop();
  ASSERT_TRUE(stopped) << stopped.error().text();
  f(*stopped);
  ASSERT_TRUE(stopped->detach());
}

TEST(StackScan, FindsThePcAndReturnAddresses) {
  Code code;
  put_loop(code);
  // 0x100: call *rdi; ret, with the stack aligned
  code.put(0x100, {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3});
  TestChild child([&](Shared& s) {
    ++s.ready;
    const auto caller = reinterpret_cast<void (*)(void*)>(code.at(0x100));
    caller(code.page);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  std::this_thread::sleep_for(5ms);
  const std::array ranges{code.range(0, 0x20), code.range(0x100, 0x110), code.range(0x200, 0x300)};
  with_stopped(child.pid(), [&](StoppedProcess& p) {
    const auto result = scan_threads(p, ranges);
    ASSERT_TRUE(result);
    EXPECT_TRUE(result->complete);
    const auto pc = std::ranges::find(result->hits, ScanHit::Where::kPc, &ScanHit::where);
    ASSERT_NE(pc, result->hits.end());
    EXPECT_EQ(pc->range_index, 0u);
    const auto back = std::ranges::find(result->hits, RemoteAddr(code.at(0x106)), &ScanHit::value);
    ASSERT_NE(back, result->hits.end());
    EXPECT_EQ(back->where, ScanHit::Where::kStack);
    EXPECT_EQ(back->range_index, 1u);
    EXPECT_FALSE(
        std::ranges::any_of(result->hits, [](const ScanHit& h) { return h.range_index == 2; }));
  });
}

// The handler runs on another stack; the interrupted pc is in the signal frame there, and a return
// address that matters on the stack that was interrupted.
TEST(StackScan, LooksBehindSignalFrames) {
  Code code;
  put_loop(code);
  code.put(0x100, {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3});
  static std::atomic<std::uint64_t>* entered;
  TestChild child([&](Shared& s) {
    entered = &s.counters[0];
    const ::stack_t stack{
        ::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 0,
        65536};
    ::sigaltstack(&stack, nullptr);
    struct ::sigaction action{};
    action.sa_flags = SA_ONSTACK;
    action.sa_handler = [](int) {
      ++*entered;
      for (;;) ::usleep(1000);
    };
    ::sigaction(SIGUSR1, &action, nullptr);
    ++s.ready;
    reinterpret_cast<void (*)(void*)>(code.at(0x100))(code.page);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  std::this_thread::sleep_for(5ms);
  child.kill(SIGUSR1);
  ASSERT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] == 1; }));
  const std::array ranges{code.range(0, 0x20), code.range(0x100, 0x110)};
  with_stopped(child.pid(), [&](StoppedProcess& p) {
    const auto result = scan_threads(p, ranges);
    ASSERT_TRUE(result);
    EXPECT_FALSE(std::ranges::any_of(
        result->hits, [](const ScanHit& h) { return h.where == ScanHit::Where::kPc; }));
    EXPECT_TRUE(
        std::ranges::any_of(result->hits, [](const ScanHit& h) { return h.range_index == 0; }));
    EXPECT_TRUE(std::ranges::any_of(
        result->hits, [&](const ScanHit& h) { return h.value.value() == code.at(0x106); }));
  });
}

TEST(StackScan, SystemCallThatRestartsInside) {
  Code code;
  // mov eax, 34 (pause); syscall; ret
  code.put(0, {0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xc3});
  TestChild child([&](Shared& s) {
    ++s.ready;
    reinterpret_cast<void (*)()>(code.page)();
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  ASSERT_TRUE(TestChild::eventually([&] {
    const auto stat = read_stat(child.pid());
    return stat && stat->state == 'S';
  }));
  // The pc is behind the window; the system call will be executed again in it.
  const std::array window{code.range(1, 7)};
  const std::array whole{code.range(0, 7)};
  with_stopped(child.pid(), [&](StoppedProcess& p) {
    EXPECT_EQ(p.threads()[0].registers.pc(), RemoteAddr(code.at(7)));
    const auto result = scan_threads(p, window);
    ASSERT_TRUE(result);
    ASSERT_FALSE(result->hits.empty());
    EXPECT_EQ(result->hits[0].value, RemoteAddr(code.at(5)));
    const auto stuck = move_out(p, whole);
    ASSERT_TRUE(stuck);
    EXPECT_EQ(stuck->size(), 1u);
  });
}

TEST(MoveOut, LetsThreadsRunToTheEndOfTheWindow) {
  Code code;
  // Twelve times PAUSE and a jump back: a thread is in the window for a third of its time.
  std::vector<unsigned char> loop(24);
  for (std::size_t i = 0; i < loop.size(); i += 2) loop[i] = 0xf3, loop[i + 1] = 0x90;
  loop.insert(loop.end(), {0xeb, 0xe6});
  code.put(0, loop);
  TestChild child([&](Shared& s) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        ++s.ready;
        reinterpret_cast<void (*)()>(code.page)();
      });
    }
    for (auto& t : threads) t.join();
    return 0;
  });
  ASSERT_TRUE(child.await_ready(3));
  std::this_thread::sleep_for(10ms);
  const std::array windows{code.range(4, 12)};
  int inside = 0;
  for (int i = 0; i < 100; ++i) {
    with_stopped(child.pid(), [&](StoppedProcess& p) {
      for (const auto& t : p.threads())
        inside += windows[0].contains(t.registers.pc()) && t.registers.pc() != windows[0].start;
      const auto stuck = move_out(p, windows);
      ASSERT_TRUE(stuck) << stuck.error().text();
      EXPECT_TRUE(stuck->empty());
      for (const auto& t : p.threads()) {
        const auto now = read_registers(t.tid);
        ASSERT_TRUE(now);
        EXPECT_EQ(now->pc(), t.registers.pc());
        EXPECT_TRUE(!windows[0].contains(now->pc()) || now->pc() == windows[0].start);
      }
    });
  }
  EXPECT_GT(inside, 10);
}

// The tracer dies while it moves threads: the target never notices.
TEST(MoveOut, TracerKilledMeanwhile) {
  Code code;
  put_loop(code);
  TestChild child([&](Shared& s) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        ++s.ready;
        reinterpret_cast<void (*)()>(code.page)();
      });
    }
    while (s.stop == 0) {
      ::usleep(200);
      ++s.counters[0];
    }
    ::_exit(3);
    return 0;
  });
  ASSERT_TRUE(child.await_ready(2));
  const std::array windows{code.range(2, 9)};
  for (int i = 0; i < 60; ++i) {
    TestChild tracer([&](Shared& s) {
      auto attachment = Attachment::seize(child.pid());
      if (!attachment) return 1;
      ++s.ready;
      for (;;) {
        auto stopped = attachment->stop();
        if (!stopped) return 2;
        if (!move_out(*stopped, windows)) return 3;
        ++s.counters[0];
      }
    });
    ASSERT_TRUE(tracer.await_ready());
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + i * 137));
    tracer.kill(SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(tracer.wait()));
    const auto count = child.shared().counters[0].load();
    ASSERT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] > count; })) << i;
  }
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 3);
}

TEST(MoveOut, GivesUpOnALoopInside) {
  Code code;
  put_loop(code);
  TestChild child([&](Shared& s) {
    ++s.ready;
    reinterpret_cast<void (*)()>(code.page)();
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  std::this_thread::sleep_for(5ms);
  const std::array windows{code.range(0, 11)};
  with_stopped(child.pid(), [&](StoppedProcess& p) {
    const auto stuck = move_out(p, windows, 20);
    ASSERT_TRUE(stuck) << stuck.error().text();
    EXPECT_EQ(stuck->size(), 1u);
  });
}

TEST(MoveOut, FaultsAndSignalsStayAsTheyWere) {
  Code code;
  // 0: mov rax,[rdi] (3)  3: nop  4: jmp 0
  code.put(0, {0x48, 0x8b, 0x07, 0x90, 0xeb, 0xfa});
  static unsigned char* page;
  page = static_cast<unsigned char*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  static std::atomic<std::uint64_t>*faults, *signals;
  TestChild child([&](Shared& s) {
    faults = &s.counters[0];
    signals = &s.counters[1];
    struct ::sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, ::siginfo_t* info, void*) {
      if (info->si_addr == page) ++*faults;
      ::mprotect(page, 4096, PROT_READ);
    };
    ::sigaction(SIGSEGV, &action, nullptr);
    action.sa_sigaction = [](int, ::siginfo_t*, void*) {
      ++*signals;
      ::mprotect(page, 4096, PROT_NONE);
    };
    ::sigaction(SIGUSR1, &action, nullptr);
    ++s.ready;
    reinterpret_cast<void (*)(void*)>(code.page)(page);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  std::this_thread::sleep_for(5ms);
  const std::array windows{code.range(0, 4)};
  for (std::uint64_t i = 1; i <= 50; ++i) {
    with_stopped(child.pid(), [&](StoppedProcess& p) {
      child.kill(SIGUSR1);
      const auto stuck = move_out(p, windows);
      ASSERT_TRUE(stuck) << stuck.error().text();
    });
    ASSERT_TRUE(TestChild::eventually([&] {
      return child.shared().counters[1] == i && child.shared().counters[0] >= i;
    })) << child.shared().counters[1]
        << " " << child.shared().counters[0] << " of " << i;
  }
  // A loop that is never left.
  for (int i = 0; i < 50; ++i) {
    with_stopped(child.pid(), [&](StoppedProcess& p) {
      const std::array whole{code.range(0, 6)};
      const auto stuck = move_out(p, whole, 10);
      ASSERT_TRUE(stuck) << stuck.error().text();
    });
  }
  EXPECT_EQ(child.shared().counters[1], 50u);
  EXPECT_EQ(child.shared().counters[0], 50u);
}

}  // namespace
}  // namespace trapline::target
