// The probes that the tracer itself fires: dtrace:::BEGIN, END and ERROR,
// profile:::tick-N and profile-N.
//
// It also knows the providers that need a kernel or are not offered yet, so that a description of
// theirs gets an answer in one line instead of "does not match".

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace trapline::session {

enum class BuiltinKind : std::uint8_t { kBegin, kEnd, kError, kTick, kProfile };

struct BuiltinProbe {
  BuiltinKind kind = BuiltinKind::kBegin;
  plan::ProbeName name;                // without id, except for BEGIN, END and ERROR
  std::chrono::nanoseconds period{0};  // kTick, kProfile
};

// Oracle's shortest period of a tick or profile probe.
inline constexpr std::chrono::nanoseconds kShortestPeriod{200'000};

// The built-in probes that a description matches; none is not an error here. Errors: kUnsupported
// for a provider that is not offered (syscall, fbt, ...), kBadInput for a tick or profile
// probe whose period is too short or is no number.
Result<std::vector<BuiltinProbe>> match_builtin(const plan::ProbeDescription& description);

// "pid1234": 1234. nullopt: not a pid provider, or a number that is no process ID.
std::optional<pid_t> pid_of_provider(std::string_view provider);

}  // namespace trapline::session
