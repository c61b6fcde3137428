// Runs compiled programs in both engines, the reference interpreter and machine code, and says what
// each of them did.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "codegen/codegen.h"
#include "plan/plan.h"
#include "session/test_random_program.h"

namespace trapline::session::test {

// What a program left behind, a line for each thing: records in order, exit, drops, variables,
// elements of arrays, aggregations, what a body did to the registers that it has to preserve.
using Account = std::vector<std::string>;

// One program of a compilation: a range of its clauses, and the number in the names of its
// variables.
struct Part {
  std::uint32_t number = 0;
  std::uint32_t first_clause = 0;
  std::uint32_t clause_count = 0;
  std::span<const Arguments> firings;
};

// One account for each part, in order. Machine code: what codegen::compile() refuses comes back as
// its error.
std::vector<Account> run_interpreter(const plan::Program& program, std::span<const Part> parts);
Result<std::vector<Account>> run_native(const plan::Program& program, std::span<const Part> parts,
                                        codegen::Effort effort);

}  // namespace trapline::session::test
