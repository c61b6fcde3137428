// A thread for ptrace calls, whose end makes the kernel let go of every thread it still traces, at
// whatever state.
//
// ptrace binds a tracee to the thread that seized it, and a tracee that cannot be stopped (a vfork
// parent, a thread in an uninterruptible wait) cannot be detached. Ending the tracing thread is the
// one way that always works.

#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace trapline::target {

class PtraceThread {
 public:
  PtraceThread();
  PtraceThread(PtraceThread&&) = delete;
  ~PtraceThread();  // waits for the running call, then ends the thread

  // Runs `f` on the thread and returns what it returned. Attachments must be made, used and
  // destroyed in such calls.
  template <typename F>
  auto run(F&& f) -> std::invoke_result_t<F> {
    using R = std::invoke_result_t<F>;
    if constexpr (std::is_void_v<R>) {
      run_task([&] { std::forward<F>(f)(); });
    } else {
      std::optional<R> result;
      run_task([&] { result.emplace(std::forward<F>(f)()); });
      return std::move(*result);
    }
  }

 private:
  void run_task(const std::function<void()>& task);
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trapline::target
