// See layout.h.

#include "plan/layout.h"

#include <algorithm>
#include <bit>

#include "wire/arena.h"
#include "wire/bins.h"
#include "wire/dynvar.h"
#include "wire/text.h"

namespace trapline::plan {
namespace {

// No area of a plan may come near 4 GiB; far less is already a mistake of the program.
constexpr std::uint64_t kMaxArea = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxScratch = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

Error too_large(std::string what, std::uint64_t size, std::uint64_t limit) {
  return {ErrorCode::kBadInput, what + " need " + std::to_string(size) + " bytes; at most " +
                                    std::to_string(limit) + " are possible"};
}

Result<> place_scalars(Program& program) {
  std::uint64_t areas[3] = {};
  for (Variable& variable : program.variables) {
    if (variable.is_array) continue;
    std::uint64_t& area = areas[static_cast<std::size_t>(variable.scope)];
    variable.offset = area;
    area += storage_size(variable.type);
  }
  const char* const names[3] = {"global variables", "self variables", "this variables"};
  const std::uint64_t bounds[3] = {kMaxArea, kMaxScratch, kMaxScratch};
  for (std::size_t i = 0; i < 3; ++i) {
    if (areas[i] > bounds[i]) return too_large(names[i], areas[i], bounds[i]);
  }
  program.globals_size =
      static_cast<std::uint32_t>(areas[static_cast<std::size_t>(Scope::kGlobal)]);
  program.self_size = static_cast<std::uint32_t>(areas[static_cast<std::size_t>(Scope::kSelf)]);
  program.this_size = static_cast<std::uint32_t>(areas[static_cast<std::size_t>(Scope::kThis)]);
  return {};
}

void place_speculations(Program& program) {
  if (program.speculations == 0) return;
  program.speculations_offset = round_up(program.globals_size, 8);
  program.globals_size = static_cast<std::uint32_t>(
      round_up(program.speculations_offset + std::uint64_t{program.speculations} * 4, 8));
}

Result<> place_arrays(Program& program, const LayoutLimits& limits) {
  const auto is_array = [](const Variable& variable) { return variable.is_array; };
  const auto count = static_cast<std::uint64_t>(std::ranges::count_if(program.variables, is_array));
  if (count == 0) return {};
  const std::uint64_t share = limits.dynvarsize / count;
  std::uint64_t next = round_up(program.globals_size, 64);
  for (Variable& variable : program.variables) {
    if (!variable.is_array) continue;
    const std::uint64_t keys = key_area(variable);
    const std::uint64_t value = stored_size(variable.type);
    if (keys > kMaxScratch) return too_large("the keys of " + variable.name, keys, kMaxScratch);
    const std::uint64_t cell =
        wire::dynvar_cell_size(static_cast<std::uint32_t>(keys), static_cast<std::uint32_t>(value));
    if (cell > kMaxScratch) return too_large("the elements of " + variable.name, cell, kMaxScratch);
    const std::uint64_t cells =
        std::bit_floor(std::max<std::uint64_t>(share / cell, kMinArrayCells));
    variable.cell_size = static_cast<std::uint32_t>(cell);
    variable.capacity =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(cells, std::uint64_t{1} << 31));
    variable.offset = next;
    next += round_up(cell * variable.capacity, 64);
    if (next > kMaxArea) return too_large("associative arrays (option dynvarsize)", next, kMaxArea);
  }
  program.globals_size = static_cast<std::uint32_t>(next);
  return {};
}

Result<> place_aggregations(Program& program) {
  std::uint64_t direct = 0;
  for (Aggregation& aggregation : program.aggregations) {
    choose_storage(aggregation);
    if (!aggregation.direct) continue;
    aggregation.direct_offset = static_cast<std::uint32_t>(direct);
    direct += std::uint64_t{aggregation.direct_words} * 8;
    if (direct > kMaxArea) return too_large("aggregations", direct, kMaxArea);
  }
  program.direct_size = static_cast<std::uint32_t>(direct);
  return {};
}

Result<> place_clause(Clause& clause, std::uint32_t this_size) {
  std::uint64_t offset = 0;
  for (Field& field : clause.fields) {
    if (field.type.kind == ValueKind::kInteger) offset = round_up(offset, field.type.size);
    field.offset = static_cast<std::uint32_t>(offset);
    offset += field.type.size;
    const std::uint64_t limit = wire::RingChunk::kDataSize - sizeof(wire::RecordHeader);
    if (offset > limit)
      return too_large("the data of the clause in line " + std::to_string(clause.line), offset,
                       limit);
  }
  clause.record_size = static_cast<std::uint32_t>(round_up(offset, 8));
  for (Instruction& instruction : clause.code) {
    if (instruction.scratch != kNone) instruction.scratch += this_size;
  }
  clause.this_size = this_size;
  const std::uint64_t scratch = std::uint64_t{clause.scratch_size} + this_size;
  if (scratch > kMaxScratch) {
    return too_large("the strings and keys of the clause in line " + std::to_string(clause.line),
                     scratch, kMaxScratch);
  }
  clause.scratch_size = static_cast<std::uint32_t>(scratch);
  return {};
}

}  // namespace

