// JSON, read with suspicion: the answers of the helper are checked member by member, and the first
// thing that is not as docs/protocol.md says is kept as the failure.
//
// Integers are exact: a number is one only if it was written as one, and {"integer": "..."} holds
// those that a double would round.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "client/arena.h"
#include "client/failure.h"

namespace trapline::client {

// A value of a document. Trivial: a view into the document's line and memory.
class Json {
 public:
  enum class Kind : std::uint8_t {
    kNull,
    kBoolean,
    kNegative,
    kInteger,
    kFraction,
    kString,
    kArray,
    kObject
  };

  Json() = default;
  static Json other(Kind kind);  // kNull, kBoolean, kFraction: nobody asks for their values
  static Json integer(Kind kind, std::uint64_t bits);
  static Json string(std::string_view text);
  static Json array(std::span<const Json> items);
  // Names and values in turns.
  static Json object(std::span<const Json> names_and_values);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_integer() const { return kind_ == Kind::kInteger; }    // not negative
  bool is_negative() const { return kind_ == Kind::kNegative; }  // an integer
  // Each "" or empty or 0 for values of another kind.
  std::string_view text() const { return is_string() ? std::string_view(text_, size_) : ""; }
  std::span<const Json> items() const {
    return is_array() ? std::span(items_, size_) : std::span<const Json>();
  }
  std::uint64_t bits() const {
    return is_integer() || is_negative() ? bits_ : 0;
  }  // 64, in two's complement
  // An object's member, the first of this name; nullptr: there is none.
  const Json* find(std::string_view name) const;

 private:
  Kind kind_ = Kind::kNull;
  std::size_t size_ = 0;  // of text_ or items_
  union {
    std::uint64_t bits_ = 0;
    const char* text_;
    const Json* items_;
  };
};

// One line, parsed. Its strings lie in the line.
struct JsonDocument {
  Arena arena;
  Json root;
};

// Parses a line in place. A NUL follows the line. PROTOCOL: it is not one JSON object.
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
