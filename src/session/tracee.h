// One traced process, from being found or started to being left as it was.
//
// The steps, in order:
//   attach() or launch()   nothing is changed yet; a launched command is stopped before its first
//   instruction load()                 its modules are read; a launched command is run to its entry
//   point first reserve()              stopped: arena, fork page and code regions are mapped
//   prepare()              running: trampolines are written to the regions
//   arm()                  stopped: the jumps are written; the process runs on
//   activate()             bodies begin to count
//   deactivate()           they cease to
//   disarm()               stopped: the original bytes are put back; then all that was mapped is
//   unmapped
//
// After arm() a process is let go of and runs alone. That it executes another program, or has
// loaded modules, it tells by its rendezvous (see probes/rendezvous.h); a launched one that has
// none for exec stays attached instead, so that the exec is seen before its new image runs. One
// with breakpoints stays attached, too, and everything is then done on the thread that serves them
// (target/trap_server.h). With the engine `outside` nothing is mapped into it: reserve() makes an
// arena that only the tracer has, and hits are told (serve_outside). add() and arm_again() are for
// the modules that come while it runs. A process that ends at any moment is no error: ended()
// tells.

#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "probes/in_use.h"
#include "probes/installation.h"
#include "probes/module_cache.h"
#include "session/ledger.h"
#include "session/loaded_modules.h"
#include "session/target_program.h"
#include "target/arena_mapping.h"
#include "target/attach.h"
#include "target/code_region.h"
#include "target/launch.h"
#include "target/trap_server.h"
#include "wire/arena.h"

namespace trapline::session {

// How long the process was stopped and what for, for -v.
struct Stop {
  std::string_view purpose;
  std::chrono::nanoseconds duration{0};
};

// kLoading: a thread waits for answer_load(), with its new modules mapped and none of their code
// run.
enum class Happening : std::uint8_t { kNothing, kExited, kExecuted, kLoading };

enum class ExecsTold : std::uint8_t { kNo, kYes };

enum class Loaded : std::uint8_t { kAsBefore, kAnew };

class Tracee {
 public:
  // Errors: one line that names the rule in the way (kPermission, kNotFound, kUnsupported).
  static Result<Tracee> attach(Pid pid);
  // `signal_mask`: what the command starts with.
  static Result<Tracee> launch(const std::string& command, const sigset_t& signal_mask);
  static Result<Tracee> launch(const std::vector<std::string>& argv,
                               const target::LaunchOptions& options);

  Tracee(Tracee&&) noexcept;
  ~Tracee();  // disarms what is still armed

  Pid pid() const { return pid_; }
  bool launched() const { return launched_.has_value(); }
  bool ended() const { return ended_; }
  bool active() const { return active_; }
  // A thread of its own takes its events.
  bool served() const { return server_ != nullptr; }
  // False: its bodies ask the kernel for the time, and its records' stamps are nanoseconds.
  bool reads_counter() const { return counter_allowed_; }

  // Reads its modules. What is known of those that are still there is kept; kAsBefore: that is all
  // of them, and no other has come.
  Result<Loaded> load();
  probes::ModuleCache& modules() { return modules_->cache(); }
  std::size_t thread_count() const;

  // `most_memory`: bytes that the probes may take in the process, beside the arena. Errors:
  // kUnsupported (more are needed), kTargetGone and what the parts say.
  Result<> reserve(const TargetProgram& program, std::uint64_t most_memory);
  // reserve() has failed because nothing could be mapped.
  bool refuses_mappings() const { return refuses_mappings_; }
  // Where the breakpoints of the engine `outside` are noted, for the tracer's other process; once
  // that is gone, reserve() and arm() refuse.
  // Outlives the tracee; nullptr: nowhere.
  void set_ledger(Ledger* ledger) { ledger_ = ledger; }
  // Who is told of hits, with the engine `outside`. Before arm().
  void serve_outside(target::Outside outside) { outside_hits_ = std::move(outside); }
  std::span<std::byte> arena()
      const;  // our mapping of it; stays readable after the process has ended
  RemoteAddr arena_address() const;
  RemoteAddr alive_address() const;
  // In the header: pid, ids, thread-id offset, state EARLY. The clock and names are the session's.
  void fill_header(wire::Header& header) const;

