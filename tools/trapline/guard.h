// Two processes instead of one, so that a tracer which is killed leaves no probe behind.
//
// The process that the user has started forks a worker, which does all the work, and waits. Where
// one of the two is killed at whatever moment, the other one sees to the traced processes:
//   - the worker was killed: the first one finds and undoes what is left in them (see
//     session/restore.h), then ends as the worker did;
//   - the first one was killed: the worker ends tracing in order, but prints nothing any more.
// Before probes are armed, the worker leaves the process group, which may be killed as a whole. It
// stays in the session; what the terminal sends to the group is passed on.
//
// If both are killed, the next tracer of a process finds what is left (probes/leftovers.h).

#pragma once

#include <cstdint>
#include <functional>

#include "session/invoker.h"
#include "session/ledger.h"

namespace trapline::tool {

enum class Role : std::uint8_t {
  kCommand,
  // Its descriptors are all the worker's. It ends by SIGTERM, also where the first process was
  // killed; the signals of a terminal are not its affair.
  kServer,
};

class Front {
 public:
  const session::Invoker& invoker() const { return invoker_; }
  // What both processes know of breakpoints.
  session::Ledger& ledger() const { return *ledger_; }
  // Of a command, true: killed; nobody waits for what the worker still prints, and it goes nowhere.
  bool is_gone() const;
  // Leaves the process group. Commands that were started before stay in it.
  void step_aside() const;

 private:
  friend int run_guarded(Role role, const std::function<int(const Front&)>& work);
  Front(const session::Invoker& invoker, session::Ledger& ledger)
      : invoker_(invoker), ledger_(&ledger) {}
  session::Invoker invoker_;
  session::Ledger* ledger_;
};

// Runs `work` in the worker and returns what it returned, in both processes. To be called by a
// process of one thread.
int run_guarded(Role role, const std::function<int(const Front&)>& work);

}  // namespace trapline::tool
