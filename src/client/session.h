// A session: one helper, one socket, one traced process.
//
// Threads: a lock is held from a request to its answer, so calls queue up. Whoever reads the socket
// meanwhile (a request that waits for its answer, a dispatch, a wait) finds notifications among the
// lines and queues them; callbacks are called without the lock.
//
// Descriptors for waiting are made when they are first needed:
//   event        readable while the queue holds something, or after the helper has gone
//   ended event  readable from the end of tracing on
//   epoll        what programs get to poll: the socket and the event
//
// After fork() the child's copy is inert: every call compares the process's id first.

#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "client/channel.h"
#include "client/delivery.h"
#include "client/failure.h"
#include "client/inside.h"
#include "client/json.h"
#include "client/lock.h"
#include "client/model.h"
#include "client/record_queue.h"
#include "client/request.h"

namespace trapline::client {

inline constexpr int kProtocolVersion = 1;
inline constexpr int kDefaultTimeout = 120'000;  // milliseconds
// How long destroying a session waits for the helper to put everything back.
inline constexpr int kCloseTimeout = 30'000;
inline constexpr std::size_t kQueueLimit = std::size_t{16} << 20;
inline constexpr std::size_t kQueueLimitWithoutRecords = std::size_t{64} << 10;

// What is to be traced.
struct Target {
  enum class Kind { kSelf, kProcess, kCommand };
  Kind kind = Kind::kSelf;
  int pid = 0;                         // kProcess
  std::vector<std::string> arguments;  // kCommand
  bool has_standard_files = false;     // kCommand: the helper has ours as kStandardFiles
};

// The other end of a session: a started helper, or a test.
struct Helper {
  Fd socket;
  int pid = 0;
  std::string path;
};

class Session {
 public:
  // Starts a helper and opens a session.
  static Outcome<std::shared_ptr<Session>> open(Target target, unsigned flags,
                                                const Inside& inside);
  // The same with a helper that is there.
  static Outcome<std::shared_ptr<Session>> open_with(Helper helper, const Target& target,
                                                     unsigned flags, const Inside& inside);
  Session(Helper helper, unsigned flags);

  // FORKED: this process is not the one that made it. Every other function wants this to hold.
  Outcome<> check_owner() const;

  using ReportPointer = std::unique_ptr<trapline_report>;
  // On COMPILE *mistakes is set as well.
  Outcome<ReportPointer> compile(const trapline_program& program, ReportPointer* mistakes,
                                 const Inside& inside);
  // UNSUPPORTED: no place could be probed, so that all counts would be 0; it is stopped.
  Outcome<ReportPointer> start(const Inside& inside);
  Outcome<ReportPointer> stop(const Inside& inside);
  Outcome<std::unique_ptr<trapline_snapshot>> snapshot(unsigned flags, const Inside& inside);
  Outcome<> clear(const Inside& inside);
  Outcome<> wait(int milliseconds, const Inside& inside);
  // Ends the helper; everything fails from now on. Puts no end to the delivering thread.
  void close(const Inside& inside);

  // A descriptor for programs to poll.
  Outcome<int> pollable(const Inside& inside);
  // What has arrived, without waiting for more; empty: nothing, or another thread is at it.
  // HELPER_GONE: nothing is left and nothing will come.
  Outcome<std::vector<std::unique_ptr<RecordBatch>>> take_arrived();
  // The oldest batch; nullptr: none. Waits for other threads' calls.
  Outcome<std::unique_ptr<RecordBatch>> take_one(const Inside& inside);
  void put_back(std::unique_ptr<RecordBatch> batch, const Inside& inside);
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  Delivery& delivery() { return delivery_; }
  int pid() const { return pid_; }
  int helper_pid() const { return helper_pid_; }
  void set_timeout(int milliseconds) { timeout_.store(milliseconds, std::memory_order_relaxed); }
  // In a forked child: whether another thread was at it when the process forked.
  bool was_in_use() const { return lock_.is_held() || delivery_.is_busy(); }

 private:
  // All these with the lock held.
  Outcome<> handshake(const Target& target, const Inside& inside);
  Request request(std::string_view method);
  // Sends, waits for the answer, queues notifications; the document lives until the next exchange.
  Outcome<JsonDocument> exchange(Request request, const Inside& inside,
                                 ReportPointer* mistakes = nullptr);
  Outcome<> accept_notification(const Json& line);
  // Reads what has arrived without waiting, up to a bound.
  Outcome<> pump();
  // After anything that may have changed the queue or the channel.
  void update_events();
  Outcome<> ensure_event(Fd& event);
  Outcome<ReportPointer> report_request(std::string_view method, const Inside& inside);
  Deadline deadline() const { return deadline_after(timeout_.load(std::memory_order_relaxed)); }
  void permit_tracing() const;

  const int owner_;
  const int helper_pid_;
  const bool delivers_records_;
  int pid_ = 0;
  std::uint32_t id_ = 0;
  bool yama_ = false;  // each tracing of ours needs permit_tracing()
  std::atomic<int> timeout_{kDefaultTimeout};
  std::atomic<bool> closed_{false};

  Lock lock_;
  Channel channel_;
  RecordQueue queue_;
  std::uint64_t last_request_ = 0;
  bool ended_ = false;
  bool told_gone_ = false;  // a record says that the helper has gone, or nobody is to be told
  bool event_set_ = false;
  Fd event_;
  Fd ended_event_;
  Fd epoll_;

  Delivery delivery_;
};

}  // namespace trapline::client
