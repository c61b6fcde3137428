// JSON, read with suspicion: the answers of the helper are checked member by member, and the first
// thing that is not as docs/protocol.md says is kept as the failure.
//
// Integers are exact: a number is one only if it was written as one, and {"integer": "..."} holds
// those that a double would round.

#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "client/failure.h"

// Tripped only by a mistake of ours: types are checked before values are taken.
#define RAPIDJSON_ASSERT(condition) TL_CHECK(condition)
#include <rapidjson/document.h>

namespace trapline::client {

// RapidJSON takes a null pointer for memory; this one throws.
class JsonMemory {
 public:
  static constexpr bool kNeedFree = true;
  void* Malloc(std::size_t size);
  void* Realloc(void* from, std::size_t from_size, std::size_t size);
  static void Free(void* memory);
};
using JsonPool = rapidjson::MemoryPoolAllocator<JsonMemory>;
using JsonDocument = rapidjson::GenericDocument<rapidjson::UTF8<>, JsonPool, JsonMemory>;
using Json = rapidjson::GenericValue<rapidjson::UTF8<>, JsonPool>;

// Parses a line in place; the line holds the document's strings. A NUL follows the line.
// PROTOCOL: it is not one JSON object.
Outcome<JsonDocument> parse_line(std::span<char> line);

// Takes values out of a document. Where one is not what it should be, a neutral value is returned
// and the first such place is kept: callers check failure() once, at the end.
class JsonReader {
 public:
  // A member of an object; an absent one is JSON's null, and a failure if it is required.
  const Json& member(const Json& object, const char* name);
  const Json& optional_member(const Json& object, const char* name);

  std::string_view text(const Json& value, const char* what);
  // A string that may be absent: "".
  std::string_view optional_text(const Json& object, const char* name);
  bool is_array(const Json& value, const char* what);
  bool is_object(const Json& value, const char* what);
  // VALUE of the protocol, integers only.
  std::int64_t signed_integer(const Json& value, const char* what);
  std::uint64_t unsigned_integer(const Json& value, const char* what);
  std::uint32_t small_integer(const Json& value, const char* what);
  unsigned __int128 wide_integer(const Json& value, const char* what);
  // An integer of either sign: negative ones as signed, all others as unsigned.
  struct Integer {
    bool negative = false;
    std::uint64_t bits = 0;
  };
  std::optional<Integer> integer(const Json& value);

  // The bytes of {"hex": "00ff"} as they are written: pairs of digits; nullopt: it is not that.
  std::optional<std::string_view> hex(const Json& value);

  void fail(const char* what, const char* problem);
  bool failed() const { return !failure_.empty(); }
  // PROTOCOL with the place, if anything failed.
  Outcome<> result() const;

 private:
  std::string failure_;
};

}  // namespace trapline::client
