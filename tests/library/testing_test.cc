// trapline/testing.hpp with GoogleTest.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <trapline/testing.hpp>
#include <vector>

#include "probed.h"
#include "worker.h"

namespace {

using trapline::ErrorCode;
using trapline::testing::count_allocations;
using trapline::testing::count_calls;
using trapline::testing::Counter;
using trapline::testing::Threads;

PROBED int probed_helper(int number) {
  keep(number);
  return number + 1;
}
PROBED int probed_other(int number) {
  keep(number);
  return number + 2;
}

void allocate() {
  void* volatile block = std::malloc(10);
  std::free(block);
}

// In another thread that there was before: starting one allocates.
class Worker {
 public:
  explicit Worker(void (*body)())
      : thread_([this, body] {
          while (!go_) std::this_thread::yield();
          body();
          done_ = true;
        }) {}
  ~Worker() {
    go_ = true;
    thread_.join();
  }
  void run() {
    go_ = true;
    while (!done_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> go_ = false;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

TEST(CountCallsTest, ExactlyAndAgain) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(0, count_calls("a.out", "probed_helper", [] {}));
    EXPECT_EQ(5, count_calls("a.out", "probed_helper", [] {
                for (int i = 0; i < 5; ++i) probed_helper(i);
              }));
    EXPECT_EQ(1, count_calls("a.out", "probed_other", [] {
                probed_helper(1);
                probed_other(1);
              }));
  }
  EXPECT_EQ(3, count_calls("", "probed_*", [] {
              probed_helper(1);
              probed_other(1);
              probed_other(2);
            }));
}

TEST(CountCallsTest, APathCallsFsyncOnce) {
  char name[] = "/tmp/library_testing.XXXXXX";
  const int file = ::mkstemp(name);
  ASSERT_GE(file, 0);
  ::unlink(name);
  const auto commit = [&] { return ::write(file, "x", 1) == 1 && ::fsync(file) == 0; };
  EXPECT_EQ(1, count_calls("libc", "fsync", [&] { EXPECT_TRUE(commit()); }));
  EXPECT_CALLS("libc", "fsync", 1) { commit(); }
  ::close(file);
}

TEST(CountCallsTest, ThisThreadOrAll) {
  {
    Worker worker(+[] { probed_helper(1); });
    EXPECT_EQ(0, count_calls("a.out", "probed_helper", [&] { worker.run(); }));
  }
  {
    Worker worker(+[] { probed_helper(1); });
    EXPECT_EQ(1, count_calls("a.out", "probed_helper", [&] { worker.run(); }, Threads::kAll));
  }
  std::thread([] {
    EXPECT_EQ(1, count_calls("a.out", "probed_helper", [] { probed_helper(1); }));
  }).join();
}

TEST(CountCallsTest, NestedAndByHand) {
  Counter outer("a.out", "probed_helper");
  Counter inner("a.out", "probed_other");
  outer.start();
  probed_helper(1);
  inner.start();
  probed_helper(1);
  probed_other(1);
  inner.stop();
  probed_other(1);
  outer.stop();
  EXPECT_EQ(2, outer.calls());
  EXPECT_EQ(1, inner.calls());
  EXPECT_EQ("probed_helper 2", outer.description());
  outer.start();
  outer.stop();
  EXPECT_EQ(0, outer.calls()) << "each start begins at 0";
}

TEST(CountCallsTest, WhatCannotBeCounted) {
  try {
    count_calls("libc", "no_such_function_at_all", [] {});
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kCompile, error.code());
  }
  try {
    const Counter counter({{"libc", "no_such_function"}, {"libc", "nor_this"}});
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kNotFound, error.code());
  }
  // The same place twice at once.
  Counter first("a.out", "probed_helper");
  Counter second("a.out", "probed_helper");
  first.start();
  try {
    second.start();
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kUnsupported, error.code()) << error.what();
  }
  probed_helper(1);
  first.stop();
  EXPECT_EQ(1, first.calls());
}

