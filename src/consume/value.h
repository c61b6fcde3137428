// Values as the consumer hands them on: decoded fields of records and components of aggregation
// keys.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace trapline::consume {

struct Value {
  plan::ValueType type;
  std::uint64_t integer = 0;  // kInteger: extended to 64 bits by its type's signedness
  std::string bytes;          // kString: up to the NUL; kBytes: all of them

  std::int64_t as_signed() const { return static_cast<std::int64_t>(integer); }
  bool operator==(const Value&) const = default;
};

// Field `field` of a record's payload. The payload may be of any length and content: what lies
// outside reads as 0.
Value decode_field(const plan::Field& field, std::span<const std::byte> payload);

// A key as the wire carries it: whole words, see wire::Entry.
using Key = std::vector<std::uint64_t>;

// Key bytes to components; nullopt if the bytes do not fit the types.
std::optional<std::vector<Value>> decode_key(std::span<const plan::ValueType> types,
                                             std::span<const std::uint64_t> key);
Key encode_key(std::span<const Value> components);

}  // namespace trapline::consume
