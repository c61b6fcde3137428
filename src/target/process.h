// Facts about a process, read from /proc: mappings, threads, identity, limits, and whether it may
// be traced.
//
// Nothing here stops or changes anyone. Every answer is a snapshot that may be old when it is read:
// callers that need a stable picture stop the process first (attach.h). A process or thread that
// has gone is kTargetGone.
//
// Limits: x86-64 processes only; the tracer sees the process in its own pid namespace.
// Sources: proc(5), getauxval(3), ptrace(2) "Ptrace access mode checking",
// Documentation/admin-guide/LSM/Yama.rst, include/linux/sched.h (PF_*).

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"

namespace trapline::target {

// [start, end)
struct AddressRange {
  RemoteAddr start;
  RemoteAddr end;
  std::uint64_t size() const { return end - start; }
  bool contains(RemoteAddr a) const { return a >= start && a < end; }
  bool contains(const AddressRange& r) const { return r.start >= start && r.end <= end; }
  bool overlaps(const AddressRange& r) const { return start < r.end && r.start < end; }
  auto operator<=>(const AddressRange&) const = default;
};

struct Mapping {
  AddressRange range;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  bool shared = false;
  bool deleted = false;  // the path's file is not (or no longer) the mapped one: " (deleted)"
  FileOffset offset;
  dev_t device = 0;
  ino_t inode = 0;   // 0: anonymous
  std::string path;  // without " (deleted)"; "[heap]", "[stack]", "[vdso]", ...; "": anonymous

  bool is_file() const { return inode != 0; }
};

// The mappings in order of address. A zombie leader's list is empty: a live thread's is read
// instead.
Result<std::vector<Mapping>> read_maps(Pid pid);
// The mapping that holds `address` in a list sorted by address; nullptr: none.
const Mapping* find_mapping(std::span<const Mapping> maps, RemoteAddr address);

// /proc/PID/task, in order of id. Threads that are exiting may be listed.
Result<std::vector<Tid>> read_tasks(Pid pid);

// The fields of /proc/PID/task/TID/stat that somebody needs.
struct TaskStat {
  Tid tid;
  std::string comm;
  char state = '?';  // R S D T t Z X I
  Pid parent;
  Pid group;
  std::int64_t priority = 0;     // 20 for nice 0; less is more urgent
  std::uint64_t flags = 0;       // PF_*
  std::uint64_t start_time = 0;  // clock ticks after boot: with the pid, names a process for good
  RemoteAddr start_code;         // changes with exec; 0 where the tracer may not look
  RemoteAddr start_stack;
  std::uint32_t processor = 0;  // the one that it ran on last
  RemoteAddr start_brk;         // lowest address of the heap
  bool is_kernel_thread() const;
  // A thread that runs kernel code only (io_uring's and vhost's workers): it never stops.
  bool is_user_worker() const;
  bool is_dead() const { return state == 'Z' || state == 'X'; }
};
Result<TaskStat> read_stat(Pid pid, Tid tid);
inline Result<TaskStat> read_stat(Pid pid) { return read_stat(pid, Tid{pid.value}); }

// The fields of /proc/PID/task/TID/status that somebody needs.
struct TaskStatus {
  std::string name;
  char state = '?';
  Pid tgid;
  Pid tracer;  // 0: not traced
  uid_t uid = 0, euid = 0, suid = 0;
  gid_t gid = 0, egid = 0, sgid = 0;
  int seccomp = 0;          // 0 none, 1 strict, 2 filter
  int seccomp_filters = 0;  // how many; -1: an older kernel does not say
  int pid_namespaces = 1;   // depth: the number of ids in NStgid
  std::uint64_t effective_capabilities = 0;
  std::uint64_t permitted_capabilities = 0;
  bool shadow_stack = false;  // CET: a return to an address that no call pushed faults
  std::uint64_t blocked_signals = 0, ignored_signals = 0, caught_signals = 0;  // bit n-1: signal n
};
Result<TaskStatus> read_status(Pid pid, Tid tid);
inline Result<TaskStatus> read_status(Pid pid) { return read_status(pid, Tid{pid.value}); }

struct AuxiliaryVector {
  RemoteAddr entry;             // AT_ENTRY: the executable's first instruction
  RemoteAddr interpreter_base;  // AT_BASE: where the dynamic loader is; 0: a static executable
  RemoteAddr program_headers;   // AT_PHDR
  std::uint64_t program_header_count = 0;
  RemoteAddr vdso;      // AT_SYSINFO_EHDR; 0: none
  bool secure = false;  // AT_SECURE: set-id or with file capabilities
};
Result<AuxiliaryVector> read_auxiliary_vector(Pid pid);

// A live (not zombie) thread of the process, the leader if it lives. kTargetGone: none.
Result<Tid> live_thread(Pid pid);

// /proc/PID/comm, or "?".
std::string command_name(Pid pid);
// The path that /proc/PID/exe names (with " (deleted)" if so); kTargetGone, kPermission.
Result<std::string> executable_path(Pid pid);

// The soft limit of RLIMIT_AS, FSIZE, MEMLOCK, NOFILE or STACK; RLIM_INFINITY as it is.
Result<std::uint64_t> read_limit(Pid pid, int resource);

// Whether this process may trace `pid`, in one clear line that names the rule that forbids it and
// the way out. Errors: kNotFound (no such process), kPermission, kUnsupported (32-bit, other
// architecture, kernel thread), kTargetGone (a zombie). Ok is no promise: the kernel has the last
// word.
Result<> check_traceable(Pid pid);

// kUnsupported for a 32-bit program or one of another architecture. Ok where its executable cannot
// be read.
Result<> check_executable(Pid pid);

// Whether a file that is about to be executed is an ELF program; false for a script or anything
// else. kUnsupported: it is one, for 32 bits or another architecture.
Result<bool> is_elf_program(const std::string& path);

// How long a thread has run, as the scheduler counts it: up to date when it was last switched off,
// or at the scheduler's last tick.
Result<std::chrono::nanoseconds> read_run_time(Pid pid, Tid tid);

// Which rule forbids the tracing of a process, after an error of kPermission: whose it is, Yama,
// another tracer.
enum class PermissionRule : std::uint8_t { kOwner, kYama, kTracer, kOther };
PermissionRule permission_rule(Pid pid);

// Whether a process of this same program traces `pid`: another Trapline does so only for the
// milliseconds in which it arms or disarms, so it is worth waiting for.
bool held_by_same_program(Pid pid);
// Waits until that is no longer so, at most until `deadline`.
void await_same_program(Pid pid, std::chrono::steady_clock::time_point deadline);

// The line for a ptrace attach that failed with `err`; used after check_traceable found nothing.
Error attach_error(Pid pid, int err);

// A descriptor that polls readable when the process has ended, and that no other process can
// inherit the pid of.
Result<Fd> open_pidfd(Pid pid);

// Names one process for good: a pid may be used again.
struct ProcessIdentity {
  Pid pid;
  std::uint64_t start_time = 0;
  auto operator<=>(const ProcessIdentity&) const = default;
};
Result<ProcessIdentity> identify(Pid pid);

}  // namespace trapline::target