  // Of the arena's buffers a first part is entered into the page tables by reserve(), so that
  // tracing starts soon; enter_more() enters the next, and is best called when there is time.
  bool has_more_to_enter() const { return active_ && arena_ && entered_ < arena_->local().size(); }
  void enter_more();

  Result<> prepare();
  Result<> arm();
  // Beside what the plans say. RefusedPlace::probe is the session's index here.
  // nullptr: of all batches.
  std::vector<probes::RefusedPlace> refused(const ProbeBatch* batch = nullptr) const;

  // The modules of a process that runs: what has changed since the last call, or since load().
  // Sites in modules that have gone are forgotten.
  Result<ModuleChanges> module_changes();
  Result<bool> modules_changed() const { return modules_->changed(); }
  // Puts one more batch in place. Returns those of which nothing is left: the modules that they
  // were for have gone, and so have they.
  Result<std::vector<const ProbeBatch*>> add(std::shared_ptr<const ProbeBatch> batch);
  // Arms the sites of modules that have come again as they were.
  Result<> arm_again(std::span<const std::size_t> modules);
  // The thread that told kLoading goes on.
  void answer_load();
  // Loads that nobody came for in time, since the last call.
  std::uint32_t take_missed_loads();
  // Where its threads ring; nullptr: nowhere.
  wire::Header* header() const;

  // `told`: the process has a rendezvous.
  void activate(ExecsTold told);
  void deactivate();
  // True: a thread had no thread pointer when the process was armed (a static program's first
  // instructions), so its bodies ask the kernel who they are. end_early() looks whether that is
  // over.
  bool early() const { return early_ && active_; }
  Result<> end_early();

  // Stops the process, and calls `then` for the number of each slot's owner (wire::Slot::owner),
  // with where its thread is as to our code. (One that does not exist is outside.)
  Result<> look_at_owners(std::span<const std::uint64_t> owners,
                          const std::function<void(std::size_t, probes::Presence)>& then);

  // Stops the process, and calls `then` for each of its threads.
  Result<> look_at_threads(const std::function<void(const target::StoppedThread&)>& then);

  // Children are to be followed: it tells of those that it makes. Before activate().
  void follow() { follow_ = true; }
  // A child that it has made, stopped at its first instruction; or, where it shares its parent's
  // memory until it executes a program (vfork), running.
  struct Child {
    target::Attachment attachment;
    bool shares_memory = false;
    std::shared_ptr<bool> apart;  // it does not any more: its parent can be let go of
  };
  // Those made since the last call.
  std::vector<Child> take_children() { return std::exchange(children_, {}); }
  static Result<Tracee> of_child(Child child, const Tracee& parent);
  bool shares_memory() const { return apart_ && !*apart_; }
  // It has ended, and nothing of it is wanted any more: gives up all that it takes here.
  void drop();

  // What happened since the last call: the end of the process, or an exec. If it is held() then, it
  // is stopped at the new image's start; else that runs already. load() is next.
  Result<Happening> look();
  bool held() const { return at_exec_; }
  // It has told that it is about to execute, and has not done so yet: look() again soon.
  bool about_to_exec() const { return exec_deadline_.has_value(); }
  // Readable when look() has something to tell; -1: only looking tells.
  int event_fd() const;

  // Restores the process. The texts say what could not be taken back and why; empty: it is as it
  // was.
  Result<std::vector<std::string>> disarm();
  // Ends a launched command; no-op for others.
  void kill_launched();
  // Everything in the process is gone (exec, exit): forgets it without touching the process.
  void forget();

  bool reads_memory(RemoteAddr from, std::span<std::byte> out) const;
  bool writes_memory(RemoteAddr to, std::span<const std::byte> bytes) const;
  // The first of them; all are counted.
  const std::vector<Stop>& stops() const { return stops_; }
  std::size_t stop_count() const { return stop_count_; }
  std::chrono::nanoseconds longest_stop() const { return longest_stop_; }
  // What a user should know; since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  // The wait status of a launched command that has ended.
  std::optional<int> exit_status() const { return exit_status_; }

 private:
  struct Placed {
    std::shared_ptr<const ProbeBatch> batch;
    std::unique_ptr<probes::Installation> installation;
  };

