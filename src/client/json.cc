#include "client/json.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace trapline::client {
namespace {

const Json kNull;

// Decimal digits, all of the text, up to `limit`.
std::optional<unsigned __int128> parse_digits(std::string_view text, unsigned __int128 limit) {
  if (text.empty() || text.size() > 39) return std::nullopt;
  unsigned __int128 value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<unsigned>(c - '0');
    if (value > (limit - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

// The text in {"integer": "..."}.
std::optional<std::string_view> written_integer(const Json& value) {
  if (!value.IsObject()) return std::nullopt;
  const auto found = value.FindMember("integer");
  if (found == value.MemberEnd() || !found->value.IsString()) return std::nullopt;
  return std::string_view(found->value.GetString(), found->value.GetStringLength());
}

constexpr std::uint64_t kMinMagnitude = std::uint64_t{1} << 63;

}  // namespace

void* JsonMemory::Malloc(std::size_t size) {
  if (size == 0) return nullptr;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* JsonMemory::Realloc(void* from, std::size_t /*from_size*/, std::size_t size) {
  if (size == 0) {
    std::free(from);
    return nullptr;
  }
  void* memory = std::realloc(from, size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void JsonMemory::Free(void* memory) { std::free(memory); }

Outcome<JsonDocument> parse_line(std::span<char> line) {
  JsonDocument document;
  // Iterative: nesting is not paid for with stack.
  constexpr unsigned kFlags = rapidjson::kParseInsituFlag | rapidjson::kParseIterativeFlag;
  const std::size_t size = line.size();
  document.ParseInsitu<kFlags>(line.data());
  // A NUL inside the line would be taken for its end.
  if (!document.HasParseError() && document.IsObject() && line.data()[size] == '\0') {
    return document;
  }
  return Failure{TRAPLINE_ERROR_PROTOCOL, "the helper sent a line that is not a JSON object"};
}

void JsonReader::fail(const char* what, const char* problem) {
  if (failure_.empty()) failure_ = std::string(what) + ' ' + problem;
}

Outcome<> JsonReader::result() const {
  if (failure_.empty()) return {};
  return Failure{TRAPLINE_ERROR_PROTOCOL, "the helper's answer was not understood: " + failure_};
}

const Json& JsonReader::optional_member(const Json& object, const char* name) {
  if (!object.IsObject()) return kNull;
  const auto found = object.FindMember(name);
  return found == object.MemberEnd() ? kNull : found->value;
}

const Json& JsonReader::member(const Json& object, const char* name) {
  const Json& value = optional_member(object, name);
  if (&value == &kNull) fail(name, "is missing");
  return value;
}

std::string_view JsonReader::text(const Json& value, const char* what) {
  if (value.IsString()) return {value.GetString(), value.GetStringLength()};
  fail(what, "is not a string");
  return {};
}

std::string_view JsonReader::optional_text(const Json& object, const char* name) {
  const Json& value = optional_member(object, name);
  return value.IsNull() ? std::string_view() : text(value, name);
}

bool JsonReader::is_array(const Json& value, const char* what) {
  if (!value.IsArray()) fail(what, "is not an array");
  return value.IsArray();
}

bool JsonReader::is_object(const Json& value, const char* what) {
  if (!value.IsObject()) fail(what, "is not an object");
  return value.IsObject();
}

std::optional<JsonReader::Integer> JsonReader::integer(const Json& value) {
  if (value.IsUint64()) return Integer{false, value.GetUint64()};
  if (value.IsInt64()) return Integer{true, static_cast<std::uint64_t>(value.GetInt64())};
  auto written = written_integer(value);
  if (!written) return std::nullopt;
  const bool negative = written->starts_with('-');
  if (negative) written->remove_prefix(1);
  const auto magnitude =
      parse_digits(*written, negative ? kMinMagnitude : std::numeric_limits<std::uint64_t>::max());
  if (!magnitude) return std::nullopt;
  const auto bits = static_cast<std::uint64_t>(*magnitude);
  return Integer{negative && bits != 0, negative ? 0 - bits : bits};
}

std::int64_t JsonReader::signed_integer(const Json& value, const char* what) {
  const auto found = integer(value);
  if (found && (found->negative || found->bits < kMinMagnitude)) {
    return static_cast<std::int64_t>(found->bits);
  }
  fail(what, "is not a signed integer of 64 bits");
  return 0;
}

std::uint64_t JsonReader::unsigned_integer(const Json& value, const char* what) {
  const auto found = integer(value);
  if (found && !found->negative) return found->bits;
  fail(what, "is not an unsigned integer of 64 bits");
  return 0;
}

std::uint32_t JsonReader::small_integer(const Json& value, const char* what) {
  const std::uint64_t found = unsigned_integer(value, what);
  if (found <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(found);
  fail(what, "is too great");
  return 0;
}

unsigned __int128 JsonReader::wide_integer(const Json& value, const char* what) {
  if (value.IsUint64()) return value.GetUint64();
  if (const auto written = written_integer(value)) {
    if (const auto found = parse_digits(*written, ~static_cast<unsigned __int128>(0))) {
      return *found;
    }
  }
  fail(what, "is not an unsigned integer of 128 bits");
  return 0;
}

std::optional<std::string_view> JsonReader::hex(const Json& value) {
  if (!value.IsObject()) return std::nullopt;
  const auto found = value.FindMember("hex");
  if (found == value.MemberEnd() || !found->value.IsString()) return std::nullopt;
  const std::string_view digits(found->value.GetString(), found->value.GetStringLength());
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digits.size() % 2 != 0 || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    return std::nullopt;
  }
  return digits;
}

}  // namespace trapline::client
