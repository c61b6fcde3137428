#include "target/attach.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "target/process.h"
#include "target/stopped.h"
#include "target/test_child.h"
#include "target/text.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;
using testing::Shared;
using testing::TestChild;

int spin(Shared& shared, int threads) {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&shared, i] {
      ++shared.ready;
      while (shared.stop == 0) shared.counters[i].fetch_add(1, std::memory_order_relaxed);
    });
  }
  for (auto& t : all) t.join();
  return 7;
}

char state_of(Pid pid) {
  const auto stat = read_stat(pid);
  return stat ? stat->state : '-';
}

bool anyone_stopped(Pid pid) {
  const auto tasks = read_tasks(pid);
  if (!tasks) return false;
  for (const Tid tid : *tasks) {
    const auto stat = read_stat(pid, tid);
    if (stat && (stat->state == 'T' || stat->state == 't')) return true;
  }
  return false;
}

// Several tracers of this program share a process by turns.
TEST(Attach, WaitsForAnotherOneOfUs) {
  TestChild child([](Shared& s) { return spin(s, 2); });
  ASSERT_TRUE(child.await_ready(2));
  TestChild other([&](Shared& s) {
    auto attachment = Attachment::seize(child.pid());
    if (!attachment) return 1;
    ++s.ready;
    while (s.stop == 0) (void)attachment->wait_event(1ms);
    std::this_thread::sleep_for(100ms);
    return attachment->detach() ? 0 : 2;
  });
  ASSERT_TRUE(other.await_ready());
  EXPECT_TRUE(held_by_same_program(child.pid()));
  AttachOptions options;
  options.timeout = 50ms;
  const auto refused = Attachment::seize(child.pid(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kPermission);
  other.shared().stop = 1;
  options.timeout = 20s;
  EXPECT_TRUE(Attachment::seize(child.pid(), options));
  EXPECT_EQ(other.wait(), 0);
  EXPECT_FALSE(held_by_same_program(child.pid()));
}

TEST(Attach, StopsAndLetsGoOfBusyThreadsManyTimes) {
  constexpr std::size_t kThreads = 8;
  constexpr int kRounds = 200;
  TestChild child([](Shared& s) { return spin(s, static_cast<int>(kThreads)); });
  ASSERT_TRUE(child.await_ready(kThreads));
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < kRounds; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment) << attachment.error().text();
    EXPECT_EQ(attachment->threads().size(), kThreads + 1);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    times.push_back(stopped->stopped_for());
    EXPECT_EQ(stopped->threads().size(), kThreads + 1);
    std::array<std::uint64_t, kThreads> counts{};
    for (std::size_t t = 0; t < kThreads; ++t) counts[t] = child.shared().counters[t];
    if (i % 20 == 0) std::this_thread::sleep_for(1ms);
    for (std::size_t t = 0; t < kThreads; ++t) EXPECT_EQ(counts[t], child.shared().counters[t]);
    ASSERT_TRUE(i % 2 == 0 ? stopped->detach() : stopped->resume());
    if (i % 2 != 0) {
      ASSERT_TRUE(attachment->detach());
    }
  }
  EXPECT_TRUE(TestChild::eventually([&] { return !anyone_stopped(child.pid()); }));
  for (std::size_t t = 0; t < kThreads; ++t) {
    const auto count = child.shared().counters[t].load();
    EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[t] != count; }));
  }
  std::ranges::sort(times);
  const auto us = [](auto d) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
  };
  RecordProperty("stop_median_us", us(times[kRounds / 2]));
  RecordProperty("stop_max_us", us(times.back()));
  printf("until all have stopped, 8 spinning threads, %d CPUs: median %d us, max %d us\n",
         get_nprocs(), us(times[kRounds / 2]), us(times.back()));
  child.shared().stop = 1;
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(Attach, ThreadsThatComeAndGo) {
  TestChild child([](Shared& s) {
    std::vector<std::thread> makers;
    for (int i = 0; i < 3; ++i) {
      makers.emplace_back([&s, i] {
        ++s.ready;
        while (s.stop == 0) {
          std::thread([&s, i] { s.counters[i]++; }).join();
        }
      });
    }
    for (auto& t : makers) t.join();
    return 3;
  });
  ASSERT_TRUE(child.await_ready(3));
  for (int i = 0; i < 100; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment) << attachment.error().text();
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    const auto tasks = read_tasks(child.pid());
    ASSERT_TRUE(tasks);
    for (const Tid tid : *tasks) {
      const auto stat = read_stat(child.pid(), tid);
      EXPECT_TRUE(!stat || stat->is_dead() || stopped->find(tid) != nullptr) << stat->state;
    }
    const auto count = child.shared().counters[0].load() + child.shared().counters[1].load();
    std::this_thread::sleep_for(200us);
    EXPECT_EQ(count, child.shared().counters[0].load() + child.shared().counters[1].load());
    ASSERT_TRUE(stopped->detach());
  }
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 3);
}

