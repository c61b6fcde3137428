// A record taken out of an arena's ring: what one firing of one clause reported.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "wire/arena.h"

namespace trapline::consume {

// What Record::kind may be.
inline constexpr std::uint16_t kDataRecord = wire::kRecordData;
inline constexpr std::uint16_t kFaultRecord = wire::kRecordFault;

// What a fault record carries.
using FaultFields = wire::FaultPayload;

struct Record {
  std::uint32_t clause = 0;  // checked: an index into Program::clauses
  std::uint16_t kind = 0;    // kDataRecord or kFaultRecord, checked
  std::uint32_t probe = 0;   // NOT checked: the session knows how many probes there are
  std::uint32_t cpu = 0;
  std::uint32_t tid = 0;
  std::uint64_t tsc = 0;
  std::uint32_t speculation = 0;  // NOT checked: the token of the one it belongs to; 0: none
  std::uint32_t source = 0;       // which process's; set by the session
  std::vector<std::byte>
      payload;  // kDataRecord: Clause::record_size bytes; kFaultRecord: FaultFields
};

// nullopt: the record is of another kind, or too short.
std::optional<FaultFields> fault_of(const Record& record);

// Losses. Totals since tracing began, or what is new since the last look.
struct Drops {
  std::uint64_t record = 0;       // a clause did not run: no room for its record
  std::uint64_t aggregation = 0;  // no room for a new key
  std::uint64_t dynamic = 0;      // no room for an associative array's element
  std::uint64_t speculation = 0;  // speculation() found none free
  std::uint64_t speculative = 0;  // a speculative record beyond specsize
  std::uint64_t level = 0;        // nested deeper than wire::kLevels
  std::uint64_t no_slot = 0;      // a thread found no slot
  std::uint64_t samples = 0;      // a profile probe did not fire where it should have
  std::uint64_t malformed =
      0;  // bytes of the arena that make no sense: damaged by the traced process

  Drops& operator+=(const Drops& other);
  Drops operator-(const Drops& earlier) const;
  bool any() const;
  bool operator==(const Drops&) const = default;
};

}  // namespace trapline::consume
