// A mutex whose waiting takes place outside (inside.h): a call that waits for another thread's call
// on the same session holds no signal back, and is no cancellation point.
//
// Not recursive, not fair, not usable across processes. After fork() the child's copy stays as it
// was at that moment.

#pragma once

#include <atomic>
#include <cstdint>

#include "client/inside.h"

namespace trapline::client {

// Waits, outside, while *word == expected; may return for no reason.
void futex_wait(const Inside& inside, std::atomic<std::uint32_t>& word, std::uint32_t expected);
void futex_wake_all(std::atomic<std::uint32_t>& word);

class Lock {
 public:
  void lock(const Inside& inside);
  bool try_lock();
  void unlock();
  bool is_held() const { return state_.load(std::memory_order_relaxed) != kFree; }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kAwaited = 2;  // held, and somebody may be waiting
  std::atomic<std::uint32_t> state_{kFree};
};

// Holds a lock while it lives; release() ends that early.
class Holding {
 public:
  Holding(Lock& lock, const Inside& inside) : lock_(&lock) { lock.lock(inside); }
  explicit Holding(Lock& lock) : lock_(lock.try_lock() ? &lock : nullptr) {}  // tries
  ~Holding() { release(); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

  explicit operator bool() const { return lock_ != nullptr; }
  void release() {
    if (lock_ != nullptr) lock_->unlock();
    lock_ = nullptr;
  }

 private:
  Lock* lock_;
};

}  // namespace trapline::client
