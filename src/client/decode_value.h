// The parts of the protocol's objects that several of them have.

#pragma once

#include <optional>

#include "client/json.h"
#include "client/model.h"

namespace trapline::client {

// Decodes into an arena; failures stay in the reader.
class Decoder : public JsonReader {
 public:
  explicit Decoder(Arena& arena) : arena_(arena) {}

  // VALUE; the type is what it looks like, or the one that is known to be.
  trapline_value value(const Json& json, const char* what);
  trapline_value typed_value(const Json& json, trapline_value_type type, const char* what);
  // AGGREGATION
  trapline_aggregation aggregation(const Json& json);
  std::span<trapline_aggregation> aggregations(const Json& array, const char* what);
  // DROPS
  trapline_drops drops(const Json& json);
  trapline_string copy(std::string_view text) { return arena_.copy(text); }
  Arena& arena() { return arena_; }

 private:
  void datum(const Json& json, trapline_entry& entry);
  std::span<trapline_bucket> buckets(const Json& json);
  trapline_string bytes(std::string_view hex_digits);

  Arena& arena_;
};

// What the command prints for avg() and stddev(): integers. 0 for a count of 0.
std::int64_t average(const trapline_statistics& statistics);
std::uint64_t standard_deviation(const trapline_statistics& statistics);

}  // namespace trapline::client
