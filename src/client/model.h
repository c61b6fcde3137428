// What the public handles of data are: plain structures in an arena, filled once by decode.h and
// only read afterwards, by accessors that neither allocate nor call anything.

#pragma once

#include <trapline/trapline.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/arena.h"

struct trapline_entry {
  std::span<const trapline_value> key;
  std::span<const trapline_bucket> buckets;  // histograms
  trapline_value value;                      // all others
  trapline_statistics statistics;            // avg, stddev
  trapline_function function;
};

struct trapline_aggregation {
  trapline_string name;
  std::span<const trapline_entry> entries;
  std::uint64_t normal;
  std::size_t key_size;
  trapline_function function;
};

struct trapline_snapshot {
  trapline::client::Arena arena;
  std::span<const trapline_aggregation> aggregations;
  trapline_string text{"", 0};
  trapline_drops drops{};
  trapline_state state = TRAPLINE_STATE_COMPILED;
};

struct trapline_report {
  trapline::client::Arena arena;
  std::uint64_t probes = 0;
  std::span<const trapline_diagnostic> diagnostics;
  std::span<const trapline_refusal> refusals;
  std::span<const trapline_string> notes;
};

struct trapline_record {
  trapline_record_kind kind;
  const trapline_probe* probe;  // FIRING, FAULT
  std::span<const trapline_action> actions;
  trapline_string text;
  trapline_drops drops;
  std::uint64_t time;
  std::uint64_t address;
  int tid;
  int cpu;
  int fault;
  int status;
  trapline_end_reason reason;
};

namespace trapline::client {

// The records of one notification.
struct RecordBatch {
  Arena arena;
  std::span<const trapline_record> records;
  std::size_t next = 0;  // the first that has not been delivered
  bool ended = false;    // holds an ENDED
};

}  // namespace trapline::client
