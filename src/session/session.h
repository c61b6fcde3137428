// A tracing session, readable as one page: compile -> find -> arm -> drain -> disarm.
//
//   Session session(program, options, tracees, output);
//   session.find()      probes are matched; nothing has been touched yet
//   session.compile()   machine code is made; start() does what is left of that
//   session.start()     arenas and trampolines are put in place, BEGIN runs, sites are patched,
//   counting begins session.step()      waits, drains, runs what is due; until running() is false
//   session.stop()      counting ends, processes are restored, the last data is taken, END runs
//   session.finish()    the aggregations that are left are printed
//
// After stop(), start() may come again: counting goes on into the same aggregations, D variables
// begin anew. A loop that waits for other things as well asks for event_fds() and time_to_wait(),
// and calls work() where step() would have waited.
//
// All of it happens on the caller's thread, which must be the one that attached to the processes.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "consume/aggregation_store.h"
#include "consume/drainer.h"
#include "plan/options.h"
#include "plan/plan.h"
#include "report/output.h"
#include "report/record_interpreter.h"
#include "session/body_store.h"
#include "session/clock.h"
#include "session/enabling.h"
#include "session/invoker.h"
#include "session/later_probes.h"
#include "session/outside_engine.h"
#include "session/profiler.h"
#include "session/request_watch.h"
#include "session/target_program.h"
#include "session/tracee.h"
#include "session/tracer_environment.h"

namespace trapline::session {

// A probe or a place of it that could not be armed.
struct Refusal {
  plan::ProbeName probe;
  std::uint64_t address = 0;
  std::string reason;
  std::string detail;
};

class Session {
 public:
  // `program` and `output` outlive the session.
  Session(const plan::Program& program, plan::Options options, std::vector<Tracee> tracees,
          report::Output& output);
  ~Session();

  // Who `pid` is in the tracer's own probes. Before start().
  void set_invoker(const Invoker& invoker) { invoker_ = invoker; }
  // See Tracee::set_ledger. Before start().
  void set_ledger(Ledger* ledger) {
    for (Target& target : targets_) target.tracee.set_ledger(ledger);
  }
  // See wire::Layout::mute_offset; 0: none. Before compile().
  void set_mute_offset(std::int32_t offset) { mute_offset_ = offset; }

  // Reads the processes' modules and matches the program's probe descriptions.
  Result<> find();
  // Makes the machine code, for the processes as they are now.
  Result<> compile();
  const Enabling& enabling() const { return enabling_; }
  // Where each pid probe would be patched, and what cannot be; by process. After find().
  const PlannedSites& sites(std::size_t target) const { return targets_[target].sites; }
  Tracee& tracee(std::size_t target) { return targets_[target].tracee; }
  std::size_t target_count() const { return targets_.size(); }

  // Processes that have loaded or unloaded modules since find() are matched again.
  Result<> start();
  // Probes that have at least one place in place, or are the tracer's own. After start().
  std::size_t armed_count() const;
  // Places that could not be armed: known after find() as far as files tell, completely after
  // start().
  std::vector<Refusal> refusals() const;
  // What a user should know and no output says; since the last call.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  // What -v shows beside: of modules that were loaded since the start.
  std::vector<std::string> take_verbose_notes() { return std::exchange(verbose_notes_, {}); }
  // Places in modules that were loaded since the start; since the last call.
  std::vector<Refusal> take_new_refusals() { return std::exchange(new_refusals_, {}); }

  bool running() const { return running_; }
  // Waits until something is due, `fd` is readable (-1: none) or at most 100 ms; then drains and
  // runs ticks.
  Result<> step(int fd);
  // Readable when there is work().
  std::vector<int> event_fds() const;
  std::chrono::milliseconds time_to_wait() const;
  Result<> work();
  // Takes all that firings which have ended have left, records and aggregations; tells losses.
  // Nothing, where the session does not run.
  Result<> drain_now();
  // Does that, and prints all aggregations as they are now.
  Result<> print_now();

  Result<> stop();
  Result<> finish();

  std::int32_t exit_status() const { return exit_status_.value_or(0); }
  // The program has called exit().
  bool exited() const { return exit_status_.has_value(); }

  consume::AggregationStore& store() { return store_; }
  // CLOCK_MONOTONIC of a record's stamp; of the first process's, where several differ.
  std::uint64_t nanoseconds(std::uint64_t stamp);
  // After stop(): hands the processes over to another session. Errors: one could not be restored.
  Result<std::vector<Tracee>> release_tracees();

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Target {
    explicit Target(Tracee traced) : tracee(std::move(traced)), family(tracee.pid()) {}
    PlannedSites sites;  // from find() to compile(), then in `program`
    LaterProbes later;   // of its present image
    std::unique_ptr<TargetProgram> program;
    std::shared_ptr<OutsideEngine> outside;
    bool only_outside = false;  // nothing can be mapped into it, and engine=auto was asked for
    Tracee tracee;
    Pid family;             // by which descriptions name it: of a followed child, its ancestor's
    bool followed = false;  // a child of a traced process
    bool over = false;      // one that has ended, and whose place is free
    std::optional<consume::Drainer> drainer;
    std::set<std::size_t> matched_modules;  // those that descriptions have been matched against
    bool modules_changing = false;          // the last comparison has found changes
    bool levels_busy = false;  // some were busy for rounds when arenas were drained last
    std::chrono::steady_clock::time_point levels_due{};  // when left levels are looked for (again)
    std::map<std::uint32_t, std::uint64_t> level_drops;  // by slot, when they were looked for last
  };
  struct Tick {
    std::uint32_t probe = 0;
    std::chrono::nanoseconds period{0};
    std::chrono::steady_clock::time_point due;
  };

