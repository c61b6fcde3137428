// How the parts of a Tracee (tracee*.cc) stop its process, on the thread that may.

#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "session/tracee.h"

namespace trapline::session {

inline void pause_for(std::chrono::milliseconds time) {
  const timespec rest{time.count() / 1000, time.count() % 1000 * 1'000'000};
  nanosleep(&rest, nullptr);
}

// A site that a thread is in the midst of, and code that a thread is in, are looked at again this
// often.
inline constexpr int kTries = 50;

inline std::chrono::milliseconds pause_before_try(int n) {
  constexpr std::chrono::milliseconds kLongest{20};
  return std::min(std::chrono::milliseconds(1 + n), kLongest);
}

inline bool is_gone(const Error& error) { return error.code() == ErrorCode::kTargetGone; }

// ptrace calls come from the thread that attached.
template <typename F>
auto Tracee::on_owner(F&& f) {
  return server_ ? server_->run(std::forward<F>(f)) : f();
}

template <typename F>
Result<> Tracee::while_stopped(std::string_view purpose, F f) {
  return on_owner([&] { return stop_and(purpose, f); });
}

template <typename F>
Result<> Tracee::stop_and(std::string_view purpose, F& f) {
  if (held_) return f(*held_);
  TL_TRY(seize());
  TL_TRY_ASSIGN(target::StoppedProcess process, attachment()->stop());
  const Result<> done = f(process);
  note_stop(purpose, process.stopped_for());
  const Result<> resumed = process.resume();
  if (!done) return done;
  return resumed;
}

// The same, again and again where it cannot be stopped.
template <typename F>
Result<> Tracee::insist(std::chrono::steady_clock::time_point deadline, std::string_view purpose,
                        F f) {
  for (;;) {
    const Result<> done = while_stopped(purpose, f);
    const bool again = !done && done.error().code() == ErrorCode::kTimeout &&
                       std::chrono::steady_clock::now() < deadline;
    if (!again) return done;
  }
}

}  // namespace trapline::session
