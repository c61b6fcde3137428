#include "probes/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "isa/x86_64/verify.h"
#include "wire/arena.h"

namespace trapline::probes {
namespace {

TEST(Rendezvous, StubPassesTheVerifier) {
  const std::vector<std::byte> stub = rendezvous_stub();
  isa::VerifyRequest request;
  request.blob = stub;
  request.code = {{0, stub.size()}};
  request.entries = {0};
  request.system_calls = isa::SystemCalls::kAllowed;
  const auto report = isa::verify_code(request);
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_EQ(report->system_calls, 3u);
}

class Stub {
 public:
  Stub()
      : code_(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0)) {
    const std::vector<std::byte> stub = rendezvous_stub();
    std::memcpy(code_, stub.data(), stub.size());
  }
  ~Stub() { ::munmap(code_, 4096); }

  // Calls it as a trampoline does; returns rax, which it was given as 0x1234.
  std::uint64_t call(const wire::ProbeSite& site) const {
    std::uint64_t result = 0x1234;
    asm volatile("mov %[site], %%r10\n call *%[code]"
                 : "+a"(result)
                 : [site] "r"(&site), [code] "r"(code_)
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
  Fixture() {
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
  EXPECT_EQ(f.header.exec_request, 0u);
}

TEST(Rendezvous, DoesNotWaitWhereItIsNotMeant) {
  for (int which = 0; which < 4; ++which) {
    Fixture f;
    if (which == 0) f.alive = 0;                  // a forked child
    if (which == 1) f.header.state = 0;           // tracing has ended
    if (which == 2) f.header.pid = getpid() + 1;  // a vfork child
    if (which == 3) f.header.exec_request = 1;    // another thread is at it
    const std::uint32_t request = f.header.exec_request;
    const auto before = std::chrono::steady_clock::now();
    EXPECT_EQ(Stub().call(f.site), 0x1234u);
    EXPECT_LT(std::chrono::steady_clock::now() - before, kRendezvousWait / 2) << which;
    EXPECT_EQ(f.header.exec_request, request);
  }
}

}  // namespace
}  // namespace trapline::probes
