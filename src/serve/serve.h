// trapline serve: tracing on behalf of another program, which speaks docs/protocol.md.

#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "session/ledger.h"

namespace trapline::serve {

struct ServeOptions {
  std::string version;                // of Trapline
  std::optional<std::string> socket;  // where to listen; unset: one client, at standard input and
                                      // output
  session::Ledger* ledger = nullptr;  // of breakpoints, for who outlives this process; may be null
};

// Until the client ends (listening: until SIGTERM). Takes the process over: its signals, its
// standard streams. Errors: what kept it from serving, or the client's breach of a bound.
Result<> serve(const ServeOptions& options);

}  // namespace trapline::serve
