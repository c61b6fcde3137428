// A program with many threads that allocate all the while, and sessions that come and go.
//
// Sessions that span whole batches (all threads wait at a barrier while they start and stop) must
// count exactly; those that start and stop in the midst of it, never more than was done.
// TRAPLINE_LIBRARY_ROUNDS: how often; the default is little.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <trapline/trapline.hpp>
#include <vector>

namespace {

constexpr int kThreads = 16;
constexpr int kBatch = 200;

int rounds(int usual) {
  const char* wanted = std::getenv("TRAPLINE_LIBRARY_ROUNDS");
  return wanted != nullptr ? std::atoi(wanted) : usual;
}

void allocate() {
  void* volatile block = std::malloc(100);
  std::free(block);
}

// std::barrier is C++20.
class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int generation = generation_;
    if (++arrived_ == parties_) {
      arrived_ = 0;
      ++generation_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return generation != generation_; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int parties_;
  int arrived_ = 0;
  int generation_ = 0;
};

TEST(ThreadsTest, WholeBatchesAreCountedExactly) {
  trapline::Session session = trapline::Session::self();
  session.compile(
      "pid$target:libc:malloc:entry { @calls = count(); @sizes = quantize(arg0); }"
      "pid$target:libc:free:entry { @frees[tid] = count(); }");
  const int count = rounds(20);
  Barrier barrier(kThreads + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < count; ++round) {
        barrier.wait();
        for (int i = 0; i < kBatch; ++i) allocate();
        barrier.wait();
      }
      barrier.wait();  // not to end, and free what libc keeps for a thread, in the last batch
    });
  }
  for (int round = 0; round < count; ++round) {
    session.start();
    barrier.wait();
    barrier.wait();
    session.stop();
    const trapline::Snapshot snapshot = session.snapshot();
    const std::int64_t wanted = std::int64_t{kThreads} * kBatch;
    EXPECT_EQ(wanted, snapshot["calls"].value()) << "round " << round;
    const trapline::Histogram sizes = snapshot["sizes"].histogram();
    EXPECT_EQ(1u, sizes.size());
    EXPECT_EQ(wanted, sizes[0].count);
    EXPECT_EQ(std::size_t{kThreads}, snapshot["frees"].size());
    for (const trapline::Entry& entry : snapshot["frees"]) {
      EXPECT_EQ(kBatch, entry.value()) << "round " << round << ", thread " << entry.key(0);
    }
    EXPECT_EQ(0u, trapline::total(snapshot.drops()));
    session.clear();
  }
  barrier.wait();
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadsTest, NeverMoreThanWasDone) {
  trapline::Session session = trapline::Session::self();
  session.compile("pid$target:libc:malloc:entry { @calls = count(); }");
  std::atomic<bool> stop = false;
  struct alignas(64) Done {
    std::atomic<std::int64_t> count = 0;
  };
  std::vector<Done> done(kThreads);
  const auto total = [&] {
    std::int64_t sum = 0;
    for (const Done& one : done) sum += one.count.load();
    return sum;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        done[static_cast<std::size_t>(t)].count.fetch_add(1);  // before: at most one more than done
        allocate();
      }
    });
  }
  std::int64_t counted = 0;
  const int count = rounds(30);
  for (int round = 0; round < count; ++round) {
    const std::int64_t before = total();
    session.start();
    const std::int64_t running = session.snapshot(trapline::Text::kNone).value("calls");
    while (session.snapshot(trapline::Text::kNone).value("calls") == counted) {
      std::this_thread::yield();
    }
    session.stop();
    const std::int64_t after = total();
    const std::int64_t now = session.snapshot(trapline::Text::kNone).value("calls");
    EXPECT_GE(now, running);
    EXPECT_GT(now, counted) << "round " << round;
    EXPECT_LE(now - counted, after - before + kThreads) << "round " << round;
    counted = now;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadsTest, ThreadsThatComeAndGo) {
  trapline::Session session = trapline::Session::self();
  session.compile(
      "pid$target:libc:malloc:entry /arg0 == 100/ { @calls = count(); @by[tid] = count(); }");
  session.start();
  const int count = rounds(20);
  for (int round = 0; round < count; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 10; ++i) allocate();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  session.stop();
  const trapline::Snapshot snapshot = session.snapshot();
  EXPECT_EQ(std::int64_t{count} * kThreads * 10, snapshot["calls"].value());
  std::int64_t sum = 0;
  for (const trapline::Entry& entry : snapshot["by"]) sum += entry.value();
  EXPECT_EQ(snapshot["calls"].value(), sum);
}

// Calls on one session from many threads, and sessions in several threads at once.
TEST(ThreadsTest, SessionsFromAnyThread) {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const char* functions[] = {"rand", "atoi", "getppid", "labs"};
      trapline::Session session = trapline::Session::self();
      session.compile(std::string("pid$target:libc:") + functions[t] +
                      ":entry { @calls = count(); }");
      for (int round = 0; round < 5; ++round) {
        session.start();
        std::thread([&] { session.snapshot(); }).join();
        session.stop();
      }
      ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(4, right);
}

}  // namespace