// Each blocked call must not see the attach: it returns what it would have returned.
struct BlockedCall {
  const char* name;
  int (*call)(Shared&);  // returns 0 if it returned as it should
  void (*release)(TestChild&);
};

int g_pipe[2];

void release_by_pipe(TestChild&) { (void)!::write(g_pipe[1], "x", 1); }
void release_by_nothing(TestChild&) {}
void release_by_signal(TestChild& child) { child.kill(SIGUSR1); }

const BlockedCall kBlockedCalls[] = {
    {"read",
     [](Shared&) {
       char c;
       return ::read(g_pipe[0], &c, 1) == 1 ? 0 : errno;
     },
     release_by_pipe},
    {"nanosleep",
     [](Shared&) {
       ::timespec t{0, 300'000'000};
       return ::nanosleep(&t, nullptr) == 0 ? 0 : errno;
     },
     release_by_nothing},
    {"futex",
     [](Shared&) {
       unsigned word = 0;
       const ::timespec t{0, 300'000'000};
       const long rc = ::syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, nullptr, 0);
       return rc == -1 && errno == ETIMEDOUT ? 0 : errno;
     },
     release_by_nothing},
    {"epoll_wait",
     [](Shared&) {
       const int fd = ::epoll_create1(0);
       ::epoll_event e{EPOLLIN, {}};
       ::epoll_ctl(fd, EPOLL_CTL_ADD, g_pipe[0], &e);
       return ::epoll_wait(fd, &e, 1, 10'000) == 1 ? 0 : errno;
     },
     release_by_pipe},
    {"epoll_pwait",
     [](Shared&) {
       const int fd = ::epoll_create1(0);
       ::epoll_event e{EPOLLIN, {}};
       ::epoll_ctl(fd, EPOLL_CTL_ADD, g_pipe[0], &e);
       sigset_t mask;
       sigfillset(&mask);
       return ::epoll_pwait(fd, &e, 1, 10'000, &mask) == 1 ? 0 : errno;
     },
     release_by_pipe},
    {"poll",
     [](Shared&) {
       ::pollfd p{g_pipe[0], POLLIN, 0};
       return ::poll(&p, 1, 10'000) == 1 ? 0 : errno;
     },
     release_by_pipe},
    {"ppoll",
     [](Shared&) {
       ::pollfd p{g_pipe[0], POLLIN, 0};
       sigset_t mask;
       sigfillset(&mask);
       const ::timespec t{10, 0};
       return ::ppoll(&p, 1, &t, &mask) == 1 ? 0 : errno;
     },
     release_by_pipe},
    {"sigtimedwait",
     [](Shared&) {
       sigset_t set;
       sigemptyset(&set);
       sigaddset(&set, SIGUSR1);
       ::sigprocmask(SIG_BLOCK, &set, nullptr);
       const ::timespec t{10, 0};
       return ::sigtimedwait(&set, nullptr, &t) == SIGUSR1 ? 0 : errno;
     },
     release_by_signal},
    {"recv with a timeout",
     [](Shared&) {
       int fds[2];
       ::socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
       const ::timeval t{0, 300'000};
       ::setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
       char c;
       return ::recv(fds[0], &c, 1, 0) == -1 && errno == EAGAIN ? 0 : errno;
     },
     release_by_nothing},
    {"sigsuspend",
     [](Shared&) {
       sigset_t set, none;
       sigemptyset(&set);
       sigaddset(&set, SIGUSR1);
       ::sigprocmask(SIG_BLOCK, &set, nullptr);
       struct ::sigaction action{};
       action.sa_handler = [](int) {};
       ::sigaction(SIGUSR1, &action, nullptr);
       sigemptyset(&none);
       const int rc = ::sigsuspend(&none);
       sigset_t now;
       ::sigprocmask(SIG_BLOCK, nullptr, &now);
       return rc == -1 && errno == EINTR && sigismember(&now, SIGUSR1) == 1 ? 0 : 1000 + errno;
     },
     release_by_signal},
};

class BlockedIn : public ::testing::TestWithParam<BlockedCall> {};

TEST_P(BlockedIn, GoesOnUnharmed) {
  const BlockedCall& blocked = GetParam();
  ASSERT_EQ(::pipe(g_pipe), 0);
  TestChild child([&](Shared& s) {
    ++s.ready;
    return blocked.call(s);
  });
  ASSERT_TRUE(child.await_ready());
  const auto asleep = [&] {
    const char state = state_of(child.pid());
    return state == 'S' || state == 'Z';
  };
  int attached = 0;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(TestChild::eventually(asleep));
    auto attachment = Attachment::seize(child.pid());
    if (!attachment) break;  // a short call may be over by now
    auto stopped = attachment->stop();
    if (!stopped) break;
    ++attached;
    ASSERT_EQ(stopped->threads().size(), 1u);
    ASSERT_TRUE(stopped->resume());
    ASSERT_TRUE(attachment->detach());
  }
  EXPECT_GT(attached, 0);
  ASSERT_TRUE(TestChild::eventually(asleep));
  blocked.release(child);
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(g_pipe[0]);
  ::close(g_pipe[1]);
}
INSTANTIATE_TEST_SUITE_P(Attach, BlockedIn, ::testing::ValuesIn(kBlockedCalls),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

// A traced thread is woken by signals that it ignores; it must not see that either.
TEST(Attach, IgnoredSignalsInterruptNothing) {
  ASSERT_EQ(::pipe(g_pipe), 0);
  TestChild child([](Shared& s) {
    ::signal(SIGUSR2, SIG_IGN);
    const int fd = ::epoll_create1(0);
    ::epoll_event e{EPOLLIN, {}};
    ::epoll_ctl(fd, EPOLL_CTL_ADD, g_pipe[0], &e);
    ++s.ready;
    return ::epoll_wait(fd, &e, 1, 10'000) == 1 ? 0 : errno;
  });
  ASSERT_TRUE(child.await_ready());
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  for (int i = 0; i < 20; ++i) {
    child.kill(i % 3 == 0 ? SIGWINCH : i % 3 == 1 ? SIGUSR2 : SIGCHLD);
    ASSERT_TRUE(attachment->wait_event(3ms));
  }
  ASSERT_TRUE(attachment->detach());
  release_by_pipe(child);
  EXPECT_EQ(WEXITSTATUS(child.wait()), 0);
  ::close(g_pipe[0]);
  ::close(g_pipe[1]);
}

TEST(Attach, GroupStopIsKept) {
  TestChild child([](Shared& s) { return spin(s, 2); });
  ASSERT_TRUE(child.await_ready(2));
  child.kill(SIGSTOP);
  ASSERT_TRUE(TestChild::eventually([&] { return state_of(child.pid()) == 'T'; }));
  for (int i = 0; i < 20; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment) << attachment.error().text();
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    ASSERT_EQ(stopped->threads().size(), 3u);
    for (const auto& t : stopped->threads()) EXPECT_TRUE(t.group_stopped);
    ASSERT_TRUE(stopped->resume());
    (void)attachment->wait_event(5ms);
    const auto count = child.shared().counters[0].load();
    std::this_thread::sleep_for(1ms);
    EXPECT_EQ(count, child.shared().counters[0].load());
    ASSERT_TRUE(attachment->detach());
    EXPECT_TRUE(TestChild::eventually([&] { return state_of(child.pid()) == 'T'; }));
  }
  const auto count = child.shared().counters[0].load();
  child.kill(SIGCONT);
  EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] != count; }));
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 7);
}

