#include "interp/run.h"

#include <algorithm>
#include <cstring>

#include "interp/evaluator.h"
#include "plan/layout.h"
#include "wire/arena.h"

namespace trapline::interp {

ThisArea::ThisArea(const plan::Program& program) : this_size_(program.this_size) {
  std::uint32_t registers = 0;
  std::uint32_t record = 0;
  std::uint64_t static_size = program.this_size;
  for (const auto& clause : program.clauses) {
    registers = std::max(registers, clause.register_count);
    record = std::max(record, clause.record_size);
    static_size = std::max<std::uint64_t>(static_size, clause.scratch_size);
  }
  scratch_.resize((static_size + 7) & ~std::uint64_t{7});
  dynamic_.resize(plan::dynamic_scratch_size(program));
  writable_globals_ = plan::scalar_globals_size(program);
  registers_.resize(registers);
  record_.resize(record);
  key_.resize(wire::kMaxKeySize / 8);
  for (const auto& text : program.strings) {
    constant_offsets_.push_back(constants_.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(text.c_str());
    constants_.insert(constants_.end(), bytes, bytes + text.size() + 1);
  }
}

void ThisArea::begin_firing() {
  std::fill_n(scratch_.begin(), static_cast<std::ptrdiff_t>(this_size_), std::byte{0});
}

Outcome run(const plan::Program& program, std::uint32_t clause, Environment& environment,
            ThisArea& area) {
  return Evaluator(program, clause, environment, area).run();
}

Outcome run_firing(const plan::Program& program, std::span<const std::uint32_t> clauses,
                   Environment& environment, ThisArea& area) {
  area.begin_firing();
  for (const std::uint32_t clause : clauses) {
    if (run(program, clause, environment, area) == Outcome::kExit) return Outcome::kExit;
  }
  return Outcome::kDone;
}

}  // namespace trapline::interp
