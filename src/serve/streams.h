// The descriptors that serve was started with.
//
// Commands that it starts inherit 0, 1 and 2, and must not read the client's requests or write
// among the answers: the protocol's descriptors go elsewhere, /dev/null takes their places. All
// others become close-on-exec; those may still be named as a command's standard files
// ("stdio" of open), which ends their life here.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>

#include "base/fd.h"
#include "base/result.h"

namespace trapline::serve {

enum class Protocol : std::uint8_t { kElsewhere, kStandardStreams };

class Streams {
 public:
  // To be called before anything else opens a descriptor. kStandardStreams: the protocol is spoken
  // over 0 and 1; take_input() and take_output() have it then.
  static Result<Streams> take(Protocol protocol);

  Fd take_input() { return std::move(input_); }
  Fd take_output() { return std::move(output_); }

  // What a command gets: /dev/null twice and standard error, or what a client named. kBadInput: not
  // a descriptor that serve was started with.
  Result<std::array<int, 3>> for_command(const std::optional<std::array<int, 3>>& wanted) const;
  // After the command was started: closes what was handed over.
  void hand_over(const std::array<int, 3>& fds);

 private:
  Fd input_;
  Fd output_;
  std::set<int> inherited_;
};

}  // namespace trapline::serve
