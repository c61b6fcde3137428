// Moves the calling thread to one processor while this lives.
//
// What fires in the tracer fires on some processor: with -x cpu=N on that one, and profile-N, where
// no kernel samples for it, on each in turn. Children that are made meanwhile (system()) would stay
// there; so it lives only while a clause is evaluated.

#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace trapline::session {

class RunOnProcessor {
 public:
  explicit RunOnProcessor(std::uint32_t processor);
  ~RunOnProcessor();
  RunOnProcessor(const RunOnProcessor&) = delete;
  RunOnProcessor& operator=(const RunOnProcessor&) = delete;

  // Whether the thread is there.
  bool moved() const { return moved_; }

 private:
  std::vector<cpu_set_t> before_;  // empty: not moved
  bool moved_ = false;
};

// The processors that the calling thread may run on, in order.
std::vector<std::uint32_t> allowed_processors();

}  // namespace trapline::session
