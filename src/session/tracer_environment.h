// Where BEGIN, END, ERROR and tick clauses run: in the tracer, by the reference evaluator.
//
// They share the globals of the traced process's arena with its bodies; their aggregations go
// straight into the store, their records are collected here in the order of their firing. What a
// body sees of the running thread, such a clause sees of the tracer's: pid, tid and execname are
// the tracer's own, as in DTrace.

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

namespace trapline::session {

// Copies memory of the traced process; false: not all of it is readable.
using TargetReader = std::function<bool(RemoteAddr, std::span<std::byte>)>;

// Writes there; false: not all of it is possible.
using TargetWriter = std::function<bool(RemoteAddr, std::span<const std::byte>)>;

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
    std::uint32_t probe = 0;
    const plan::ProbeName* name = nullptr;
    Arguments arguments{};
    std::uint64_t timestamp = 0;  // ns; 0: not asked for yet
  };

  // A firing of `probe` (its index in the session, its name): its clauses are run one by one.
  // Faults become fault records. begin() gives the firing that was going on, which restore() goes
  // on with: ERROR fires within another probe's firing.
  [[nodiscard]] Firing begin(std::uint32_t probe, const plan::ProbeName& name,
                             const Arguments& arguments);
  interp::Outcome run(std::uint32_t clause);
  void restore(Firing outer);

  void set_invoker(const Invoker& invoker) { invoker_ = invoker; }
  // After the globals have moved: another arena.
  void set_globals(std::span<std::byte> globals) { globals_ = globals; }

  // What was recorded since the last call, in order.
  std::vector<consume::Record> take_records();
  // What was lost since the last call.
  consume::Drops take_drops() { return std::exchange(drops_, {}); }

 private:
  std::uint64_t argument(unsigned n) override;
  std::uint64_t builtin(plan::Builtin which) override;
  std::uint64_t epid(std::uint32_t clause) override;
  std::string_view builtin_string(plan::Builtin which) override;
  std::span<std::byte> globals() override { return globals_; }
  std::span<std::byte> self_area() override;
  std::uint64_t thread_key() override { return tid_; }
  bool read_target(RemoteAddr address, std::span<std::byte> out) override {
    return reader_(address, out);
  }
  bool write_target(RemoteAddr address, std::span<const std::byte> bytes) override {
    return writer_(address, bytes);
  }
  bool is_progeny_of(std::int64_t pid) override;
  void raise(int signal) override;
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
  Invoker invoker_ = Invoker::self();
  consume::AggregationStore& store_;
  TargetReader reader_;
  TargetWriter writer_;
  std::vector<std::uint64_t> self_;
  std::uint32_t tid_;
  std::string execname_;
  std::minstd_rand random_{std::random_device{}()};
  Firing firing_;
  std::vector<consume::Record> records_;
  consume::Drops drops_;
};

}  // namespace trapline::session