TEST(Attach, ContinueOfAGroupStopWhileAttached) {
  TestChild child([](Shared& s) { return spin(s, 2); });
  ASSERT_TRUE(child.await_ready(2));
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  child.kill(SIGSTOP);
  ASSERT_TRUE(TestChild::eventually([&] {
    (void)attachment->wait_event(1ms);
    const auto count = child.shared().counters[0].load();
    std::this_thread::sleep_for(2ms);
    return count == child.shared().counters[0].load();
  }));
  const auto count = child.shared().counters[0].load();
  child.kill(SIGCONT);
  EXPECT_TRUE(TestChild::eventually([&] {
    (void)attachment->wait_event(1ms);
    return child.shared().counters[0] != count;
  }));
  ASSERT_TRUE(attachment->detach());
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 7);
}

std::atomic<std::uint64_t>* g_received;
std::uint64_t g_expected;
std::atomic<std::uint64_t>* g_disorder;

TEST(Attach, EverySignalIsDeliveredOnceAndInOrder) {
  TestChild child([](Shared& s) {
    g_received = &s.counters[10];
    g_disorder = &s.counters[11];
    struct ::sigaction action{};
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    action.sa_sigaction = [](int, ::siginfo_t* info, void*) {
      if (static_cast<std::uint64_t>(info->si_value.sival_int) != g_expected++) ++*g_disorder;
      ++*g_received;
    };
    ::sigaction(SIGRTMIN, &action, nullptr);
    ++s.ready;
    while (s.stop == 0) ++s.counters[0];
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  int sent = 0;
  const auto send = [&](int n) {
    for (int i = 0; i < n; ++i) {
      ::sigval value{};
      value.sival_int = sent;
      if (::sigqueue(child.pid().value, SIGRTMIN, value) == 0) ++sent;
    }
  };
  for (int i = 0; i < 100; ++i) {
    send(3);
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    send(3);
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    send(5);
    ASSERT_TRUE(stopped->resume());
    send(3);
    ASSERT_TRUE(attachment->wait_event(0ms));
    ASSERT_TRUE(attachment->detach());
  }
  EXPECT_TRUE(TestChild::eventually([&] {
    return child.shared().counters[10] == static_cast<std::uint64_t>(sent);
  })) << child.shared().counters[10]
      << " of " << sent;
  EXPECT_EQ(child.shared().counters[11], 0u);
  child.shared().stop = 1;
  EXPECT_EQ(child.wait(), 0);
}

TEST(Attach, VforkParentTimesOutAndIsNotHarmed) {
  ASSERT_EQ(::pipe(g_pipe), 0);
  TestChild child([](Shared& s) {
    std::thread busy([&s] {
      ++s.ready;
      while (s.stop == 0) ++s.counters[0];
    });
    const pid_t grandchild = ::vfork();
    if (grandchild == 0) {
      ++s.ready;
      char c;
      (void)!::read(g_pipe[0], &c, 1);
      ::_exit(5);
    }
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    s.stop = 1;
    busy.join();
    return WEXITSTATUS(status);
  });
  ASSERT_TRUE(child.await_ready(2));
  const auto attachment =
      Attachment::seize(child.pid(), {.follow = {}, .timeout = 50ms, .kill_on_exit = false});
  ASSERT_FALSE(attachment);
  EXPECT_EQ(attachment.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(attachment.error().text().find("vfork"), std::string::npos)
      << attachment.error().text();
  const auto count = child.shared().counters[0].load();
  EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] != count; }));
  release_by_pipe(child);
  EXPECT_EQ(WEXITSTATUS(child.wait()), 5);
}

