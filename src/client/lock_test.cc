#include "client/lock.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>
#include <vector>

namespace trapline::client {
namespace {

TEST(LockTest, ExcludesOthers) {
  Lock lock;
  std::int64_t counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const Inside inside;
        const Holding holding(lock, inside);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(80'000, counter);
  EXPECT_FALSE(lock.is_held());
}

TEST(LockTest, TryingDoesNotWait) {
  Lock lock;
  const Inside inside;
  Holding first(lock, inside);
  EXPECT_TRUE(first);
  EXPECT_FALSE(Holding(lock));
  first.release();
  EXPECT_FALSE(lock.is_held());
  EXPECT_TRUE(Holding(lock));
}

std::atomic<int> seen_inside = -1;

TEST(LockTest, AWaitingThreadTakesSignalsOutside) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer puts signals off until its next interceptor";
#endif
  struct sigaction action{};
  action.sa_handler = [](int) { seen_inside = Inside::active() ? 1 : 0; };
  struct sigaction before{};
  sigaction(SIGUSR1, &action, &before);
  Lock lock;
  std::atomic<bool> go = false;
  std::atomic<bool> done = false;
  std::thread waiter([&] {  // made outside: it inherits the mask
    while (!go) std::this_thread::yield();
    const Inside there;
    const Holding wanted(lock, there);
    done = true;
  });
  const Inside inside;
  Holding holding(lock, inside);
  go = true;
  // Whether it already waits or is about to, it must take the signal before it gets the lock.
  pthread_kill(waiter.native_handle(), SIGUSR1);
  while (seen_inside < 0) std::this_thread::yield();
  EXPECT_EQ(0, seen_inside);
  EXPECT_FALSE(done);
  holding.release();
  waiter.join();
  EXPECT_TRUE(done);
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace trapline::client
