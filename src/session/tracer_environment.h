// Where BEGIN, END, ERROR, tick and profile clauses run: in the tracer, by the reference evaluator.
//
// They share the globals of the traced process's arena with its bodies; their aggregations go
// straight into the store, their records are collected here in the order of their firing. What a
// body sees of the running thread, such a clause sees of the firing's subject: with profile the
// thread that was sampled, else the tracer's own, as in DTrace.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consume/aggregation_store.h"
#include "consume/record.h"
#include "interp/environment.h"
#include "interp/run.h"
#include "plan/plan.h"
#include "session/invoker.h"
#include "session/subject.h"

namespace trapline::session {

// Copies memory of the traced process; false: not all of it is readable.
using TargetReader = std::function<bool(RemoteAddr, std::span<std::byte>)>;

// Writes there; false: not all of it is possible.
using TargetWriter = std::function<bool(RemoteAddr, std::span<const std::byte>)>;

// The tracer itself. Its memory is not what clauses mean by an address: that of the first traced
// process is.
class TracerSubject final : public Subject {
 public:
  TracerSubject(TargetReader reader, TargetWriter writer, std::uint64_t self_size);

  void set_invoker(const Invoker& invoker) { invoker_ = invoker; }

  std::uint64_t builtin(plan::Builtin which) override;
  std::optional<std::uint64_t> user_stack(plan::Builtin which) override;
  std::optional<std::uint64_t> user_register(plan::UserRegister which) override;
  std::string_view execname() override { return execname_; }
  std::span<std::byte> self_area() override { return std::as_writable_bytes(std::span(self_)); }
  std::span<std::byte> globals() override { return {}; }
  bool read(RemoteAddr from, std::span<std::byte> out) override { return reader_(from, out); }
  bool write(RemoteAddr to, std::span<const std::byte> bytes) override {
    return writer_(to, bytes);
  }
  bool is_progeny_of(std::int64_t pid) override;
  bool raise(int signal) override;

 private:
  TargetReader reader_;
  TargetWriter writer_;
  Invoker invoker_ = Invoker::self();
  std::vector<std::uint64_t> self_;
  std::uint32_t tid_;
  std::string execname_ = "trapline";
};

// Where the tracer is: arg1 of what its own timers fire.
std::uint64_t tracer_pc();

class TracerEnvironment final : public interp::Environment {
 public:
  // All of them outlive the environment. `globals`: at least Program::globals_size bytes, 8-byte
  // aligned.
  TracerEnvironment(const plan::Program& program, std::span<std::byte> globals,
                    consume::AggregationStore& store, TargetReader reader, TargetWriter writer);

  using Arguments = std::array<std::uint64_t, 10>;

  class Firing {
    friend class TracerEnvironment;
    std::unique_ptr<interp::ThisArea> this_area;
    Subject* subject = nullptr;
    std::uint32_t probe = 0;
    const plan::ProbeName* name = nullptr;
    Arguments arguments{};
    std::uint64_t timestamp = 0;  // ns; 0: not asked for yet
  };

  // A firing of `probe` (its index in the session, its name) about `subject`: its clauses are run
  // one by one. Faults become fault records. begin() gives the firing that was going on, which
  // restore() goes on with: ERROR fires within another probe's firing.
  [[nodiscard]] Firing begin(std::uint32_t probe, const plan::ProbeName& name,
                             const Arguments& arguments, Subject& subject);
  interp::Outcome run(std::uint32_t clause);
  void restore(Firing outer);

  void set_invoker(const Invoker& invoker) { tracer_.set_invoker(invoker); }
  Subject& tracer() { return tracer_; }
  // Whom the firing that goes on is about; without one, the tracer.
  Subject& subject() { return firing_.subject != nullptr ? *firing_.subject : tracer_; }
  // After the globals have moved: another arena.
  void set_globals(std::span<std::byte> globals) { globals_ = globals; }

  // What was recorded since the last call, in order.
  std::vector<consume::Record> take_records();
  // What was lost since the last call.
  consume::Drops take_drops() { return std::exchange(drops_, {}); }

 private:
  std::optional<std::uint64_t> argument(unsigned n) override;
  std::uint64_t builtin(plan::Builtin which) override;
  std::optional<std::uint64_t> user_stack(plan::Builtin which) override {
    return subject().user_stack(which);
  }
  std::optional<std::uint64_t> user_register(plan::UserRegister which) override {
    return subject().user_register(which);
  }
  std::uint64_t epid(std::uint32_t clause) override;
  std::string_view builtin_string(plan::Builtin which) override;
  std::span<std::byte> globals() override {
    const std::span<std::byte> own = subject().globals();
    return own.empty() ? globals_ : own;
  }
  std::span<std::byte> self_area() override { return subject().self_area(); }
  std::uint64_t thread_key() override { return subject().builtin(plan::Builtin::kTid); }
  bool read_target(RemoteAddr address, std::span<std::byte> out) override {
    return subject().read(address, out);
  }
  bool write_target(RemoteAddr address, std::span<const std::byte> bytes) override {
    return subject().write(address, bytes);
  }
  bool is_progeny_of(std::int64_t pid) override { return subject().is_progeny_of(pid); }
  bool raise(int signal) override { return subject().raise(signal); }
  void chill(std::chrono::nanoseconds time) override;
  void aggregate(std::uint32_t aggregation, std::span<const std::uint64_t> key, std::int64_t value,
                 std::int64_t weight) override;
  bool reserve(std::uint32_t clause) override;
  void commit(std::uint32_t clause, std::span<const std::byte> payload,
              std::uint32_t speculation) override;
  void fault(std::uint32_t clause, plan::Fault fault, std::uint32_t instruction,
             std::uint64_t address) override;
  void exit(std::int64_t status) override;
  void dynamic_drop() override { ++drops_.dynamic; }
  void aggregation_drop() override { ++drops_.aggregation; }
  void speculation_drop() override { ++drops_.speculation; }

  void add_record(std::uint32_t clause, std::uint16_t kind, std::span<const std::byte> payload,
                  std::uint32_t speculation);

  const plan::Program& program_;
  std::span<std::byte> globals_;
  consume::AggregationStore& store_;
  TracerSubject tracer_;
  std::minstd_rand random_{std::random_device{}()};
  Firing firing_;
  std::vector<consume::Record> records_;
  consume::Drops drops_;
};

}  // namespace trapline::session
