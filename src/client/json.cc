#include "client/json.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#include "base/check.h"

// Tripped only by a mistake of ours or of the library's.
#define RAPIDJSON_ASSERT(condition) TL_CHECK(condition)
#include <rapidjson/reader.h>

namespace trapline::client {
namespace {

const Json kNull{};

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
  const Json* found = value.find("integer");
  if (found == nullptr || !found->is_string()) return std::nullopt;
  return found->text();
}

constexpr std::uint64_t kMinMagnitude = std::uint64_t{1} << 63;

// RapidJSON takes a null pointer for memory; this one throws.
class ThrowingMemory {
 public:
  [[maybe_unused]] static constexpr bool kNeedFree = true;
  void* Malloc(std::size_t size) { return Realloc(nullptr, 0, size); }
  void* Realloc(void* from, std::size_t /*from_size*/, std::size_t size) {
    if (size == 0) {
      std::free(from);
      return nullptr;
    }
    void* memory = std::realloc(from, size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  static void Free(void* memory) { std::free(memory); }
};

// Puts a document together from the parser's events: values lie on a stack until the array or
// object that they belong to ends, and takes them.
class Builder {
 public:
  explicit Builder(Arena& arena) : arena_(arena) {}

  // NOLINTBEGIN(readability-identifier-naming): the names are RapidJSON's.
  bool Null() { return push({}); }
  bool Bool(bool) { return push(Json::other(Json::Kind::kBoolean)); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Int64(std::int64_t value) {
    return push(Json::integer(value < 0 ? Json::Kind::kNegative : Json::Kind::kInteger,
                              static_cast<std::uint64_t>(value)));
  }
  bool Uint64(std::uint64_t value) { return push(Json::integer(Json::Kind::kInteger, value)); }
  bool Double(double) { return push(Json::other(Json::Kind::kFraction)); }
  bool RawNumber(const char*, rapidjson::SizeType, bool) { return false; }
  bool String(const char* text, rapidjson::SizeType size, bool) {
    return push(Json::string({text, size}));
  }
  bool StartObject() { return true; }
  bool Key(const char* text, rapidjson::SizeType size, bool copy) {
    return String(text, size, copy);
  }
  bool EndObject(rapidjson::SizeType count) {
    return push(Json::object(take(std::size_t{count} * 2)));
  }
  bool StartArray() { return true; }
  bool EndArray(rapidjson::SizeType count) { return push(Json::array(take(count))); }
  // NOLINTEND(readability-identifier-naming)

  Json root() const { return stack_.size() == 1 ? stack_.front() : Json(); }

 private:
  bool push(Json value) {
    stack_.push_back(value);
    return true;
  }
  std::span<const Json> take(std::size_t count) {
    const std::span<Json> taken = arena_.make<Json>(count);
    std::copy(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end(), taken.begin());
    stack_.resize(stack_.size() - count);
    return taken;
  }

  Arena& arena_;
  std::vector<Json> stack_;
};

}  // namespace

Json Json::other(Kind kind) {
  Json json;
  json.kind_ = kind;
  return json;
}

Json Json::integer(Kind kind, std::uint64_t bits) {
  Json json = other(kind);
  json.bits_ = bits;
  return json;
}

Json Json::string(std::string_view text) {
  Json json = other(Kind::kString);
  json.size_ = text.size();
  json.text_ = text.data();
  return json;
}

Json Json::array(std::span<const Json> items) {
  Json json = other(Kind::kArray);
  json.size_ = items.size();
  json.items_ = items.data();
  return json;
}

Json Json::object(std::span<const Json> names_and_values) {
  Json json = array(names_and_values);
  json.kind_ = Kind::kObject;
  return json;
}

const Json* Json::find(std::string_view name) const {
  for (std::size_t i = 0; is_object() && i + 1 < size_; i += 2) {
    if (items_[i].text() == name) return &items_[i + 1];
  }
  return nullptr;
}

Outcome<JsonDocument> parse_line(std::span<char> line) {
  // In place; iteratively: nesting is not paid for with stack.
  constexpr unsigned kFlags = rapidjson::kParseInsituFlag | rapidjson::kParseIterativeFlag;
  JsonDocument document;
  Builder builder(document.arena);
  rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, ThrowingMemory> reader;
  rapidjson::InsituStringStream stream(line.data());
  const bool parsed = !reader.Parse<kFlags>(stream, builder).IsError();
  document.root = builder.root();
  // A NUL within the line would be taken for its end.
  if (parsed && document.root.is_object() && stream.Tell() == line.size()) return document;
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
  const Json* found = object.find(name);
  return found != nullptr ? *found : kNull;
}

const Json& JsonReader::member(const Json& object, const char* name) {
  const Json& value = optional_member(object, name);
  if (&value == &kNull) fail(name, "is missing");
  return value;
}

std::string_view JsonReader::text(const Json& value, const char* what) {
  if (value.is_string()) return value.text();
  fail(what, "is not a string");
  return {};
}

std::string_view JsonReader::optional_text(const Json& object, const char* name) {
  const Json& value = optional_member(object, name);
  return value.is_null() ? std::string_view() : text(value, name);
}

bool JsonReader::is_array(const Json& value, const char* what) {
  if (!value.is_array()) fail(what, "is not an array");
  return value.is_array();
}

bool JsonReader::is_object(const Json& value, const char* what) {
  if (!value.is_object()) fail(what, "is not an object");
  return value.is_object();
}

std::optional<JsonReader::Integer> JsonReader::integer(const Json& value) {
  if (value.is_integer() || value.is_negative()) return Integer{value.is_negative(), value.bits()};
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
  if (value.is_integer()) return value.bits();
  if (const auto written = written_integer(value)) {
    if (const auto found = parse_digits(*written, ~static_cast<unsigned __int128>(0))) {
      return *found;
    }
  }
  fail(what, "is not an unsigned integer of 128 bits");
  return 0;
}

std::optional<std::string_view> JsonReader::hex(const Json& value) {
  const Json* found = value.find("hex");
  if (found == nullptr || !found->is_string()) return std::nullopt;
  const std::string_view digits = found->text();
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digits.size() % 2 != 0 || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    return std::nullopt;
  }
  return digits;
}

}  // namespace trapline::client
