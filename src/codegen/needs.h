// What a body has to set up for its clauses. A body that only adds to direct cells needs no level;
// one that never uses the thread's id need not compare it.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace trapline::codegen {

struct Needs {
  bool level = false;   // scratch, records, tables, faults
  bool thread = false;  // the thread's id: records, self variables, tid, reads of memory
};

// Precondition: the program and the indices are valid.
Needs needs_of(const plan::Program& program, std::span<const std::uint32_t> clauses);

// For each register of a clause: whether it is never 0. Constants that are not, and strings that
// cannot be NULL.
std::vector<bool> nonzero_registers(const plan::Clause& clause);

// Whether the instruction can end in a fault. `nonzero`: of nonzero_registers.
bool may_fault(const plan::Instruction& instruction, const std::vector<bool>& nonzero);

}  // namespace trapline::codegen
