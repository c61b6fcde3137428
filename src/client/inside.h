// Being inside the library: what a thread does there is not seen by sessions of the same process.
//
// A 32-bit word of each thread is not 0 meanwhile; probe bodies look at it (the helper is told its
// offset from the thread pointer) and pass by. A signal handler of the program's that ran now would
// be passed by as well, so signals are blocked; except those that stand for a fault of the very
// thread, which the kernel does not hold back. Where the library waits, the word is 0 and the mask
// the program's own: handlers run, and are seen.
//
// The order matters: signals first, then the word; on the way out the word first.
//
// Cancellation is off meanwhile, in waits and callbacks too: no function of the library is a
// cancellation point, and a thread that was cancelled within would leave locks behind.

#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

namespace trapline::client {

using Clock = std::chrono::steady_clock;
// When a wait ends; nullopt: never.
using Deadline = std::optional<Clock::time_point>;

inline Deadline deadline_after(int milliseconds) {
  if (milliseconds < 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

// On the stack, around everything that a public function does. Nests.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  // poll(2), outside. Returns the number of ready descriptors, 0 when the deadline has passed, or
  // -errno; -EINTR: a handler has run.
  int poll(std::span<pollfd> fds, Deadline deadline) const;

  // The word's place: &word - thread pointer. The same in all threads.
  static std::intptr_t word_offset();
  // Whether this thread is inside.
  static bool active();

 private:
  friend class Outside;
  int cancel_state_ = 0;
  std::uint64_t mask_ = 0;  // the program's, as the kernel has it: bit n-1 is signal n
};

// On the stack, within an Inside: the thread is as it was before it entered the library.
class Outside {
 public:
  explicit Outside(const Inside& inside);
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  int word_;
};

// The mask that is set inside.
std::uint64_t blocked_signals();
// Sets the thread's mask; returns the one before.
std::uint64_t set_signal_mask(std::uint64_t mask);

}  // namespace trapline::client