  explicit Tracee(Pid pid) : pid_(pid) {}

  template <typename F>
  Result<> while_stopped(std::string_view purpose, F f);
  template <typename F>
  Result<> stop_and(std::string_view purpose, F& f);
  template <typename F>
  auto on_owner(F&& f);
  Result<> start_server();
  Result<> hand_over();
  void stop_serving();
  Result<> load_held();
  target::Traps traps() const;
  void tell_traps();
  Result<> note_traps();
  Result<std::optional<target::Event>> next_event();
  template <typename F>
  Result<> insist(std::chrono::steady_clock::time_point deadline, std::string_view purpose, F f);
  target::Attachment* attachment();
  probes::RegionOwner owner() const;
  Result<> check_guarded() const;
  Result<> check_memory(std::uint64_t most);
  Result<> map_memory(const wire::Layout& layout);
  Result<> seize();
  Result<> let_go();
  void note_stop(std::string_view purpose, std::chrono::nanoseconds duration);
  Result<Happening> take_events();
  Result<> answer_exec_request();
  Result<> answer_fork_request();
  Result<> adopt(const target::Event& fork);
  bool waits_for_children() const;
  bool has_ended();
  std::uint32_t waiting_for(wire::Request request) const;
  void answer(wire::Request request, std::uint32_t thread);
  std::vector<std::size_t> replaced_modules() const;
  void forget_sites(std::span<const std::size_t> modules);
  Result<> forget_gone_modules();
  Result<std::vector<const ProbeBatch*>> release_idle(target::StoppedProcess& process);
  Result<> read_identity();
  Result<bool> same_image() const;
  Result<bool> counter_allowed(target::RemoteCalls& calls);
  void place(const std::shared_ptr<const ProbeBatch>& batch);
  Result<> prepare(const Placed& placed);
  Result<> undo_leftovers();
  Result<> undo_parents();
  Result<> release_all(std::vector<std::string>& left);
  void give_text_back();

  Pid pid_;
  std::optional<target::LaunchedProcess> launched_;
  bool launch_attached_ = false;                  // launched_'s attachment still holds the process
  std::optional<target::Attachment> attachment_;  // one of our own; only while it is needed
  bool outside_ = false;                          // the engine of its probes
  bool refuses_mappings_ = false;
  std::optional<target::Outside> outside_hits_;
  Ledger* ledger_ = nullptr;
  std::unique_ptr<target::TrapServer> server_;  // has the attachment, if there are breakpoints
  std::optional<target::StoppedProcess>
      held_;              // from load() to activate(), of a process that was at_exec_
  bool at_exec_ = false;  // stopped at an exec event
  std::optional<std::chrono::steady_clock::time_point> exec_deadline_;
  std::optional<LoadedModules> modules_;
  bool image_replaced_ = false;             // by an exec, since load()
  std::shared_ptr<target::Memory> memory_;  // of the present image
  Fd pidfd_;
  RemoteAddr start_code_;

  std::optional<target::ArenaMapping> arena_;
  std::uint64_t entered_ = 0;  // bytes of it, from its start
  std::optional<target::ForkPage> fork_page_;
  std::vector<Placed> placed_;
  bool follow_ = false;
  bool forked_ = false;  // it still has its parent's probes
  std::shared_ptr<bool> apart_;
  std::vector<Child> children_;
  std::vector<std::shared_ptr<bool>> vforks_;  // of its children that share its memory
  std::uint32_t forks_expected_ = 0;           // told, and not seen yet
  std::optional<std::chrono::steady_clock::time_point> fork_deadline_;
  std::uint32_t loading_ = 0;  // the request of the thread that told kLoading
  std::uint32_t tid_offset_ = 0;
  std::int32_t cpu_offset_ = 0;
  bool counter_allowed_ = true;
  bool early_ = false;
  // Its threads have pointers that do not point to themselves, as the C library's do (Go): bodies
  // ask the kernel who they are.
  bool known_by_id_ = false;
  bool active_ = false;
  bool ended_ = false;
  std::optional<int> exit_status_;
  std::vector<std::string> notes_;
  std::vector<Stop> stops_;
  std::size_t stop_count_ = 0;
  std::chrono::nanoseconds longest_stop_{0};
};

}  // namespace trapline::session
