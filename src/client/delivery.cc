#include "client/delivery.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "client/session.h"
#include "client/syscalls.h"

namespace trapline::client {

bool Delivery::is_this_thread() const {
  return tid_.load(std::memory_order_relaxed) == system_call(SYS_gettid);
}

void Delivery::wake() {
  const std::uint64_t one = 1;
  system_call(SYS_write, control_.get(), as_long(&one), sizeof one);
}

Outcome<> Delivery::start(const std::shared_ptr<Session>& session) {
  const long made = system_call(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made < 0) return os_failure("making an event descriptor", made);
  control_ = Fd(static_cast<int>(made));
  auto argument = std::make_unique<std::shared_ptr<Session>>(session);
  // It inherits this thread's mask, in which (inside) all signals are blocked but those for faults.
  const int error = pthread_create(&thread_, nullptr, thread_main, argument.get());
  if (error != 0) return os_failure("starting the thread that delivers records", -error);
  static_cast<void>(argument.release());
  started_ = true;
  return {};
}

Outcome<> Delivery::set_callback(const std::shared_ptr<Session>& session,
                                 trapline_record_callback callback, void* user,
                                 const Inside& inside) {
  const auto set = [&] {
    callback_ = callback;
    user_ = user;
    has_callback_.store(callback != nullptr, std::memory_order_release);
  };
  if (is_this_thread()) {
    set();  // by a callback: this thread holds the lock
    return {};
  }
  const Holding thread_holding(thread_lock_, inside);
  if (!started_) {
    if (callback == nullptr) return {};
    TC_TRY(start(session));
  }
  {
    const Holding holding(lock_, inside);
    set();
  }
  wake();
  return {};
}

void Delivery::stop(const Inside& inside) {
  stopping_.store(true, std::memory_order_release);
  if (is_this_thread()) {
    pthread_detach(pthread_self());
    return;
  }
  const Holding thread_holding(thread_lock_, inside);
  if (!std::exchange(started_, false)) return;
  wake();
  // Not in pthread_join(): a callback may take its time, and this thread's signals are blocked.
  while (finished_.load(std::memory_order_acquire) == 0) futex_wait(inside, finished_, 0);
  pthread_join(thread_, nullptr);
}

void* Delivery::thread_main(void* argument) {
  // Never left: what libc does at the thread's end is our doing, too.
  alignas(Inside) std::byte storage[sizeof(Inside)];
  const Inside& inside = *new (storage) Inside;
  std::shared_ptr<Session> session;
  {
    const std::unique_ptr<std::shared_ptr<Session>> owned(
        static_cast<std::shared_ptr<Session>*>(argument));
    session = std::move(*owned);
  }
  Delivery& self = session->delivery();
  self.tid_.store(static_cast<int>(system_call(SYS_gettid)), std::memory_order_relaxed);
  self.run(*session, inside);
  self.finished_.store(1, std::memory_order_release);
  futex_wake_all(self.finished_);
  return nullptr;
}

void Delivery::run(Session& session, const Inside& inside) {
  bool more = true;
  while (!is_stopping()) {
    pollfd fds[2] = {{control_.get(), POLLIN, 0}, {-1, POLLIN, 0}};  // -1 is passed over
    try {
      const bool wanted = has_callback_.load(std::memory_order_acquire);
      if (wanted && more) more = deliver(session, inside);
      if (wanted && more) {
        const Outcome<int> arrivals = session.pollable(inside);
        if (arrivals) fds[1].fd = *arrivals;
      }
    } catch (const std::bad_alloc&) {
      // What has been read stays queued; it is tried again when something else happens.
    }
    if (is_stopping()) break;
    inside.poll(fds, std::nullopt);
    if (fds[0].revents != 0) {
      std::uint64_t count = 0;
      system_call(SYS_read, control_.get(), as_long(&count), sizeof count);
    }
  }
}

bool Delivery::deliver(Session& session, const Inside& inside) {
  const Holding holding(lock_, inside);
  if (callback_ == nullptr) return true;
  Outcome<std::unique_ptr<RecordBatch>> taken = session.take_one(inside);
  if (!taken) return false;
  std::unique_ptr<RecordBatch> batch = std::move(*taken);
  if (batch == nullptr) return true;
  while (batch->next < batch->records.size()) {
    if (is_stopping()) return true;
    if (callback_ == nullptr) {
      session.put_back(std::move(batch), inside);
      return true;
    }
    const trapline_record& record = batch->records[batch->next++];
    const Outside outside(inside);
    callback_(&record, user_);
  }
  return true;
}

}  // namespace trapline::client
