#include "session/clock.h"

#include <time.h>
#include <x86intrin.h>

#include <fstream>
#include <limits>
#include <string>

namespace trapline::session {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint32_t kShift = 32;
constexpr std::uint64_t kShortestSpanNs = 5'000'000;

std::uint64_t read_clock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t Clock::read_tsc() { return __rdtsc(); }
std::uint64_t Clock::monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
std::uint64_t Clock::wall_ns() { return read_clock(CLOCK_REALTIME); }

// The counter is read on both sides of the clock; of several tries the one with the shortest span
// is the truest.
Clock::Reading Clock::read_both() {
  Reading best;
  std::uint64_t shortest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t before = read_tsc();
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t after = read_tsc();
    if (after - before < shortest) {
      shortest = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}

Clock::Clock() : first_(read_both()) {}

// The kernel keeps time by the counter, directly or through a hypervisor's page, only if it trusts
// it.
bool Clock::counter_is_trusted() {
  std::ifstream source("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  source >> name;
  return name == "tsc" || name == "kvm-clock" || name.starts_with("hyperv");
}

void Clock::calibrate() {
  if (calibrated_) return;
  Reading second = read_both();
  if (second.ns - first_.ns < kShortestSpanNs) {
    const timespec rest{0, static_cast<long>(kShortestSpanNs - (second.ns - first_.ns))};
    nanosleep(&rest, nullptr);
    second = read_both();
  }
  mult_ = static_cast<std::uint64_t>((Wide{second.ns - first_.ns} << kShift) /
                                     (second.tsc - first_.tsc));
  calibrated_ = true;
}

void Clock::fill_header(wire::Header& header) const {
  header.tsc_base = first_.tsc;
  header.ns_base = first_.ns;
  header.tsc_mult = counter_is_trusted() ? mult_ : 0;
  header.tsc_shift = kShift;
  header.wall_offset = wall_ns() - monotonic_ns();
}

std::uint64_t Clock::to_ns(std::uint64_t tsc) const {
  return first_.ns + static_cast<std::uint64_t>((Wide{tsc - first_.tsc} * mult_) >> kShift);
}

}  // namespace trapline::session
