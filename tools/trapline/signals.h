// The command's signals, as a descriptor: SIGINT and SIGTERM end tracing, the second one at once;
// SIGUSR1 prints now.

#pragma once

#include <signal.h>

#include "base/fd.h"
#include "base/result.h"

namespace trapline::tool {

class Signals {
 public:
  // Blocks them for the life of the process. An ignored SIGINT (a background job's) stays ignored.
  static Result<Signals> take();

  int fd() const { return fd_.get(); }
  const sigset_t& original_mask() const { return original_; }

  // Takes what has come since the last call.
  void look();
  int interrupts() const { return interrupts_; }
  bool take_print_request() { return std::exchange(print_, false); }

 private:
  Fd fd_;
  sigset_t original_{};
  int interrupts_ = 0;
  bool print_ = false;
};

}  // namespace trapline::tool
