#include "consume/record.h"

#include <cstring>

namespace trapline::consume {

std::optional<FaultFields> fault_of(const Record& record) {
  FaultFields fields{};
  if (record.kind != kFaultRecord || record.payload.size() < sizeof fields) return std::nullopt;
  std::memcpy(&fields, record.payload.data(), sizeof fields);
  return fields;
}

Drops& Drops::operator+=(const Drops& other) {
  record += other.record;
  aggregation += other.aggregation;
  dynamic += other.dynamic;
  speculation += other.speculation;
  speculative += other.speculative;
  level += other.level;
  no_slot += other.no_slot;
  samples += other.samples;
  malformed += other.malformed;
  return *this;
}

Drops Drops::operator-(const Drops& earlier) const {
  Drops out;
  out.record = record - earlier.record;
  out.aggregation = aggregation - earlier.aggregation;
  out.dynamic = dynamic - earlier.dynamic;
  out.speculation = speculation - earlier.speculation;
  out.speculative = speculative - earlier.speculative;
  out.level = level - earlier.level;
  out.no_slot = no_slot - earlier.no_slot;
  out.samples = samples - earlier.samples;
  out.malformed = malformed - earlier.malformed;
  return out;
}

bool Drops::any() const { return *this != Drops{}; }

}  // namespace trapline::consume
