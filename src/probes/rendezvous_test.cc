#include "probes/rendezvous.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "isa/x86_64/verify.h"
#include "wire/arena.h"

namespace trapline::probes {
namespace {

class EveryKind : public testing::TestWithParam<RendezvousKind> {};
INSTANTIATE_TEST_SUITE_P(Rendezvous, EveryKind,
                         testing::Values(RendezvousKind::kExec, RendezvousKind::kLoad,
                                         RendezvousKind::kFork, RendezvousKind::kClone));

TEST_P(EveryKind, StubPassesTheVerifier) {
  const std::vector<std::byte> stub = rendezvous_stub(GetParam());
  isa::VerifyRequest request;
  request.blob = stub;
  request.code = {{0, stub.size()}};
  request.entries = {0};
  request.system_calls = isa::SystemCalls::kAllowed;
  const auto report = isa::verify_code(request);
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_EQ(report->system_calls, 5u);
}

class Stub {
 public:
  explicit Stub(RendezvousKind kind = RendezvousKind::kExec)
      : code_(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0)) {
    const std::vector<std::byte> stub = rendezvous_stub(kind);
    std::memcpy(code_, stub.data(), stub.size());
  }
  ~Stub() { ::munmap(code_, 4096); }

  // Calls it as a trampoline does; returns rax, which it was given as 0x1234.
  std::uint64_t call(const wire::ProbeSite& site, std::uint64_t third = 0) const {
    std::uint64_t result = 0x1234;
    asm volatile("mov %[site], %%r10\n call *%[code]"
                 : "+a"(result)
                 : [site] "r"(&site), [code] "r"(code_), "d"(third)
                 : "r10", "r11", "cc", "memory");
    return result;
  }

 private:
  void* code_;
};

struct Fixture {
  wire::Header header{};
  std::uint32_t alive = 1;
  wire::ProbeSite site{};
  wire::Request request;
  wire::RequestWord& word() { return header.requests[request]; }
  explicit Fixture(RendezvousKind kind = RendezvousKind::kExec) : request(request_of(kind)) {
    header.state = wire::kActive;
    header.pid = getpid();
    site.arena = reinterpret_cast<std::uint64_t>(&header);
    site.alive = reinterpret_cast<std::uint64_t>(&alive);
  }
};

TEST(Rendezvous, WaitsWhenNobodyComesAndTakesItsRequestBack) {
  Fixture f;
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(Stub().call(f.site), 0x1234u);
  EXPECT_GE(std::chrono::steady_clock::now() - before,
            kRendezvousWait - std::chrono::milliseconds(1));
  EXPECT_EQ(f.word().thread, 0u);
  EXPECT_EQ(f.word().missed, 1u);
  EXPECT_EQ(f.header.doorbell, 1u);
}

TEST(Rendezvous, DoesNotWaitWhereItIsNotMeant) {
  for (int which = 0; which < 4; ++which) {
    Fixture f;
    if (which == 0) f.alive = 0;                      // a forked child
    if (which == 1) f.header.state = 0;               // tracing has ended
    if (which == 2) f.header.pid = getpid() + 1;      // a vfork child
    if (which == 3) f.word().missed = kMissesInARow;  // nobody is there
    const std::uint32_t missed = f.word().missed;
    EXPECT_EQ(Stub().call(f.site), 0x1234u);
    EXPECT_EQ(f.word().thread, 0u) << which;
    EXPECT_EQ(f.word().missed, missed) << which;
    EXPECT_EQ(f.header.doorbell, 0u) << which;
  }
}

TEST(Rendezvous, MakingAThreadIsNoFork) {
  Fixture f(RendezvousKind::kClone);
  EXPECT_EQ(Stub(RendezvousKind::kClone).call(f.site, CLONE_VM | CLONE_THREAD), 0x1234u);
  EXPECT_EQ(f.header.doorbell, 0u);
  EXPECT_EQ(Stub(RendezvousKind::kClone).call(f.site, CLONE_VM), 0x1234u);
  EXPECT_EQ(f.header.doorbell, 1u);
}

// The tracer's part: waits for a request, and answers.
class Answerer {
 public:
  Answerer(Fixture& f, int answers, bool seen_first)
      : thread_([&f, answers, seen_first] {
          for (int n = 0; n < answers; ++n) {
            std::uint32_t there = 0;
            while (there == 0) there = __atomic_load_n(&f.word().thread, __ATOMIC_ACQUIRE);
            if (seen_first) {
              __atomic_store_n(&f.word().thread, there | wire::kRequestSeen, __ATOMIC_RELEASE);
              std::this_thread::sleep_for(2 * kRendezvousWait);
            }
            __atomic_store_n(&f.word().thread, 0, __ATOMIC_RELEASE);
            ::syscall(SYS_futex, &f.word().thread, FUTEX_WAKE, 100, nullptr, nullptr, 0);
          }
        }) {}
  ~Answerer() { thread_.join(); }

 private:
  std::thread thread_;
};

TEST(Rendezvous, GoesOnWhenItIsAnswered) {
  Fixture f;
  {
    const Answerer answerer(f, 3, false);
    for (int n = 0; n < 3; ++n) EXPECT_EQ(Stub().call(f.site), 0x1234u);
  }
  EXPECT_EQ(f.word().missed, 0u);
  EXPECT_EQ(f.header.doorbell, 3u);
}

TEST(Rendezvous, WaitsLongerForATracerThatIsAtIt) {
  Fixture f;
  {
    const Answerer answerer(f, 1, true);
    EXPECT_EQ(Stub().call(f.site), 0x1234u);
  }
  EXPECT_EQ(f.word().missed, 0u);
}

TEST(Rendezvous, ThreadsWaitForTheirTurn) {
  Fixture f;
  constexpr int kThreads = 4;
  constexpr int kCalls = 50;
  {
    const Answerer answerer(f, kThreads * kCalls, false);
    const Stub stub;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int n = 0; n < kCalls; ++n) EXPECT_EQ(stub.call(f.site), 0x1234u);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(f.word().missed, 0u);
  EXPECT_EQ(f.header.doorbell, static_cast<std::uint32_t>(kThreads * kCalls));
}

}  // namespace
}  // namespace trapline::probes
