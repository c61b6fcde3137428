#include "session/clock.h"

#include <gtest/gtest.h>

namespace trapline::session {
namespace {

TEST(Clock, AgreesWithTheKernelsClock) {
  Clock clock;
  wire::Header header{};
  clock.calibrate();
  clock.fill_header(header);
  EXPECT_EQ(header.tsc_mult != 0, Clock::counter_is_trusted());
  const std::uint64_t before = Clock::monotonic_ns();
  const std::uint64_t ours = clock.to_ns(Clock::read_tsc());
  const std::uint64_t after = Clock::monotonic_ns();
  // 100 ppm of the few milliseconds since the clock was made, and as much again for a preemption.
  EXPECT_GE(ours + 10'000, before);
  EXPECT_LE(ours, after + 10'000);
}

TEST(Clock, SecondCalibrationKeepsTheRelation) {
  Clock clock;
  wire::Header first{};
  wire::Header second{};
  clock.calibrate();
  clock.fill_header(first);
  clock.calibrate();
  clock.fill_header(second);
  EXPECT_EQ(first.tsc_mult, second.tsc_mult);
  EXPECT_EQ(first.tsc_base, second.tsc_base);
}

}  // namespace
}  // namespace trapline::session
