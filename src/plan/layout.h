// Lays a lowered program out: where each variable, record field and scratch area lies, how
// aggregations are stored.
//
// The last pass of the front end. Before it, a plan's instructions carry scratch offsets counted
// from the end of the `this` area, and variables, fields and aggregations have types but no places.
//
//   - Scalars take 8-byte aligned slots in their scope's area, in order of declaration; strings
//   take strsize bytes.
//     Associative arrays follow the global scalars.
//   - A record's fields lie in order, integers aligned to their size.
//   - The level's scratch holds the `this` area first, then the clause's static scratch.

#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/plan.h"
#include "wire/speculation.h"

namespace trapline::plan {

// However small dynvarsize is.
inline constexpr std::uint32_t kMinArrayCells = 1;

struct LayoutLimits {
  std::uint64_t dynvarsize = 1024 * 1024;  // bytes for all associative arrays together
};

// Bytes of one value in a variable: a string has a byte in front, see Variable. storage_size: in
// whole words. key_size: in a key, where a string carries its length before it, and bytes do not.
std::uint64_t stored_size(const ValueType& type);
std::uint64_t storage_size(const ValueType& type);
std::uint64_t key_size(const ValueType& type);

// Bytes of scratch in which the key of an array or aggregation is built: all components at their
// longest; in front, for arrays of scope self, the thread's id.
std::uint64_t key_area(const Variable& variable);
std::uint64_t key_area(const Aggregation& aggregation);  // a sparse one's bin included

// How many bins a histogram has; `parameters` as in Aggregation. For kLlquantize: (high - low + 1)
// magnitudes of (steps - steps / factor) bins each, on either side of zero, and under-, over- and
// zero bin.
std::uint64_t histogram_bins(AggregationKind kind, const std::int64_t (&parameters)[4]);

// Bytes of globals that instructions may write by address: the scalars, before arrays and all else.
std::uint64_t scalar_globals_size(const Program& program);

// Bytes of what strtok() keeps between two calls.
std::uint32_t token_state_size(std::uint32_t strsize);
inline constexpr std::uint32_t kMaxSpeculations = wire::kMaxSpeculations;

// Fills in the storage of one aggregation (bins, direct, sparse, words) from its kind, keys and
// parameters.
void choose_storage(Aggregation& aggregation);

// Errors: kBadInput where areas or records would grow out of bounds; the text says which.
Result<> lay_out(Program& program, const LayoutLimits& limits);

}  // namespace trapline::plan
