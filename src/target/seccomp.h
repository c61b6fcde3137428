// Whether a thread's seccomp filters allow an injected system call: they apply to it, and may kill
// for it.
//
// Three ways to know, best first:
//   - the thread has no filters;
//   - a privileged tracer reads them (PTRACE_SECCOMP_GET_FILTER) and evaluates them for the exact
//   call;
//   - the tracer lives under what looks like the same filters (their number, the pid namespace and
//   the cgroup are equal: every
//     process of a container): a forked child of the tracer makes the call first.
// Else the call is refused: kUnsupported.
// Sources: seccomp(2), kernel/seccomp.c (seccomp_run_filters), bpf(2) classic.

#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/process.h"

namespace trapline::target {

class SeccompGate {
 public:
  // `tid` is in a ptrace stop of the calling thread. Errors: kUnsupported.
  static Result<SeccompGate> open(Pid pid, Tid tid);

  Result<> check(long number, const std::array<std::uint64_t, 6>& args, RemoteAddr pc) const;
  bool unfiltered() const { return how_ == How::kNone; }

 private:
  enum class How : std::uint8_t { kNone, kEvaluate, kTry };
  How how_ = How::kNone;
  Pid pid_;
  std::vector<std::vector<::sock_filter>> filters_;
};

// What one classic BPF program returns for a call (SECCOMP_RET_*). A program that the kernel would
// not have accepted gives SECCOMP_RET_KILL_PROCESS.
std::uint32_t run_filter(std::span<const ::sock_filter> program, const ::seccomp_data& data);

}  // namespace trapline::target
