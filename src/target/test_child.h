// For this folder's tests: a forked child that runs a function, with a page shared with the test;
// it dies with the test.

#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <thread>

#include "base/address.h"
#include "target/wait.h"

namespace trapline::target::testing {

struct Shared {
  std::atomic<std::uint64_t> ready{0};
  std::atomic<std::uint64_t> stop{0};
  std::atomic<std::uint64_t> counters[32]{};
};

class TestChild {
 public:
  template <typename F>
  explicit TestChild(F function) {
    void* page =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (page) Shared;
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(99);
      ::_exit(function(*shared_));
    }
  }
  TestChild(const TestChild&) = delete;
  TestChild& operator=(const TestChild&) = delete;
  ~TestChild() {
    if (!waited_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, __WALL);
    }
    ::munmap(shared_, sizeof(Shared));
  }

  Pid pid() const { return Pid{pid_}; }
  Shared& shared() { return *shared_; }

  // Waits until the child has counted `ready` up to `n`; false: not within half a minute.
  bool await_ready(std::uint64_t n = 1) const {
    return eventually([&] { return shared_->ready.load() >= n; });
  }
  static bool eventually(const std::function<bool()>& condition) {
    const auto deadline = Clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  // Takes the child's status; -1: it has not ended within half a minute.
  int wait() {
    int status = -1;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    waited_ = true;
    return status;
  }
  // After an event told of the end: the status was taken.
  void taken() { waited_ = true; }

 private:
  Shared* shared_;
  pid_t pid_ = 0;
  bool waited_ = false;
};

}  // namespace trapline::target::testing
