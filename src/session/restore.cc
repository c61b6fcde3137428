#include "session/restore.h"

#include <dirent.h>
#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "probes/leftovers.h"
#include "session/processes.h"
#include "target/attach.h"
#include "target/memory.h"
#include "target/ptrace_thread.h"
#include "target/stopped.h"

namespace trapline::session {

namespace {

// A process that forks while we look may have a child that nobody has looked at.
constexpr int kRounds = 3;
// For each process; see tracee.cc.
constexpr std::chrono::seconds kInsistence{15};
constexpr timespec kPause{0, 5'000'000};

enum class Outcome : std::uint8_t { kNothing, kRestored, kLeft };

class Restorer {
 public:
  Restorer(Pid pid, const target::ProcessIdentity& tracer, Restored& sum)
      : pid_(pid), tracer_(tracer), sum_(sum) {}

  Outcome run() {
    const auto memory = target::Memory::open(pid_);
    if (!memory) return Outcome::kNothing;
    auto leftovers = probes::Leftovers::find(pid_, *memory, tracer_);
    if (!leftovers || leftovers->empty()) return Outcome::kNothing;
    // Threads that cannot be stopped are let go of by the end of the thread that seized them.
    target::PtraceThread thread;
    return thread.run([&] { return restore(*leftovers); });
  }

 private:
  Outcome restore(probes::Leftovers& leftovers) {
    const std::size_t sites = leftovers.site_count();
    auto attachment = target::Attachment::seize(pid_);
    if (!attachment) return left(attachment.error().text());
    const Result<> done = take_back(*attachment, leftovers);
    (void)attachment->detach();
    if (!done) return left(done.error().text());
    ++sum_.processes;
    sum_.sites += sites;
    return Outcome::kRestored;
  }

  Result<> take_back(target::Attachment& attachment, probes::Leftovers& leftovers) {
    const auto deadline = std::chrono::steady_clock::now() + kInsistence;
    bool disarmed = false;
    Result<> done;
    do {
      auto process = attachment.stop();
      if (!process) {
        if (process.error().code() != ErrorCode::kTimeout) return process.error();
        done = process.error();
        continue;
      }
      if (!disarmed) TL_TRY(disarm(*process, leftovers));
      disarmed = true;
      TL_TRY_ASSIGN(const bool clean, leftovers.release(*process));
      TL_TRY(process->resume());
      if (clean) return {};
      done = Error(ErrorCode::kTimeout, "a thread is still in code of ours: it stays, unused");
      nanosleep(&kPause, nullptr);
    } while (std::chrono::steady_clock::now() < deadline);
    return done;
  }

  static Result<> disarm(target::StoppedProcess& process, probes::Leftovers& leftovers) {
    TL_TRY_ASSIGN(const std::size_t written_over, leftovers.disarm(process));
    if (written_over == 0) return {};
    return Error(
        ErrorCode::kUnsupported,
        fmt::format("{} of its places have been written over by somebody else", written_over));
  }

  Outcome left(const std::string& why) {
    sum_.left.push_back(fmt::format("pid {}: {}", pid_.value, why));
    return Outcome::kLeft;
  }

  Pid pid_;
  const target::ProcessIdentity& tracer_;
  Restored& sum_;
};

}  // namespace

std::vector<Pid> all_processes() {
  std::vector<Pid> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return pids;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0) pids.push_back(Pid{pid});
  }
  return pids;
}

Restored restore_after(const target::ProcessIdentity& tracer, const Ledger& ledger) {
  Restored sum;
  const Ledger::Outcome breakpoints = ledger.restore();
  sum.processes = breakpoints.processes;
  sum.sites = breakpoints.sites;
  for (int round = 0; round < kRounds; ++round) {
    sum.left.clear();
    bool found = false;
    for (const Pid pid : all_processes()) {
      if (pid == tracer.pid) continue;
      found = Restorer(pid, tracer, sum).run() != Outcome::kNothing || found;
    }
    if (!found) break;
  }
  return sum;
}

}  // namespace trapline::session
