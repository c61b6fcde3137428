// The engine `outside` for one process: what a breakpoint of it means.
//
// Nothing of ours is in the process. Where a thread hits a breakpoint, the thread of the tracer
// that serves it (target/trap_server.h) runs the probes' clauses by the reference evaluator, which
// reads the arguments from the thread's registers and memory by process_vm_readv. Globals lie in
// an arena that only the tracer has, so that BEGIN, END and tick share them; each thread of the
// process has its self-> variables here. Aggregations and records wait for the session's next
// round, which takes them as it drains an arena. (The evaluator and the bodies are tested to give
// the same.)
//
// hit() and thread_ended() are called by the serving thread, take() by the session's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "consume/aggregation_store.h"
#include "consume/record.h"
#include "interp/environment.h"
#include "interp/run.h"
#include "isa/x86_64/site.h"
#include "plan/plan.h"
#include "session/enabling.h"
#include "session/target_program.h"
#include "target/registers.h"
#include "wire/arena.h"

namespace trapline::session {

class OutsideEngine final : private interp::Environment {
 public:
  // All of them outlive the engine. `arena`: made ready by fill_arena(); its state word says
  // whether clauses run. `most_bytes`: of records that wait; what is beyond is dropped and counted.
  OutsideEngine(const plan::Program& program, Pid pid, std::span<std::byte> arena,
                const wire::Layout& layout, std::uint64_t most_bytes);

  // What the breakpoints of a batch mean. `probes`: the session's.
  void add(const ProbeBatch& batch, const probes::ModuleCache& modules,
           std::span<const EnabledProbe> probes);

  void hit(Tid tid, RemoteAddr at, const target::Registers& registers);
  void thread_ended(Tid tid);

  struct Taken {
    std::vector<consume::Record> records;
    consume::Drops drops;
  };
  // What has come in since the last call, of records those not stamped later than `horizon`.
  // Aggregations go to `store`.
  Taken take(consume::AggregationStore& store, std::uint64_t horizon);

 private:
  // One probe at one place.
  struct Point {
    std::uint32_t probe = 0;
    plan::ProbeName name;
    std::vector<std::uint32_t> clauses;
    isa::PointKind kind{};
    std::uint64_t offset = 0;                      // of the instruction in its function
    std::vector<std::byte> instruction;            // that it stands before
    std::string provider;                          // with this process's id
    std::shared_ptr<const probes::UsdtSite> usdt;  // nullptr: no statically defined probe
    LoadBias bias;                                 // of its module
  };
  struct Firing {
    const Point* point = nullptr;
    Tid tid{};
    const target::Registers* registers = nullptr;
    std::uint64_t timestamp = 0;  // ns; 0: not asked for yet
  };

  void fire(const Point& point, Tid tid, const target::Registers& registers);
  std::uint32_t state() const;
  std::optional<std::uint64_t> word_on_stack(std::uint64_t index) const;
  std::optional<std::uint64_t> go_argument(unsigned n) const;
  std::optional<std::uint64_t> usdt_argument(unsigned n) const;
  std::uint64_t virtual_time() const;
  std::uint32_t cpu() const;

  std::optional<std::uint64_t> argument(unsigned n) override;
  std::uint64_t builtin(plan::Builtin which) override;
  std::optional<std::uint64_t> user_stack(plan::Builtin which) override;
  std::optional<std::uint64_t> user_register(plan::UserRegister which) override;
  std::uint64_t epid(std::uint32_t clause) override;
  std::string_view builtin_string(plan::Builtin which) override;
  std::span<std::byte> globals() override { return globals_; }
  std::span<std::byte> self_area() override;
  std::uint64_t thread_key() override { return static_cast<std::uint64_t>(firing_.tid.value); }
  bool read_target(RemoteAddr address, std::span<std::byte> out) override;
  bool write_target(RemoteAddr address, std::span<const std::byte> bytes) override;
  bool is_progeny_of(std::int64_t pid) override;
  bool raise(int signal) override;
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
  Pid pid_;
  wire::Header* header_;
  std::span<std::byte> globals_;
  std::uint64_t most_bytes_;

  std::mutex mutex_;  // for all that follows
  std::map<RemoteAddr, std::vector<Point>> points_;
  std::map<int, std::vector<std::uint64_t>> self_;  // by thread
  interp::ThisArea this_area_;
  std::minstd_rand random_{std::random_device{}()};
  Firing firing_;
  consume::AggregationStore store_;
  std::vector<consume::Record> records_;
  std::uint64_t bytes_ = 0;  // of records_
  consume::Drops drops_;
};

}  // namespace trapline::session
