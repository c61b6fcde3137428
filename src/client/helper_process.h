// Starts the helper so that the program does not notice.
//
// The program may have any number of threads, may wait for any child (waitpid(-1)) and may handle
// SIGCHLD. So the helper is no child of its: a first child starts it and ends at once, whereupon it
// belongs to init (or to the nearest subreaper: a program that is one itself adopts it, like any
// orphan). The first child's exit signal is 0, which neither raises SIGCHLD nor is found by
// waitpid() without __WALL. It cannot be the helper itself: execve() makes the exit signal SIGCHLD.
//
// Both children run in the program's memory (CLONE_VM) on stacks of their own, as posix_spawn()
// does, while the thread that started them sleeps (CLONE_VFORK): no page table is copied, however
// large the program. They make system calls only, with all signals blocked and handlers their own.
//
// Sources: clone(2), wait(2) "__WCLONE"; kernel: fs/exec.c de_thread(), kernel/exit.c
// eligible_child(), find_new_reaper().

#pragma once

#include <string>

#include "base/fd.h"
#include "client/failure.h"
#include "client/inside.h"

namespace trapline::client {

struct HelperProcess {
  Fd socket;  // our end: a stream socket, close-on-exec, never 0, 1 or 2
  int pid = 0;
};

// How the helper's standard error is connected.
enum class HelperOutput { kDiscarded, kInherited };

// What the helper has of the program's files.
enum class HelperFiles {
  kNone,
  kStandard,  // 0, 1 and 2 as kStandardFiles, for a program that it is to start
};
inline constexpr int kStandardFiles[] = {3, 4, 5};

// Runs `path serve`, standard input and output a socket, in a session of its own, without any other
// descriptor, with default signal dispositions and no signal blocked. NO_HELPER: it cannot be
// executed. `inside`: proof that signals are blocked.
Outcome<HelperProcess> start_helper(const std::string& path, HelperOutput output, HelperFiles files,
                                    const Inside& inside);

// Where Yama restricts ptrace to descendants: allows the process `pid` and its descendants to trace
// this one (prctl PR_SET_PTRACER; one at a time, the last one counts). 0: nobody any more.
void allow_tracer(int pid);

// kernel.yama.ptrace_scope; 0 where there is no Yama.
int yama_scope();

}  // namespace trapline::client
