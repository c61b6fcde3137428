// Small pieces of text for this folder's errors, and whole files of /proc.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/result.h"

namespace trapline::target {

std::string hex(std::uint64_t value);  // "0x1f"
inline std::string hex(RemoteAddr a) { return hex(a.value()); }

std::string task_path(Pid pid, Tid tid, std::string_view file);  // /proc/PID/task/TID/file

// A file of /proc, to its end. kTargetGone for one of a process or thread that is no more (ENOENT,
// ESRCH).
Result<std::string> read_proc_file(const std::string& path);
// /proc/PID/task/TID/file; kTargetGone says who has ended.
Result<std::string> read_task_file(Pid pid, Tid tid, std::string_view file);

// "process 12 (name) has ended"
Error gone(Pid pid);
Error gone_thread(Tid tid);
// The error of a call about a tracee that failed with `err`: ESRCH is kTargetGone.
Error call_error(Tid tid, std::string_view doing, int err);

}  // namespace trapline::target
