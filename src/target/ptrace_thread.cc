#include "target/ptrace_thread.h"

namespace trapline::target {

PtraceThread::PtraceThread() : thread_([this] { loop(); }) {}

PtraceThread::~PtraceThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PtraceThread::run_task(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task_ == nullptr; });  // another caller's is running
  task_ = &task;
  changed_.notify_all();
  changed_.wait(lock, [&] { return task_ != &task; });
}

void PtraceThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || task_ != nullptr; });
    if (task_ == nullptr) return;
    const auto* task = task_;
    lock.unlock();
    (*task)();
    lock.lock();
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace trapline::target