TEST(Attach, VforkWhileSeizedTimesOutAndRollsBack) {
  ASSERT_EQ(::pipe(g_pipe), 0);
  TestChild child([](Shared& s) {
    std::thread busy([&s] {
      ++s.ready;
      while (s.stop == 0) ++s.counters[0];
    });
    while (s.counters[1] == 0) ::usleep(100);
    const pid_t grandchild = ::vfork();
    if (grandchild == 0) {
      ++s.ready;
      char c;
      (void)!::read(g_pipe[0], &c, 1);
      ::_exit(5);
    }
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    s.stop = 1;
    busy.join();
    return WEXITSTATUS(status);
  });
  ASSERT_TRUE(child.await_ready(1));
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  child.shared().counters[1] = 1;
  ASSERT_TRUE(child.await_ready(2));
  const auto before = Clock::now();
  {
    const auto stopped = attachment->stop({.timeout = 50ms});
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code(), ErrorCode::kTimeout);
    EXPECT_NE(stopped.error().text().find("vfork"), std::string::npos) << stopped.error().text();
  }
  EXPECT_LT(Clock::now() - before, 5s);
  const auto count = child.shared().counters[0].load();
  EXPECT_TRUE(TestChild::eventually([&] {
    EXPECT_TRUE(attachment->wait_event(1ms));
    return child.shared().counters[0] != count;
  }));
  EXPECT_EQ(attachment->detach(20ms).error().code(), ErrorCode::kTimeout);
  release_by_pipe(child);
  ASSERT_TRUE(attachment->detach());
  EXPECT_EQ(WEXITSTATUS(child.wait()), 5);
}

