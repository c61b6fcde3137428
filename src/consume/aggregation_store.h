// All aggregations of a program with their merged values: unbounded, exact, of all traced processes
// together.
//
// Drained tables and deltas of direct cells are merged in (merge), the tracer's own clauses update
// it (update), the actions of records change it (clear, truncate, normalize), the report reads it.
//
// DTrace's rules: clear() keeps the keys and sets values to the function's identity (0; INT64_MAX
// for min, INT64_MIN for max); trunc(@) forgets all entries, trunc(@, n) keeps the n highest,
// trunc(@, -n) the n lowest; normalize only sets the divisor that printing applies.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "consume/value.h"
#include "plan/plan.h"

namespace trapline::consume {

// Bins of a histogram that are not 0, ascending.
using Bins = std::vector<std::pair<std::uint32_t, std::int64_t>>;

// What each function uses: count, avg, stddev: count; sum, min, max, avg, stddev: value; stddev:
// squares; histograms: bins. Sums wrap modulo 2^64 as DTrace's do; squares are exact to 128 bits.
struct Datum {
  std::int64_t count = 0;
  std::int64_t value = 0;
  unsigned __int128 squares = 0;
  Bins bins;

  std::int64_t bin(std::uint32_t index) const;
  void add_to_bin(std::uint32_t index, std::int64_t weight);
};

// By processor's number, where the aggregation keeps them apart; one that is missing has made no
// update.
using ByProcessor = std::map<std::uint32_t, Datum>;

struct SortOptions {
  bool by_key = false;             // aggsortkey
  bool reversed = false;           // aggsortrev
  std::uint32_t key_position = 0;  // aggsortkeypos
  std::uint32_t position = 0;      // aggsortpos: which aggregation of a joined print decides
};

// One line of a print: the key and, per aggregation asked for, its datum (nullptr: that one has no
// such key).
struct Row {
  const std::vector<Value>* components = nullptr;
  std::vector<const Datum*> data;
  std::vector<const ByProcessor*> by_processor;  // likewise
};

class AggregationStore {
 public:
  explicit AggregationStore(const plan::Program& program);

  const plan::Program& program() const { return *program_; }

  // One update as a clause makes it. Count has value 1. `key` is in wire form; false: it does not
  // fit the types.
  bool update(std::uint32_t aggregation, std::span<const std::uint64_t> key, std::int64_t value,
              std::int64_t weight);
  // Adds the words of a table entry (or the deltas of direct cells, laid out as a table entry's
  // words). For a sparse aggregation `key` ends with the bin. false: index, key or number of words
  // are wrong.
  bool merge(std::uint32_t aggregation, std::span<const std::uint64_t> key,
             std::span<const std::uint64_t> words);

  // What a processor that has made no update has.
  static Datum initial(plan::AggregationKind kind);

  // Adds all that another store of the same program holds, and leaves that one empty.
  void absorb(AggregationStore& other);

  // Indices out of range are ignored: records that carry them were checked when the plan was made.
  void clear(std::uint32_t aggregation);
  void truncate(std::uint32_t aggregation, std::optional<std::int64_t> keep);
  void normalize(std::uint32_t aggregation, std::uint64_t divisor);  // 0 counts as 1
  std::uint64_t normal(std::uint32_t aggregation) const;

  // Printed by a printa(): not printed again at the end. New data does not unset it, as in DTrace.
  void set_printed(std::uint32_t aggregation);
  bool printed(std::uint32_t aggregation) const;

  bool empty(std::uint32_t aggregation) const;
  std::size_t entry_count(std::uint32_t aggregation) const;

  // The entries of one aggregation, or of several joined by key, in printing order. Pointers are
  // valid until the next change of the store.
  std::vector<Row> rows(std::span<const std::uint32_t> aggregations, const SortOptions& sort) const;

 private:
  struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::span<const std::uint64_t> key) const noexcept;
    std::size_t operator()(const Key& key) const noexcept {
      return (*this)(std::span<const std::uint64_t>(key));
    }
  };
  struct KeyEqual {
    using is_transparent = void;
    bool operator()(std::span<const std::uint64_t> a,
                    std::span<const std::uint64_t> b) const noexcept;
  };
  struct Stored {
    std::vector<Value> components;
    Datum datum;
    ByProcessor by_processor;  // Aggregation::per_processor
  };
  using Entries = std::unordered_map<Key, Stored, KeyHash, KeyEqual>;
  struct State {
    Entries entries;
    std::uint64_t normal = 1;
    bool printed = false;
  };

  // The data that an update with this key goes to: the entry's, and its processor's.
  struct Places {
    Datum* whole = nullptr;  // nullptr: the key does not fit
    Datum* processor = nullptr;
  };
  Places places(std::uint32_t aggregation, std::span<const std::uint64_t> key);
  Stored* find_or_add(std::uint32_t aggregation, std::span<const std::uint64_t> key);

  const plan::Program* program_;
  std::vector<State> states_;
};

}  // namespace trapline::consume
