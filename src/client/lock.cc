#include "client/lock.h"

#include <linux/futex.h>

#include <climits>

#include "client/syscalls.h"

namespace trapline::client {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

void futex_wait(const Inside& inside, std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  const Outside outside(inside);
  system_call(SYS_futex, as_long(&word), FUTEX_WAIT_PRIVATE, expected);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  system_call(SYS_futex, as_long(&word), FUTEX_WAKE_PRIVATE, INT_MAX);
}

bool Lock::try_lock() {
  std::uint32_t free = kFree;
  return state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire);
}

void Lock::lock(const Inside& inside) {
  if (try_lock()) return;
  while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    futex_wait(inside, state_, kAwaited);
  }
}

void Lock::unlock() {
  if (state_.exchange(kFree, std::memory_order_release) == kAwaited) {
    system_call(SYS_futex, as_long(&state_), FUTEX_WAKE_PRIVATE, 1);
  }
}

}  // namespace trapline::client
