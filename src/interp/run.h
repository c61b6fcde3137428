// Evaluates one clause of a plan: the reference for what compiled bodies do.
//
// Addresses of our own memory (constants, variables, scratch) that a register holds are tagged with
// a bit pattern that no user-space address of the traced process has, and resolved with bounds: no
// register value, however it came about, makes the evaluator read outside its own areas.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interp/environment.h"
#include "plan/plan.h"

namespace trapline::interp {

// The memory of one firing: `this` variables, static and dynamic scratch. One may serve all firings
// of a thread, one after another; nested firings need one each.
class ThisArea {
 public:
  explicit ThisArea(const plan::Program& program);

  // Before the first clause of a firing: `this` variables become 0.
  void begin_firing();

 private:
  friend class Evaluator;
  std::vector<std::byte> constants_;  // the program's strings, each with its NUL
  std::vector<std::uint64_t> constant_offsets_;
  std::vector<std::byte> scratch_;  // static
  std::vector<std::byte> dynamic_;
  std::vector<std::byte> results_;  // strings that builtins and arrays gave this clause
  std::vector<std::byte> record_;
  std::vector<std::uint64_t> registers_;
  std::vector<std::uint64_t> key_;
  std::uint64_t this_size_ = 0;
  std::uint64_t writable_globals_ = 0;
};

enum class Outcome : std::uint8_t {
  kDone,            // ran to its end
  kPredicateFalse,  // kEnd before kReserve
  kDropped,         // no room for the record
  kFault,           // reported through Environment::fault; the probe's next clause runs
  kExit,            // exit() ran: the probe's later clauses do not run
};

// Preconditions: `clause` is an index into program.clauses; `area` was made for `program`.
// A malformed plan (a register, variable or jump out of range) ends as kFault with
// kIllegalOperation.
Outcome run(const plan::Program& program, std::uint32_t clause, Environment& environment,
            ThisArea& area);

// A firing: begin_firing(), then the clauses in the given order. Stops after kExit.
// Returns kExit if one of them did, else kDone.
Outcome run_firing(const plan::Program& program, std::span<const std::uint32_t> clauses,
                   Environment& environment, ThisArea& area);

}  // namespace trapline::interp