TEST(CountCallsTest, AnExceptionLeavesNothingBehind) {
  EXPECT_THROW(count_calls("a.out", "probed_helper", [] { throw std::runtime_error("x"); }),
               std::runtime_error);
  EXPECT_EQ(1, count_calls("a.out", "probed_helper", [] { probed_helper(1); }));
}

TEST(AllocationsTest, NoneAndSome) {
  std::vector<int> reserved;
  reserved.reserve(10);
  EXPECT_EQ(0, count_allocations([&] { reserved.push_back(1); }));
  EXPECT_EQ(1, count_allocations([&] { reserved.reserve(100); }));
  EXPECT_EQ(1, count_allocations([] { std::make_unique<std::string>(); }));
  EXPECT_EQ(3, count_allocations([] {
              for (int i = 0; i < 3; ++i) allocate();
            }));
  EXPECT_EQ(1, count_allocations([] {
              void* volatile block = std::calloc(3, 5);
              std::free(block);
            }));
  EXPECT_EQ(1, count_allocations([] {
              void* block = nullptr;
              EXPECT_EQ(0, ::posix_memalign(&block, 64, 64));
              std::free(block);
            }));
}

TEST(AllocationsTest, TheMacros) {
  EXPECT_NO_ALLOCATIONS { probed_helper(1); }
  EXPECT_NO_ALLOCATIONS_IN_ANY_THREAD { probed_helper(1); }
  EXPECT_CALLS("a.out", "probed_helper", 2) {
    probed_helper(1);
    probed_helper(2);
  }
  EXPECT_NONFATAL_FAILURE(
      EXPECT_NO_ALLOCATIONS { allocate(); }, "expected 0 allocations, there were 1 (malloc 1)");
  EXPECT_NONFATAL_FAILURE(
      EXPECT_CALLS("a.out", "probed_helper", 2) { probed_helper(1); },
      "expected 2 calls, there were 1 (probed_helper 1)");
}

TEST(AllocationsTest, OtherThreadsOnlyWhereAsked) {
  {
    Worker worker(allocate);
    EXPECT_NO_ALLOCATIONS { worker.run(); }
  }
  static Worker* other = nullptr;
  Worker worker(allocate);
  other = &worker;
  EXPECT_NONFATAL_FAILURE(
      EXPECT_NO_ALLOCATIONS_IN_ANY_THREAD { other->run(); },
      "expected 0 allocations, there were 1");
}

// 1: left by return. The check takes place all the same.
int leave_early() {
  EXPECT_NO_ALLOCATIONS {
    allocate();
    return 1;
  }
  return 0;
}

TEST(AllocationsTest, LeavingEarlyIsChecked) {
  EXPECT_NONFATAL_FAILURE(EXPECT_EQ(1, leave_early()), "there were 1");
  for (int i = 0; i < 2; ++i) {
    EXPECT_NO_ALLOCATIONS {
      if (i == 0) continue;
    }
  }
  const auto throwing = [] {
    EXPECT_NO_ALLOCATIONS { throw std::runtime_error("x"); }
  };
  EXPECT_THROW(throwing(), std::runtime_error);
}

TEST(TestingTest, AHelperThatWasKilledIsReplaced) {
  EXPECT_EQ(1, count_calls("a.out", "probed_helper", [] { probed_helper(1); }));
  auto tracer = trapline::testing::detail::Pool::instance().take("");
  const int helper = trapline_session_helper_pid(tracer->session.get());
  trapline::testing::detail::Pool::instance().give_back(std::move(tracer));
  ::kill(worker_of(helper), SIGKILL);
  EXPECT_EQ(1, count_calls("a.out", "probed_helper", [] { probed_helper(1); }));
}

TEST(TestingTest, InAForkedChild) {
  EXPECT_EQ(1, count_calls("a.out", "probed_helper", [] { probed_helper(1); }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(count_calls("a.out", "probed_helper", [] { probed_helper(1); }) == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, WEXITSTATUS(status));
  EXPECT_EQ(1, count_calls("a.out", "probed_helper", [] { probed_helper(1); }));
}

}  // namespace
