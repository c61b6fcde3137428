// The relation between the time-stamp counter and CLOCK_MONOTONIC, as bodies use it.
//
// A body reads the counter (11 ns) instead of asking the kernel; the tracer measures the counter's
// frequency once, over as long a time as start-up takes anyway. Needs an invariant counter, which
// every clocksource=tsc machine has.

#pragma once

#include <cstdint>

#include "wire/arena.h"

namespace trapline::session {

class Clock {
 public:
  // Takes the first of the two readings.
  Clock();

  // Takes the second one, once. The longer after construction, the more precise: two readings 10 ms
  // apart, each good to 50 ns, give 10 ppm. Waits where less than 5 ms have passed.
  void calibrate();
  // After calibrate(): the header's clock fields.
  void fill_header(wire::Header& header) const;

  // After calibrate(): CLOCK_MONOTONIC nanoseconds of a counter value.
  std::uint64_t to_ns(std::uint64_t tsc) const;

  // False: bodies are to ask the kernel instead (Header::tsc_mult is 0 then).
  static bool counter_is_trusted();
  static std::uint64_t read_tsc();
  static std::uint64_t monotonic_ns();
  static std::uint64_t wall_ns();

 private:
  struct Reading {
    std::uint64_t tsc = 0;
    std::uint64_t ns = 0;
  };
  static Reading read_both();

  Reading first_;
  std::uint64_t mult_ = 0;
  bool calibrated_ = false;
};

}  // namespace trapline::session
