// Waits for the doorbells of traced processes (see probes/rendezvous.h), so that a thread that
// waits for the tracer is seen to at once, whatever the tracer's loop waits for meanwhile.
//
// A thread of its own sleeps on the doorbells (futex_waitv; by turns where the kernel has none, or
// for the processes that are too many for it), marks requests as seen, and writes to an eventfd. It
// does nothing else: the loop then looks at the requests. A process that rings without end gets no
// more than a round each kNap.

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "wire/arena.h"

namespace trapline::session {

class RequestWatch {
 public:
  RequestWatch() = default;
  RequestWatch(const RequestWatch&) = delete;
  RequestWatch& operator=(const RequestWatch&) = delete;
  ~RequestWatch();

  // The arenas to watch from now on; all others may be unmapped when it returns.
  void watch(std::vector<wire::Header*> arenas);
  // Readable when a bell rang; -1 before the first watch().
  int event_fd() const { return event_.get(); }
  // Makes it unreadable until the next one rings.
  void take();

 private:
  struct Watched {
    wire::Header* header = nullptr;
    std::uint32_t seen = 0;  // the doorbell, when it was last looked at
  };
  void run();
  bool look();  // true: a bell rang

  Fd event_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Watched> watched_;
  std::atomic<std::uint32_t> changed_ = 0;  // a futex: watched_ is another, or it is over
  std::atomic<bool> over_ = false;
};

}  // namespace trapline::session
