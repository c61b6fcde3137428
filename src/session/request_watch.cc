#include "session/request_watch.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <utility>

namespace trapline::session {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kNap{50};
// How long nothing is looked at where the kernel cannot wait for all bells.
constexpr milliseconds kTurn{2};
constexpr milliseconds kLongWait{1000};

#ifndef SYS_futex_waitv
constexpr long SYS_futex_waitv = 449;
#endif
// struct futex_waitv, which older headers do not have.
struct Waiter {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr std::uint32_t kFutex32 = 2;
constexpr std::uint32_t kPrivate = 128;
constexpr std::size_t kMostWaiters = 128;

void nap(microseconds time) {
  const timespec rest{0, time.count() * 1000};
  nanosleep(&rest, nullptr);
}

timespec after(milliseconds time) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const long ns = now.tv_nsec + time.count() % 1000 * 1'000'000;
  return {now.tv_sec + time.count() / 1000 + ns / 1'000'000'000, ns % 1'000'000'000};
}

// The tracer's loop may be busy for longer than the thread would wait for a tracer that is dead.
void mark_seen(wire::Header& header) {
  for (wire::RequestWord& request : header.requests) {
    std::uint32_t there = __atomic_load_n(&request.thread, __ATOMIC_ACQUIRE);
    if (there == 0 || (there & wire::kRequestSeen) != 0) continue;
    __atomic_compare_exchange_n(&request.thread, &there, there | wire::kRequestSeen, false,
                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
}

}  // namespace

RequestWatch::~RequestWatch() {
  if (!thread_.joinable()) return;
  over_ = true;
  watch({});
  thread_.join();
}

void RequestWatch::watch(std::vector<wire::Header*> arenas) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<Watched> watched;
    for (wire::Header* header : arenas) {
      const auto known = std::ranges::find(watched_, header, &Watched::header);
      // Of a new one everything counts as news: it may have rung already.
      watched.push_back(
          known != watched_.end()
              ? *known
              : Watched{header, __atomic_load_n(&header->doorbell, __ATOMIC_ACQUIRE) - 1});
    }
    watched_ = std::move(watched);
    ++changed_;
  }
  ::syscall(SYS_futex, &changed_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  if (arenas.empty() || thread_.joinable()) return;
  event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // No signal is this thread's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void RequestWatch::take() {
  std::uint64_t count = 0;
  if (event_) (void)!::read(event_.get(), &count, sizeof(count));
}

bool RequestWatch::look() {
  bool rang = false;
  for (Watched& watched : watched_) {
    const std::uint32_t bell = __atomic_load_n(&watched.header->doorbell, __ATOMIC_ACQUIRE);
    if (bell == watched.seen) continue;
    watched.seen = bell;
    mark_seen(*watched.header);
    rang = true;
  }
  return rang;
}

void RequestWatch::run() {
  bool waits = true;  // the kernel has futex_waitv
  while (!over_) {
    std::vector<Waiter> waiters;
    bool rang = false;
    bool all = true;
    {
      const std::lock_guard lock(mutex_);
      rang = look();
      waiters.push_back(
          {changed_, reinterpret_cast<std::uint64_t>(&changed_), kFutex32 | kPrivate, 0});
      for (const Watched& watched : watched_) {
        if (waiters.size() == kMostWaiters) all = false;
        if (!all) break;
        waiters.push_back({watched.seen, reinterpret_cast<std::uint64_t>(&watched.header->doorbell),
                           kFutex32, 0});
      }
    }
    if (rang) {
      const std::uint64_t one = 1;
      (void)!::write(event_.get(), &one, sizeof(one));
      nap(kNap);
      continue;
    }
    const timespec deadline = after(all && waits ? kLongWait : kTurn);
    // An arena that was unmapped meanwhile gives EFAULT; the next round does not know it any more.
    const long got = waits ? ::syscall(SYS_futex_waitv, waiters.data(), waiters.size(), 0,
                                       &deadline, CLOCK_MONOTONIC)
                           : (nap(kTurn), 0L);
    if (got < 0 && errno == ENOSYS) waits = false;
    if (got < 0 && errno == EFAULT) nap(kNap);
  }
}

}  // namespace trapline::session
