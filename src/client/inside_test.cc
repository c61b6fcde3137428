#include "client/inside.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "client/syscalls.h"

namespace trapline::client {
namespace {

volatile sig_atomic_t handled = 0;
volatile sig_atomic_t handled_inside = 0;

void handler(int) {
  handled = handled + 1;
  if (Inside::active()) handled_inside = handled_inside + 1;
}

class InsideTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer puts signals off until its next interceptor";
#endif
    handled = 0;
    handled_inside = 0;
    struct sigaction action{};
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, &before_);
  }
  void TearDown() override {
    if (!IsSkipped()) sigaction(SIGUSR1, &before_, nullptr);
  }

 private:
  struct sigaction before_{};
};

std::uint64_t current_mask() {
  std::uint64_t mask = 0;
  system_call(SYS_rt_sigprocmask, 0, 0, as_long(&mask), sizeof mask);
  return mask;
}

TEST_F(InsideTest, TheWordIsFoundByItsOffsetInEveryThread) {
  const auto read = [] {
    return *reinterpret_cast<const std::uint32_t*>(thread_pointer() + Inside::word_offset());
  };
  EXPECT_LT(Inside::word_offset(), 0);
  EXPECT_EQ(0u, read());
  const Inside inside;
  EXPECT_EQ(1u, read());
  std::uint32_t before = 9;
  std::uint32_t within = 9;
  std::thread([&] {
    before = read();
    const Inside other;
    const Inside nested;
    within = read();
  }).join();
  EXPECT_EQ(0u, before);
  EXPECT_EQ(2u, within);
}

TEST_F(InsideTest, SignalsWaitUntilItIsLeft) {
  const std::uint64_t mask = current_mask();
  {
    const Inside inside;
    raise(SIGUSR1);
    EXPECT_EQ(0, handled);
  }
  EXPECT_EQ(1, handled);
  EXPECT_EQ(0, handled_inside);
  EXPECT_EQ(mask, current_mask());
}

TEST_F(InsideTest, FaultsAreNotHeldBack) {
  const Inside inside;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
    EXPECT_EQ(0u, current_mask() >> (signal - 1) & 1) << signal;
  }
  EXPECT_EQ(1u, current_mask() >> (SIGTERM - 1) & 1);
  EXPECT_EQ(1u, current_mask() >> (33 - 1) & 1) << "libc's own are held back, too";
}

TEST_F(InsideTest, APollIsOutside) {
  const Inside inside;
  raise(SIGUSR1);
  pollfd nothing{-1, 0, 0};
  EXPECT_EQ(-EINTR, inside.poll({&nothing, 1}, std::nullopt));
  EXPECT_EQ(1, handled);
  EXPECT_EQ(0, handled_inside);
  EXPECT_TRUE(Inside::active());
  EXPECT_EQ(1u, current_mask() >> (SIGUSR1 - 1) & 1);
}

TEST_F(InsideTest, APollKeepsTheProgramsOwnMask) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  {
    const Inside inside;
    raise(SIGUSR1);
    pollfd nothing{-1, 0, 0};
    EXPECT_EQ(0, inside.poll({&nothing, 1}, deadline_after(1)));
    EXPECT_EQ(0, handled);
  }
  EXPECT_EQ(0, handled);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  EXPECT_EQ(1, handled);
}

TEST_F(InsideTest, OutsideIsAsItWas) {
  const Inside inside;
  raise(SIGUSR1);
  {
    const Outside outside(inside);
    EXPECT_EQ(1, handled);
    EXPECT_EQ(0, handled_inside);
    EXPECT_FALSE(Inside::active());
    const Inside again;
    EXPECT_TRUE(Inside::active());
  }
  EXPECT_TRUE(Inside::active());
  raise(SIGUSR1);
  EXPECT_EQ(1, handled);
}

TEST_F(InsideTest, CancellationIsOff) {
  int left = 0;
  std::thread thread([&] {
    const Inside inside;
    pthread_cancel(pthread_self());
    pthread_testcancel();
    left = 1;
    int state = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    EXPECT_EQ(PTHREAD_CANCEL_DISABLE, state);
  });
  thread.join();
  EXPECT_EQ(1, left);
}

}  // namespace
}  // namespace trapline::client
