#include "session/builtin_probes.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/options.h"
#include "symbols/glob.h"

namespace trapline::session {

namespace {

bool part_matches(const std::string& pattern, std::string_view text) {
  return symbols::Glob(pattern).matches(text);
}

struct Fixed {
  BuiltinKind kind;
  const char* name;
  std::uint32_t id;
};
constexpr Fixed kFixed[] = {{BuiltinKind::kBegin, "BEGIN", 1},
                            {BuiltinKind::kEnd, "END", 2},
                            {BuiltinKind::kError, "ERROR", 3}};

// The kinds of timers, and those of each that exist before anyone asks for a period; a glob matches
// these.
struct Timer {
  BuiltinKind kind;
  std::string_view prefix;
  std::span<const int> presets;
};
constexpr int kPresetProfiles[] = {97, 199, 499, 997, 1999, 4001, 4999};
constexpr int kPresetTicks[] = {1, 10, 100, 500, 1000, 5000};
constexpr Timer kTimers[] = {{BuiltinKind::kProfile, "profile", kPresetProfiles},
                             {BuiltinKind::kTick, "tick", kPresetTicks}};

struct Refused {
  const char* provider;
  const char* answer;
};
constexpr Refused kRefused[] = {
    {"syscall", "system call probes need the kernel engine, which is not offered yet"},
    {"fbt", "kernel probes need root and the kernel engine, which is not offered yet"},
    {"sdt", "kernel probes need root and the kernel engine, which is not offered yet"},
    {"rawtp", "kernel probes need root and the kernel engine, which is not offered yet"},
    {"sched", "scheduler probes need root and the kernel engine, which is not offered yet"},
    {"proc", "process probes need root and the kernel engine, which is not offered yet"},
    {"io", "I/O probes need root and the kernel engine, which is not offered yet"},
    {"ip", "network probes need root and the kernel engine, which is not offered yet"},
    {"tcp", "network probes need root and the kernel engine, which is not offered yet"},
    {"udp", "network probes need root and the kernel engine, which is not offered yet"},
    {"lockstat", "kernel lock probes need root and the kernel engine, which is not offered yet"},
    {"cpc", "hardware counter probes need root and the kernel engine, which is not offered yet"},
    {"plockstat", "user lock probes are not offered yet"},
};

bool is_glob(std::string_view text) {
  return text.find_first_of("*?[\\") != std::string_view::npos;
}

Result<BuiltinProbe> timer_probe(const Timer& timer, const std::string& name) {
  const auto period = plan::parse_period(name.substr(timer.prefix.size() + 1));
  if (!period || *period <= 0) {
    return Error(
        ErrorCode::kBadInput,
        fmt::format("{0}: a {1} probe is {1}-N, {1}-Nms, {1}-Nhz, ...", name, timer.prefix));
  }
  if (std::chrono::nanoseconds(*period) < kShortestPeriod) {
    return Error(
        ErrorCode::kBadInput,
        fmt::format("{}: the shortest period of a {} probe is 200 us", name, timer.prefix));
  }
  return BuiltinProbe{timer.kind, {0, "profile", "", "", name}, std::chrono::nanoseconds(*period)};
}

Result<> match_timers(const Timer& timer, const plan::ProbeDescription& d,
                      std::vector<BuiltinProbe>& found) {
  if (!part_matches(d.provider, "profile")) return {};
  const std::string start = std::string(timer.prefix) + "-";
  if (d.name.starts_with(start) && !is_glob(d.name)) {
    TL_TRY_ASSIGN(BuiltinProbe probe, timer_probe(timer, d.name));
    found.push_back(std::move(probe));
    return {};
  }
  // A description without a name, or with a glob that says nothing of them, would otherwise start
  // all these timers.
  if (d.provider != "profile" && !d.name.starts_with(timer.prefix)) return {};
  for (const int preset : timer.presets) {
    const std::string name = start + std::to_string(preset);
    if (!part_matches(d.name, name)) continue;
    TL_TRY_ASSIGN(BuiltinProbe probe, timer_probe(timer, name));
    found.push_back(std::move(probe));
  }
  return {};
}

}  // namespace

std::optional<pid_t> pid_of_provider(std::string_view provider) {
  if (!provider.starts_with("pid") || provider.size() == 3) return std::nullopt;
  pid_t pid = 0;
  const char* end = provider.data() + provider.size();
  const auto [stop, failed] = std::from_chars(provider.data() + 3, end, pid);
  if (failed != std::errc{} || stop != end || pid <= 0) return std::nullopt;
  return pid;
}

Result<std::vector<BuiltinProbe>> match_builtin(const plan::ProbeDescription& d) {
  std::vector<BuiltinProbe> found;
  for (const Refused& refused : kRefused) {
    if (d.provider == refused.provider) return Error(ErrorCode::kUnsupported, refused.answer);
  }
  if (!part_matches(d.module, "") || !part_matches(d.function, "")) return found;
  for (const Fixed& fixed : kFixed) {
    if (part_matches(d.provider, "dtrace") && part_matches(d.name, fixed.name)) {
      found.push_back({fixed.kind, {fixed.id, "dtrace", "", "", fixed.name}, {}});
    }
  }
  for (const Timer& timer : kTimers) TL_TRY(match_timers(timer, d, found));
  return found;
}

}  // namespace trapline::session