TEST(Attach, ZombieLeader) {
  TestChild child([](Shared& s) {
    std::thread([&s] {
      ++s.ready;
      while (s.stop == 0) ++s.counters[0];
      ::_exit(4);
    }).detach();
    ::syscall(SYS_exit, 0);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  ASSERT_TRUE(TestChild::eventually([&] { return state_of(child.pid()) == 'Z'; }));
  EXPECT_TRUE(read_maps(child.pid()));
  for (int i = 0; i < 10; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment) << attachment.error().text();
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    EXPECT_EQ(stopped->threads().size(), 1u);
    EXPECT_TRUE(stopped->memory().read_value<std::uint64_t>(stopped->threads()[0].registers.sp()));
    ASSERT_TRUE(stopped->detach());
  }
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 4);
}

TEST(Attach, LeaderExitsWhileSeized) {
  TestChild child([](Shared& s) {
    std::thread([&s] {
      ++s.ready;
      while (s.stop == 0) ++s.counters[0];
      ::_exit(4);
    }).detach();
    while (s.counters[1] == 0) ::usleep(100);
    ::syscall(SYS_exit, 0);
    return 0;
  });
  ASSERT_TRUE(child.await_ready());
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment) << attachment.error().text();
  child.shared().counters[1] = 1;
  ASSERT_TRUE(TestChild::eventually([&] { return state_of(child.pid()) == 'Z'; }));
  {
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    EXPECT_EQ(stopped->threads().size(), 1u);
  }
  child.shared().stop = 1;
  std::optional<Event> last;
  EXPECT_TRUE(TestChild::eventually([&] {
    const auto event = attachment->wait_event(100ms);
    if (event && *event) last = **event;
    return attachment->gone();
  }));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, Event::Kind::kExit);
  EXPECT_EQ(WEXITSTATUS(last->status), 4);
  child.taken();
}

TEST(Attach, ForkStormIsNotFollowedAndGoesOn) {
  TestChild child([](Shared& s) {
    std::vector<std::thread> makers;
    for (int i = 0; i < 3; ++i) {
      makers.emplace_back([&s] {
        ++s.ready;
        while (s.stop == 0) {
          const pid_t pid = ::fork();
          if (pid == 0) ::_exit(6);
          int status = 0;
          if (pid > 0 && ::waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) != 6)
            ++s.counters[1];
          ++s.counters[0];
        }
      });
    }
    for (auto& t : makers) t.join();
    return 2;
  });
  ASSERT_TRUE(child.await_ready(3));
  for (int i = 0; i < 50; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment) << attachment.error().text();
    {
      auto stopped = attachment->stop();
      ASSERT_TRUE(stopped) << stopped.error().text();
    }
    (void)attachment->wait_event(1ms);
    ASSERT_TRUE(attachment->detach());
  }
  const auto count = child.shared().counters[0].load();
  EXPECT_TRUE(TestChild::eventually([&] { return child.shared().counters[0] > count + 10; }));
  EXPECT_EQ(child.shared().counters[1], 0u);
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 2);
}

TEST(Attach, FollowedForksAreAdopted) {
  TestChild child([](Shared& s) {
    ++s.ready;
    while (s.counters[1] == 0) ::usleep(100);
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(6);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  });
  ASSERT_TRUE(child.await_ready());
  auto attachment = Attachment::seize(child.pid(), {.follow = {.forks = true}});
  ASSERT_TRUE(attachment);
  child.shared().counters[1] = 1;
  std::optional<Event> event;
  ASSERT_TRUE(TestChild::eventually([&] {
    const auto e = attachment->wait_event(10ms);
    if (e && *e) event = **e;
    return event.has_value();
  }));
  ASSERT_EQ(event->kind, Event::Kind::kFork);
  {
    auto grandchild = attachment->adopt_child(*event);
    ASSERT_TRUE(grandchild) << grandchild.error().text();
    auto stopped = grandchild->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    EXPECT_EQ(stopped->pid(), event->child);
    ASSERT_TRUE(stopped->detach());
  }
  ASSERT_TRUE(attachment->detach());
  EXPECT_EQ(WEXITSTATUS(child.wait()), 6);
}

