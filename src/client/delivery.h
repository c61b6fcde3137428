// The one thread that the library may have: it hands records to a callback.
//
// It is started when a callback is set for the first time, with all signals blocked, and inside
// (inside.h) but for the callback. It holds the delivering lock while it delivers a batch, so
// setting another callback waits for it. It keeps its session alive until it ends: a callback may
// destroy it.

#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

#include "base/fd.h"
#include "client/failure.h"
#include "client/inside.h"
#include "client/lock.h"
#include "client/model.h"

namespace trapline::client {

class Session;

class Delivery {
 public:
  // Starts the thread if need be. `session` is the one that this is part of.
  Outcome<> set_callback(const std::shared_ptr<Session>& session, trapline_record_callback callback,
                         void* user, const Inside& inside);
  // Ends the thread and waits for its end, unless called by it: then it ends when its callback has
  // returned.
  void stop(const Inside& inside);
  bool is_busy() const { return lock_.is_held() || thread_lock_.is_held(); }

 private:
  static void* thread_main(void* argument);
  void run(Session& session, const Inside& inside);
  // Delivers one batch if there is one. False: there will be no more.
  bool deliver(Session& session, const Inside& inside);
  Outcome<> start(const std::shared_ptr<Session>& session);
  bool is_this_thread() const;
  bool is_stopping() const { return stopping_.load(std::memory_order_acquire); }
  void wake();

  // Taken in this order. The thread itself takes lock_ only.
  Lock thread_lock_;  // starting and ending the thread
  Lock lock_;         // held while callbacks run

  trapline_record_callback callback_ = nullptr;
  void* user_ = nullptr;

  bool started_ = false;
  pthread_t thread_{};
  Fd control_;               // an eventfd: look at what has changed
  std::atomic<int> tid_{0};  // the thread's
  std::atomic<bool> has_callback_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> finished_{0};  // a futex
};

}  // namespace trapline::client
