// What a clause needs from the world around it, as the reference evaluator sees it.
//
// The evaluator itself touches no process and no arena layout; the session implements this seam
// twice: for clauses that run in the tracer (BEGIN, END, ERROR, tick) against the shared arena, and
// for the `outside` engine.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/address.h"
#include "plan/plan.h"
#include "plan/registers.h"

namespace trapline::interp {

class Environment {
 public:
  virtual ~Environment() = default;

  // arg<n>, 0 <= n <= 9.
  // nullopt: it lies on the stack and cannot be read (kBadAddress).
  virtual std::optional<std::uint64_t> argument(unsigned n) = 0;
  // An integer builtin, all but kEpid and those of user_stack().
  virtual std::uint64_t builtin(plan::Builtin which) = 0;
  // kUserCaller and kUserStackDepth; nullopt: not known there (kBadStack).
  virtual std::optional<std::uint64_t> user_stack(plan::Builtin) { return std::nullopt; }
  // uregs[]; nullopt: not known.
  virtual std::optional<std::uint64_t> user_register(plan::UserRegister) { return std::nullopt; }
  // epid: of the firing probe and this clause.
  virtual std::uint64_t epid(std::uint32_t clause) = 0;
  // A string builtin (kExecname ... kProbeName). The view must stay valid until run() returns.
  virtual std::string_view builtin_string(plan::Builtin which) = 0;

  // The arena's globals, scalars and tables: Layout::globals_size bytes, 8-byte aligned, or at
  // least Program::globals_size bytes of any memory. Valid until run() returns.
  virtual std::span<std::byte> globals() = 0;
  // The self variables of the thread for which the probe fired: Program::self_size bytes, 8-byte
  // aligned; empty where that thread has none (self variables then read 0 and are not stored).
  virtual std::span<std::byte> self_area() = 0;
  // The thread's id, the first word of a key of a self-> associative array.
  virtual std::uint64_t thread_key() = 0;

  // Fills `out` from the traced process; false: not all of it is readable.
  virtual bool read_target(RemoteAddr address, std::span<std::byte> out) = 0;
  // Copies bytes up to a NUL or up to out.size(), and says how many (without the NUL); nullopt: not
  // readable. The default reads page by page through read_target.
  virtual std::optional<std::size_t> read_target_string(RemoteAddr address,
                                                        std::span<std::byte> out);

  // Writes to the traced process; false: not all of it was possible.
  virtual bool write_target(RemoteAddr address, std::span<const std::byte> bytes) = 0;
  // Whether the process that the probe fired in is `pid` or a descendant of it.
  virtual bool is_progeny_of(std::int64_t pid) = 0;
  // raise() and stop(): a signal to the process that the probe fired in. false: it may not be sent
  // one.
  virtual bool raise(int signal) = 0;
  // chill(): spins.
  virtual void chill(std::chrono::nanoseconds time) = 0;

  // One update. `key` is the tuple in words, as wire/key.h has it. Count has value 1.
  virtual void aggregate(std::uint32_t aggregation, std::span<const std::uint64_t> key,
                         std::int64_t value, std::int64_t weight) = 0;
  // Is there room for the clause's record? false: the drop is counted by the environment, the
  // clause ends.
  virtual bool reserve(std::uint32_t clause) = 0;
  // The clause ended well and has a record (Clause::has_record). `speculation`: the token of the
  // speculation that it belongs to (wire/speculation.h); 0: none.
  virtual void commit(std::uint32_t clause, std::span<const std::byte> payload,
                      std::uint32_t speculation) = 0;
  virtual void fault(std::uint32_t clause, plan::Fault fault, std::uint32_t instruction,
                     std::uint64_t address) = 0;
  // The clause ended well and had run an exit(status) statement; its record, which carries the
  // status, has been committed. (A fault behind the statement undoes it, as it does the record.)
  virtual void exit(std::int64_t status) = 0;
  // An associative array's element found no room, or its cell was contended.
  virtual void dynamic_drop() = 0;
  // speculation() found none free.
  virtual void speculation_drop() = 0;
  // An aggregation's key is longer than wire::kMaxKeySize.
  virtual void aggregation_drop() = 0;
};

}  // namespace trapline::interp