  std::vector<PlacedProbe> number(std::size_t index, const Enabling& found);
  std::uint32_t number_of(const EnabledProbe& probe, std::set<std::uint32_t>& taken);
  Refusal refusal(std::uint32_t probe, const probes::RefusedPlace& place) const;
  std::uint32_t add_probe(EnabledProbe probe);
  MatchTarget match_target(std::size_t index, std::vector<std::size_t> modules);
  ProgramContext context() { return {program_, options_, probes_, bodies_}; }
  void share_globals(std::size_t index);
  Result<> plan(std::size_t index, std::span<const PlacedProbe> placed);
  Result<Engine> engine_for(const Target& target, const Result<target::TaskStatus>& status) const;
  Result<> match_again(std::size_t index);
  Result<> build(std::size_t index);
  Result<> reserve(std::size_t index);
  Result<> reserve_or_outside(std::size_t index);
  void serve_outside(Target& target);
  void activate(Target& target);
  Result<> arm(std::size_t index);
  Result<> arm_again(std::size_t index);
  Result<> look_at(std::size_t index);
  // Of children: followed_children.cc.
  Result<> follow_child(std::size_t parent, Tracee::Child child);
  Result<> arm_child(std::size_t index, std::size_t parent);
  std::size_t place_for(Tracee tracee);
  void retire_children();
  // Of modules that come and go: added_modules.cc.
  enum class Told : std::uint8_t { kNo, kYes };  // by the process, so that nothing was missed
  Result<> update_modules(std::size_t index, Told told);
  Result<> add_modules(std::size_t index, const std::vector<std::size_t>& modules, Told told);
  Result<> compare_modules();
  void tell_refusals(std::size_t index, const ProbeBatch& batch);
  void watch_requests(std::size_t without = kNone);

  // Whom a firing in the tracer is about, and where it takes place.
  struct About {
    Subject* subject = nullptr;        // nullptr: the tracer
    std::size_t source = kNone;        // the process whose globals it has; kNone: globals_owner()
    std::optional<std::uint32_t> cpu;  // none: anywhere
  };
  Result<> fire(std::uint32_t probe, const TracerEnvironment::Arguments& arguments,
                const About& about);
  Result<> fire_all(BuiltinKind kind, const TracerEnvironment::Arguments& arguments,
                    const About& about);
  About about_tracer() const { return {nullptr, kNone, cpu_}; }
  Result<> run_ticks();
  // Of profile-N: profile_probes.cc.
  Result<> create_profiler();
  Result<> begin_profiler();
  Result<> take_profile_firings();
  Result<> fire_profile(std::uint64_t until);
  Result<> fire_sample(const ProfileFiring& firing);
  std::span<std::byte> self_of(std::size_t index, const target::CpuSample& sample);
  Result<> drain(consume::DrainKind kind);
  Result<> free_left_levels(Target& target, std::span<const consume::BusyLevel> busy);
  Result<> tell_drops();
  Result<> process(std::vector<consume::Record> records);
  Result<> process_in_order(std::vector<consume::Record> records);
  Result<> process_one(const consume::Record& record);
  Result<> set_option(std::string_view name, std::string_view value);
  void free_speculation(std::uint32_t source, std::uint32_t token);
  std::size_t globals_owner() const;
  Result<> report_fault(const consume::Record& record);
  std::span<std::byte> globals();
  bool all_ended() const;
  bool any_served() const;

  const plan::Program& program_;
  plan::Options options_;
  Invoker invoker_ = Invoker::self();
  std::int32_t mute_offset_ = 0;
  report::Output& output_;
  consume::AggregationStore store_;
  Clock clock_;
  bool counter_trusted_ = Clock::counter_is_trusted();
  BodyStore bodies_;
  std::deque<Target> targets_;
  RequestWatch requests_;
  std::chrono::steady_clock::time_point next_comparison_{};
  Enabling enabling_;
  std::vector<EnabledProbe> probes_;
  std::vector<plan::ProbeName> names_;                     // by index, what records refer to
  std::multimap<std::string, std::uint32_t> probe_index_;  // probes_, by their names
  std::uint32_t next_id_ = 4;
  std::vector<std::uint64_t> own_globals_;  // where no process has an arena
  std::unique_ptr<TracerEnvironment> environment_;
  report::RecordInterpreter interpreter_;
  std::vector<Tick> ticks_;
  std::optional<std::uint32_t> cpu_;  // option cpu
  std::optional<Profiler> profiler_;
  std::deque<ProfileFiring> profile_firings_;  // that have not been run yet
  // Self variables of threads that have no slot.
  std::map<std::pair<pid_t, pid_t>, std::vector<std::uint64_t>> sampled_self_;
  std::vector<std::string> notes_;
  std::vector<std::string> verbose_notes_;
  std::vector<Refusal> new_refusals_;
  std::optional<std::int32_t> exit_status_;
  Fd child_events_;  // readable when a launched process has something to tell
  bool running_ = false;
  bool in_error_ = false;   // an ERROR clause is running
  bool ending_ = false;     // END clauses are running
  bool busy_ = false;       // the last round had much to take
  bool left_some_ = false;  // the last round met threads that were writing: not all was taken
  bool barrier_failed_ = false;
  consume::Drops untold_;  // losses that the output has not been told of
  std::chrono::steady_clock::time_point drops_due_{};
};

}  // namespace trapline::session
