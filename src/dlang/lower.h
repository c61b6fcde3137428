// From the typed tree to a plan: each clause as instructions, fields and actions.
//
// Values are computed as DTrace computes them: in 64 bits, without cutting after each operation.
// They are cut to their type where they are stored, used as keys or cast (as far as DTrace's casts
// cut), and where a field keeps only the type's bytes. What cannot be run yet gives one diagnostic
// that names it (D_UNKNOWN).

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ctypes/type.h"
#include "diag/diagnostic.h"
#include "dlang/checker.h"
#include "plan/plan.h"

namespace trapline::dlang {

inline constexpr std::size_t kMaxClauseCode =
    1 << 16;  // instructions; inlines in inlines can make a lot of them

struct LowerRequest {
  const std::vector<CheckedClause>* clauses = nullptr;
  ctypes::TypeTable* types = nullptr;
  const diag::SourceManager* sources = nullptr;
  std::uint32_t strsize = 256;
  std::uint32_t scratchsize = 256;
  std::uint32_t speculations = 0;   // option nspec
  std::uint32_t processors = 1;     // their numbers are less
  bool per_processor = false;       // option aggpercpu
  std::optional<std::int64_t> cpu;  // option cpu: the one on which probes fire
  std::uint32_t printsize = 8192;   // bytes that print() records at most
};

// Precondition: the clauses were checked without errors. Scratch offsets in the result count from
// the end of the `this` area, and nothing has its place yet: plan::lay_out() comes next.
plan::Program lower(const LowerRequest& request, diag::Diagnostics& diagnostics);

}  // namespace trapline::dlang