TEST(Attach, ExecOfAThreadIsReported) {
  TestChild child([](Shared& s) {
    std::vector<std::thread> busy;
    for (int i = 0; i < 3; ++i) {
      busy.emplace_back([&s] {
        ++s.ready;
        for (;;) ++s.counters[0];
      });
    }
    std::thread([&s] {
      while (s.counters[1] == 0) ::usleep(100);
      ::execl("/bin/sh", "sh", "-c", "exit 9", nullptr);
    }).join();
    return 1;
  });
  ASSERT_TRUE(child.await_ready(3));
  auto attachment = Attachment::seize(child.pid());
  ASSERT_TRUE(attachment);
  child.shared().counters[1] = 1;
  std::vector<Event> events;
  ASSERT_TRUE(TestChild::eventually([&] {
    const auto e = attachment->wait_event(10ms);
    if (e && *e) {
      events.push_back(**e);
      if ((*e)->kind == Event::Kind::kExec) {
        EXPECT_EQ(attachment->threads().size(), 1u);
        EXPECT_EQ(attachment->image(), 1u);
        EXPECT_TRUE(attachment->resume((*e)->tid));
      }
    }
    return attachment->gone();
  }));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Event::Kind::kExec);
  EXPECT_EQ(events[1].kind, Event::Kind::kExit);
  EXPECT_EQ(WEXITSTATUS(events[1].status), 9);
  child.taken();
}

TEST(Attach, ReportsExecutedInt3AndGoesOnBehindIt) {
  TestChild child([](Shared& s) {
    while (s.counters[1] == 0) ::usleep(100);
    while (s.stop == 0) {
      asm volatile("int3");
      ++s.counters[0];
    }
    return 0;
  });
  auto attachment = Attachment::seize(child.pid(), {.follow = {.traps = true}});
  ASSERT_TRUE(attachment) << attachment.error().text();
  child.shared().counters[1] = 1;
  int hits = 0;
  ASSERT_TRUE(TestChild::eventually([&] {
    const auto e = attachment->wait_event(10ms);
    if (e && *e && (*e)->kind == Event::Kind::kTrap) {
      ++hits;
      if (hits == 50) {
        // Reported, and stopped in between: the int3 is executed again.
        auto stopped = attachment->stop();
        EXPECT_TRUE(stopped);
      }
      if (hits == 101) return true;  // it stays where it is
      EXPECT_TRUE(attachment->resume((*e)->tid));
    }
    return false;
  }));
  EXPECT_EQ(child.shared().counters[0], 99u);
  child.kill(SIGKILL);
}

// A program that executes itself over and over, while it is attached to, stopped, and let go of.
TEST(Attach, ExecStorm) {
  TestChild child([](Shared& s) {
    ++s.ready;
    ::execl("/bin/sh", "sh", "-c", "[ $1 -ge 150 ] && exit 8; exec sh -c \"$0\" \"$0\" $(($1+1))",
            "[ $1 -ge 150 ] && exit 8; exec sh -c \"$0\" \"$0\" $(($1+1))", "0", nullptr);
    return 1;
  });
  ASSERT_TRUE(child.await_ready());
  int stops = 0, execs = 0, failed = 0;
  std::optional<int> end;
  const auto note = [&](const std::optional<Event>& event) {
    if (event && event->kind == Event::Kind::kExec) ++execs;
    if (event && event->kind == Event::Kind::kExit) end = event->status;
  };
  const auto round = [&](Attachment& attachment) -> Result<> {
    for (int i = 0; i < 5; ++i) {
      TL_TRY_ASSIGN(const auto event, attachment.wait_event(1ms));
      note(event);
      if (end) return {};
      if (event) TL_TRY(attachment.resume(event->tid));
      TL_TRY_ASSIGN(auto stopped, attachment.stop());
      TL_TRY(stopped.maps());
      ++stops;
    }
    return attachment.detach();
  };
  while (!end) {
    auto attachment = Attachment::seize(child.pid());
    Result<> result = attachment ? round(*attachment) : Result<>(attachment.error());
    if (result) continue;
    // While it executes a program, what belongs to the old image is gone: this may fail then,
    // harmlessly.
    ASSERT_LT(++failed, 1000) << result.error().text();
    if (!attachment || !attachment->gone()) {
      if (int status = 0; ::waitpid(child.pid().value, &status, WNOHANG) > 0) end = status;
    } else {
      while (!end) {
        const auto event = attachment->wait_event(0ms);
        ASSERT_TRUE(event && *event);
        note(*event);
      }
    }
  }
  EXPECT_GT(stops, 20);
  EXPECT_GT(execs, 5);
  EXPECT_TRUE(WIFEXITED(*end) && WEXITSTATUS(*end) == 8) << *end;
  child.taken();
}