std::uint64_t stored_size(const ValueType& type) {
  return type.kind == ValueKind::kString ? std::uint64_t{type.size} + 1 : type.size;
}

std::uint64_t storage_size(const ValueType& type) { return round_up(stored_size(type), 8); }

std::uint32_t token_state_size(std::uint32_t strsize) {
  return static_cast<std::uint32_t>(sizeof(wire::TokenState)) + strsize;
}

std::uint64_t scalar_globals_size(const Program& program) {
  std::uint64_t size = 0;
  for (const Variable& variable : program.variables) {
    if (variable.scope != Scope::kGlobal || variable.is_array) continue;
    size = std::max(size, variable.offset + storage_size(variable.type));
  }
  return size;
}

std::uint64_t key_size(const ValueType& type) {
  const std::uint64_t words = round_up(type.size, 8);
  return type.kind == ValueKind::kString ? 8 + words : words;
}

std::uint64_t key_area(const Variable& variable) {
  std::uint64_t size = variable.scope == Scope::kSelf ? 8 : 0;
  for (const ValueType& key : variable.keys) size += key_size(key);
  return size;
}

std::uint64_t key_area(const Aggregation& aggregation) {
  std::uint64_t size = aggregation.sparse ? 8 : 0;
  for (const ValueType& key : aggregation.keys) size += key_size(key);
  return size;
}

std::uint64_t histogram_bins(AggregationKind kind, const std::int64_t (&parameters)[4]) {
  switch (kind) {
    case AggregationKind::kQuantize:
      return wire::kQuantizeBins;
    case AggregationKind::kLquantize:
      return static_cast<std::uint64_t>(parameters[2]) + 2;
    case AggregationKind::kLlquantize: {
      const std::int64_t factor = parameters[0];
      const std::int64_t magnitudes = parameters[2] - parameters[1] + 1;
      const std::int64_t steps = parameters[3];
      return static_cast<std::uint64_t>(magnitudes * (steps - steps / factor)) * 2 + 3;
    }
    default:
      return 0;
  }
}

void choose_storage(Aggregation& aggregation) {
  const std::uint64_t bins = histogram_bins(aggregation.kind, aggregation.parameters);
  aggregation.bins = static_cast<std::uint32_t>(bins);
  aggregation.sparse = bins > kMaxDenseBins;
  switch (aggregation.kind) {
    case AggregationKind::kAvg:
      aggregation.value_words = 2;
      break;
    case AggregationKind::kStddev:
      aggregation.value_words = 4;
      break;
    case AggregationKind::kQuantize:
    case AggregationKind::kLquantize:
    case AggregationKind::kLlquantize:
      aggregation.value_words = aggregation.sparse ? 1 : aggregation.bins;
      break;
    default:
      aggregation.value_words = 1;
      break;
  }
  const bool additive = aggregation.kind == AggregationKind::kCount ||
                        aggregation.kind == AggregationKind::kSum || bins != 0;
  aggregation.direct = additive && aggregation.keys.empty() && !aggregation.sparse;
  if (!aggregation.direct) {
    aggregation.direct_words = 0;
  } else if (aggregation.kind == AggregationKind::kCount) {
    aggregation.direct_words = 1;
  } else {
    aggregation.direct_words = aggregation.value_words + 1;
  }
}

Result<> lay_out(Program& program, const LayoutLimits& limits) {
  TL_TRY(place_scalars(program));
  place_speculations(program);
  TL_TRY(place_arrays(program, limits));
  TL_TRY(place_aggregations(program));
  for (Clause& clause : program.clauses) TL_TRY(place_clause(clause, program.this_size));
  return {};
}

}  // namespace trapline::plan
