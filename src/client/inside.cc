#include "client/inside.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "client/syscalls.h"

namespace trapline::client {
namespace {

// Initial-exec: at a fixed distance from the thread pointer in every thread, and reached without a
// call, also when the library was loaded by dlopen().
__thread volatile int mute_word __attribute__((tls_model("initial-exec"))) = 0;

constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }
constexpr std::uint64_t kFaults =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS);

void set_word(int value) {
  asm volatile("" ::: "memory");
  mute_word = value;
  asm volatile("" ::: "memory");
}

}  // namespace

std::uint64_t blocked_signals() { return ~kFaults; }

std::uint64_t set_signal_mask(std::uint64_t mask) {
  std::uint64_t before = 0;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, as_long(&mask), as_long(&before), sizeof mask);
  return before;
}

Inside::Inside() {
  const std::uint64_t blocked = blocked_signals();
  system_call(SYS_rt_sigprocmask, SIG_BLOCK, as_long(&blocked), as_long(&mask_), sizeof blocked);
  set_word(mute_word + 1);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
}

Inside::~Inside() {
  pthread_setcancelstate(cancel_state_, nullptr);
  set_word(mute_word - 1);
  set_signal_mask(mask_);
}

int Inside::poll(std::span<pollfd> fds, Deadline deadline) const {
  timespec left{};
  if (deadline) {
    const auto rest =
        std::chrono::duration_cast<std::chrono::nanoseconds>(*deadline - Clock::now());
    if (rest.count() > 0) {
      left.tv_sec = rest.count() / 1'000'000'000;
      left.tv_nsec = rest.count() % 1'000'000'000;
    }
  }
  const int word = mute_word;
  set_word(0);
  // The kernel sets the mask and waits in one step: no handler can run between them unseen.
  const long result = system_call(SYS_ppoll, as_long(fds.data()), static_cast<long>(fds.size()),
                                  deadline ? as_long(&left) : 0, as_long(&mask_), sizeof mask_);
  set_word(word);
  return static_cast<int>(result);
}

std::intptr_t Inside::word_offset() {
  return reinterpret_cast<std::intptr_t>(&mute_word) - thread_pointer();
}

bool Inside::active() { return mute_word != 0; }

Outside::Outside(const Inside& inside) : word_(mute_word) {
  set_word(0);
  set_signal_mask(inside.mask_);
}

// What the program did to the mask meanwhile, in a callback, is undone when the library is left: as
// with any function that saves and restores it.
Outside::~Outside() {
  const std::uint64_t blocked = blocked_signals();
  system_call(SYS_rt_sigprocmask, SIG_BLOCK, as_long(&blocked), 0, sizeof blocked);
  set_word(word_);
}

}  // namespace trapline::client