TEST(Attach, UserWorkersAreSkipped) {
  TestChild child([](Shared& s) {
    ::io_uring_params params{};
    params.flags = IORING_SETUP_SQPOLL;
    params.sq_thread_idle = 100'000;
    if (::syscall(SYS_io_uring_setup, 4, &params) < 0) return 77;
    ++s.ready;
    while (s.stop == 0) ++s.counters[0];
    return 0;
  });
  if (!TestChild::eventually(
          [&] { return child.shared().ready > 0 || state_of(child.pid()) == 'Z'; }) ||
      child.shared().ready == 0) {
    GTEST_SKIP() << "no io_uring here";
  }
  const auto tasks = read_tasks(child.pid());
  ASSERT_TRUE(tasks);
  ASSERT_EQ(tasks->size(), 2u);
  EXPECT_TRUE(read_stat(child.pid(), (*tasks)[1])->is_user_worker());
  for (int i = 0; i < 5; ++i) {
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment) << attachment.error().text();
    auto stopped = attachment->stop();
    ASSERT_TRUE(stopped) << stopped.error().text();
    EXPECT_EQ(stopped->threads().size(), 1u);
    ASSERT_TRUE(stopped->detach());
  }
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 0);
}

// The caller's own loop over a signalfd is not robbed of a SIGCHLD.
TEST(Attach, WaitingKeepsTheCallersSigchld) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &set, &old);
  {
    TestChild child([](Shared& s) { return spin(s, 1); });
    ASSERT_TRUE(child.await_ready());
    auto attachment = Attachment::seize(child.pid());
    ASSERT_TRUE(attachment);
    TestChild other([](Shared&) { return 0; });
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(attachment->wait_event(5ms));
    const ::timespec none{0, 0};
    EXPECT_EQ(::sigtimedwait(&set, nullptr, &none), SIGCHLD);
    EXPECT_EQ(other.wait(), 0);
  }
  const ::timespec none{0, 0};
  while (::sigtimedwait(&set, nullptr, &none) == SIGCHLD) {
  }
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
}

TEST(Attach, KilledAtAnyMoment) {
  constexpr int kRounds = 60;
  std::minstd_rand random(1);
  int gone = 0;
  for (int i = 0; i < kRounds; ++i) {
    TestChild child([](Shared& s) { return spin(s, 4); });
    ASSERT_TRUE(child.await_ready(4));
    const auto delay = std::chrono::microseconds(random() % 3000);
    const pid_t pid = child.pid().value;
    std::thread killer([pid, delay] {
      std::this_thread::sleep_for(delay);
      ::kill(pid, SIGKILL);
    });
    const auto before = Clock::now();
    const auto run = [&]() -> Result<> {
      for (;;) {
        TL_TRY_ASSIGN(auto attachment, Attachment::seize(child.pid()));
        TL_TRY_ASSIGN(auto stopped, attachment.stop());
        TL_TRY(stopped.memory().read_value<std::uint64_t>(stopped.threads()[0].registers.sp()));
        TL_TRY(stopped.resume());
        TL_TRY(attachment.wait_event(0ms));
        if (attachment.gone()) return target::gone(child.pid());
        TL_TRY(attachment.detach());
      }
    };
    const auto result = run();
    ASSERT_FALSE(result);
    EXPECT_TRUE(result.error().code() == ErrorCode::kTargetGone ||
                result.error().code() == ErrorCode::kNotFound)
        << result.error().text();
    ++gone;
    EXPECT_LT(Clock::now() - before, 10s);
    killer.join();
  }
  EXPECT_EQ(gone, kRounds);
}

}  // namespace
}  // namespace trapline::target
