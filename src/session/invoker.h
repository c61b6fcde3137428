// Who the user sees as the tracer: $pid, $ppid, and `pid` in BEGIN.
//
// Not always the process that traces: the command starts a worker for that, and waits for it.

#pragma once

#include <unistd.h>

#include "base/address.h"

namespace trapline::session {

struct Invoker {
  Pid pid;
  Pid parent;
  static Invoker self() { return {Pid{::getpid()}, Pid{::getppid()}}; }
};

}  // namespace trapline::session
