// How a Tracee's process becomes as it was: of what a killed tracer or a parent left in it, and of
// ours.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <iterator>

#include "probes/leftovers.h"
#include "session/tracee.h"
#include "session/tracee_stop.h"

namespace trapline::session {

namespace {

using std::chrono::milliseconds;

// On a machine that is overloaded a thread may not run for seconds: not to the next stop, and not
// to the end of a body. What was put in place is to go all the same.
constexpr milliseconds kInsistence{15000};
constexpr milliseconds kLongestWait{100};
// A tracer that is about to leave takes its probes along.
constexpr milliseconds kMotionPatience{15000};
constexpr milliseconds kMotionPause{5};
// How much text is compared with its file while the process is stopped.
constexpr std::uint64_t kTextPerPart = 16 * wire::kPageSize;
constexpr std::size_t kPartsPerStop = 4;

}  // namespace

// What a tracer that was killed left behind stands where ours are to stand.
Result<> Tracee::undo_leftovers() {
  if (forked_) return undo_parents();
  if (held_) return {};  // a new image
  TL_TRY_ASSIGN(const target::Memory memory, target::Memory::open(pid_));
  TL_TRY_ASSIGN(probes::Leftovers leftovers, probes::Leftovers::find(pid_, memory));
  const auto leaves_by = std::chrono::steady_clock::now() + kMotionPatience;
  while (leftovers.in_motion() && std::chrono::steady_clock::now() < leaves_by) {
    pause_for(kMotionPause);
    TL_TRY_ASSIGN(leftovers, probes::Leftovers::find(pid_, memory));
  }
  if (leftovers.empty()) return {};
  notes_.push_back(
      fmt::format("pid {} still had {} probe site{} of a tracer that was killed: taken "
                  "back first",
                  pid_.value, leftovers.site_count(), leftovers.site_count() == 1 ? "" : "s"));
  std::size_t written_over = 0;
  TL_TRY(while_stopped("restore leftovers", [&](target::StoppedProcess& process) -> Result<> {
    TL_TRY_ASSIGN(written_over, leftovers.disarm(process));
    return {};
  }));
  if (written_over != 0) {
    notes_.push_back(
        fmt::format("{} of them {} written over by somebody else: what they lead to "
                    "stays mapped",
                    written_over, written_over == 1 ? "was" : "were"));
    return {};
  }
  bool clean = false;
  const auto deadline = std::chrono::steady_clock::now() + kInsistence;
  for (int n = 0; !clean && std::chrono::steady_clock::now() < deadline; ++n) {
    TL_TRY(insist(deadline, "unmap leftovers", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(clean, leftovers.release(process));
      return {};
    }));
    if (!clean) pause_for(std::min(milliseconds(1 + n), kLongestWait));
  }
  if (!clean) {
    notes_.push_back(
        fmt::format("a thread of pid {} is still in code of the tracer that was killed: it stays "
                    "mapped, unused",
                    pid_.value));
  }
  return {};
}

// A forked child that is held has what its parent had: probes that stand and count nothing.
Result<> Tracee::undo_parents() {
  forked_ = false;
  TL_TRY_ASSIGN(probes::Leftovers leftovers, probes::Leftovers::find(pid_, *memory_));
  if (leftovers.empty()) return {};
  TL_TRY_ASSIGN(const std::size_t written_over, leftovers.disarm(*held_));
  // Where it was forked within a signal handler that had interrupted one of our bodies, they stay.
  if (written_over == 0) TL_TRY(leftovers.release(*held_));
  return {};
}

void Tracee::drop() {
  forget();
  stop_serving();
  arena_.reset();
  attachment_.reset();
  memory_.reset();
  modules_.reset();
  pidfd_ = Fd();
}

Result<std::vector<std::string>> Tracee::disarm() {
  std::vector<std::string> left;
  deactivate();
  if (ended_ || placed_.empty()) {
    forget();
    stop_serving();
    if (!ended_ && !held_ && !at_exec_) (void)let_go();
    return left;
  }
  const Result<> done = release_all(left);
  if (!done && is_gone(done.error())) {
    ended_ = true;
    forget();
    stop_serving();
    return left;
  }
  if (!done) return done.error();
  placed_.clear();
  stop_serving();
  (void)let_go();
  return left;
}

Result<> Tracee::release_all(std::vector<std::string>& left) {
  std::size_t foreign = 0;
  bool clean = false;
  const auto deadline = std::chrono::steady_clock::now() + kInsistence;
  TL_TRY(insist(deadline, "disarm", [&](target::StoppedProcess& process) -> Result<> {
    TL_TRY(forget_gone_modules());
    for (const Placed& placed : placed_) {
      TL_TRY_ASSIGN(const std::size_t left_here, placed.installation->disarm(process));
      foreign += left_here;
    }
    return {};
  }));
  if (foreign != 0) {
    left.push_back(fmt::format(
        "{} site{} of pid {} patched over by somebody else: left as they are, switched off",
        foreign, foreign == 1 ? " was" : "s were", pid_.value));
    return {};
  }
  if (outside_) {  // nothing was mapped, and no call is made in it
    if (ledger_ != nullptr) ledger_->erase(pid_);
    return {};
  }
  for (int n = 0; !clean && std::chrono::steady_clock::now() < deadline; ++n) {
    TL_TRY(insist(deadline, "unmap", [&](target::StoppedProcess& process) -> Result<> {
      clean = true;
      for (const Placed& placed : placed_) {
        TL_TRY_ASSIGN(const bool released, placed.installation->release(process));
        clean = clean && released;
      }
      if (!clean) return {};
      TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
      if (arena_) TL_TRY(arena_->remove(calls));
      if (fork_page_) TL_TRY(fork_page_->remove(calls));
      fork_page_.reset();
      return calls.end();
    }));
    if (!clean) pause_for(std::min(milliseconds(1 + n), kLongestWait));
  }
  if (clean) give_text_back();
  if (!clean) {
    left.push_back(fmt::format(
        "a thread of pid {} is still in code of ours: it stays mapped, unused", pid_.value));
  }
  return {};
}

// The private copies of text pages, in short stops of their own. Only memory is at stake: failures
// change nothing.
void Tracee::give_text_back() {
  std::vector<target::AddressRange> parts;
  for (const Placed& placed : placed_)
    std::ranges::move(placed.installation->text_pages(kTextPerPart), std::back_inserter(parts));
  for (std::size_t first = 0; first < parts.size(); first += kPartsPerStop) {
    const std::size_t count = std::min(kPartsPerStop, parts.size() - first);
    (void)while_stopped("give text back", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
      TL_TRY(target::give_back_text(calls, std::span(parts).subspan(first, count)));
      return calls.end();
    });
  }
}

void Tracee::kill_launched() {
  if (launched_ && !ended_) ::kill(pid_.value, SIGKILL);
}

void Tracee::forget() {
  active_ = false;
  if (outside_ && ledger_ != nullptr) ledger_->erase(pid_);
  for (const Placed& placed : placed_) placed.installation->forget();
  if (server_) server_->run([&] { server_->set_traps({}); });
  if (fork_page_) fork_page_->forget();
  if (arena_) arena_->forget();
  fork_page_.reset();
  placed_.clear();
}

}  // namespace trapline::session
