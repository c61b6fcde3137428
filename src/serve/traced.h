// One session of the protocol: a process, and the programs that it is traced with one after
// another.
//
// The process is found or started once and outlives its programs, and so does what is known of its
// modules. Each program has a session::Session and a Feed of its own.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/print_options.h"
#include "serve/answer.h"
#include "serve/channel.h"
#include "serve/feed.h"
#include "serve/request.h"
#include "session/program_compiler.h"
#include "session/session.h"
#include "session/tracee.h"

namespace trapline::serve {

using LoopClock = std::chrono::steady_clock;

class Traced {
 public:
  struct Settings {
    SessionId id = 0;
    Records records = Records::kNone;
    std::int32_t mute_offset = 0;
    session::Ledger* ledger = nullptr;  // of breakpoints; may be null
  };

  // `channel` outlives it.
  Traced(const Settings& settings, session::Tracee tracee, Channel& channel);
  ~Traced();  // close()
  Traced(Traced&&) = delete;

  Answer compile(const Compile& request);
  Answer start();
  Answer stop();
  Answer snapshot(const TakeSnapshot& request);
  Answer clear();
  // Restores the process. A command that was not let run yet is ended.
  Answer close();

  // For the loop: descriptors that wake it, when work() is due at the latest (nullopt: never).
  std::vector<int> event_fds() const;
  std::optional<LoopClock::time_point> due() const { return due_; }
  void work();

  // A command of ours that may still run when the session is closed.
  std::optional<Pid> child() const { return child_; }

 private:
  enum class State : std::uint8_t { kCompiled, kRunning, kStopped, kEnded };
  struct Loaded {
    session::CompiledProgram compiled;
    report::PrintOptions print;
    Feed feed;
    std::unique_ptr<session::Session> session;
    State state = State::kCompiled;

    Loaded(session::CompiledProgram program, const Settings& settings, Channel& channel);
  };

  static std::string_view name_of(State state);
  Result<> unload();
  Answer load(const Compile& request, session::CompiledProgram compiled);
  Failure failure(const Error& error) const;
  Failure give_up(Loaded& loaded, Failure reason);
  void look_at_end();
  void conclude(Loaded& loaded, const Error* failed);
  std::string end_of_target(const session::Tracee& tracee) const;

  Settings settings_;
  Channel& channel_;
  Pid pid_;
  std::optional<Pid> child_;
  bool let_run_ = true;                    // false: a command that waits for its start
  std::optional<session::Tracee> tracee_;  // while no program is loaded
  std::unique_ptr<Loaded> loaded_;
  std::optional<LoopClock::time_point> due_;
};

// The failure of a Result about a process: a forbidden one names the rule.
Failure failure_about(Pid pid, const Error& error);

}  // namespace trapline::serve
