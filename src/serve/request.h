// From a line of the client to a call with typed parameters.
//
// The line is anybody's bytes. It is bounded before it gets here (channel.h); its depth is bounded
// here; members that a method does not know, and values of another type or out of range, are
// refused with their name. JSON: RFC 8259, by nlohmann's parser, which does not recurse.

#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/address.h"
#include "serve/answer.h"

namespace trapline::serve {

inline constexpr int kMaxDepth = 32;

using SessionId = std::int64_t;

struct Initialize {
  std::int64_t protocol = 0;
  std::string client;  // may be empty
};

// What to trace.
struct Self {};
struct Command {
  std::vector<std::string> argv;  // either this
  std::string line;               // or this, to be split
};
using TargetChoice = std::variant<Self, Pid, Command>;

struct Open {
  TargetChoice target;
  bool records = false;          // "push"
  std::int32_t mute_offset = 0;  // 0: none; negative, a multiple of 4
  std::optional<std::array<int, 3>> stdio;
};

struct Compile {
  SessionId session = 0;
  std::string text;
  std::string name = "program";
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::optional<std::string>>> options;
};

struct Start {
  SessionId session = 0;
};
struct Stop {
  SessionId session = 0;
};
struct TakeSnapshot {
  SessionId session = 0;
  bool text = false;
};
struct Clear {
  SessionId session = 0;
};
struct Close {
  SessionId session = 0;
};
struct Shutdown {};

using Method =
    std::variant<Initialize, Open, Compile, Start, Stop, TakeSnapshot, Clear, Close, Shutdown>;

struct Call {
  std::string id;  // JSON; empty: the client wants no answer
  Method method;
};
struct BadCall {
  std::string id;  // JSON; "null" where it cannot be known; empty: no answer is wanted
  Failure failure;
};

// `line` is without its '\n'.
std::expected<Call, BadCall> read_call(std::string_view line);

}  // namespace trapline::serve
