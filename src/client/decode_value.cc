#include "client/decode_value.h"

#include <array>
#include <limits>

namespace trapline::client {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kSignBit = std::uint64_t{1} << 63;

constexpr std::array<std::string_view, 9> kFunctions{
    "count", "sum", "min", "max", "avg", "stddev", "quantize", "lquantize", "llquantize"};
constexpr std::array<std::string_view, 4> kTypes{"int", "uint", "string", "bytes"};

// The position of `text` in `names`, which is the enumerator's value.
template <typename Names>
std::optional<int> position(const Names& names, std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return static_cast<int>(i);
  }
  return std::nullopt;
}

unsigned hex_digit(char c) { return static_cast<unsigned>(c >= 'a' ? c - 'a' + 10 : c - '0'); }

std::uint64_t root_of(Wide square) {
  Wide root = 0;
  for (Wide bit = Wide{1} << 63; bit != 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= square) root += bit;
  }
  return static_cast<std::uint64_t>(root);
}

}  // namespace

std::int64_t average(const trapline_statistics& statistics) {
  const auto count = static_cast<std::int64_t>(statistics.count);
  return count <= 0 ? 0 : statistics.sum / count;
}

std::uint64_t standard_deviation(const trapline_statistics& statistics) {
  if (statistics.count == 0) return 0;
  const Wide squares = Wide{statistics.squares_high} << 64 | statistics.squares_low;
  const Wide mean_of_squares = squares / statistics.count;
  const std::int64_t mean = average(statistics);
  const std::uint64_t size =
      mean < 0 ? 0 - static_cast<std::uint64_t>(mean) : static_cast<std::uint64_t>(mean);
  const Wide square_of_mean = Wide{size} * size;
  return square_of_mean > mean_of_squares ? 0 : root_of(mean_of_squares - square_of_mean);
}

trapline_string Decoder::bytes(std::string_view hex_digits) {
  if (hex_digits.empty()) return {"", 0};
  const std::span<char> out = arena_.make<char>(hex_digits.size() / 2 + 1);
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    out[i] =
        static_cast<char>(hex_digit(hex_digits[2 * i]) * 16 + hex_digit(hex_digits[2 * i + 1]));
  }
  return {out.data(), out.size() - 1};
}

trapline_value Decoder::value(const Json& json, const char* what) {
  trapline_value value{TRAPLINE_VALUE_INT, 0, {"", 0}};
  if (const auto found = integer(json)) {
    value.integer = static_cast<std::int64_t>(found->bits);
    if (!found->negative && (found->bits & kSignBit) != 0) value.type = TRAPLINE_VALUE_UINT;
  } else if (json.is_string()) {
    value.type = TRAPLINE_VALUE_STRING;
    value.bytes = copy(json.text());
  } else if (const auto digits = hex(json)) {
    value.type = TRAPLINE_VALUE_BYTES;
    value.bytes = bytes(*digits);
  } else {
    fail(what, "is not a value");
  }
  return value;
}

trapline_value Decoder::typed_value(const Json& json, trapline_value_type type, const char* what) {
  trapline_value found = value(json, what);
  const bool is_integer = found.type == TRAPLINE_VALUE_INT || found.type == TRAPLINE_VALUE_UINT;
  const bool wants_integer = type == TRAPLINE_VALUE_INT || type == TRAPLINE_VALUE_UINT;
  if (is_integer != wants_integer) fail(what, "is of another type than announced");
  if (type == TRAPLINE_VALUE_INT && found.type == TRAPLINE_VALUE_UINT) fail(what, "is too great");
  if (type == TRAPLINE_VALUE_UINT && found.type == TRAPLINE_VALUE_INT && found.integer < 0) {
    fail(what, "is negative");
  }
  found.type = type;
  return found;
}

std::span<trapline_bucket> Decoder::buckets(const Json& json) {
  if (!is_array(json, "a histogram")) return {};
  const std::span<trapline_bucket> out = arena_.make<trapline_bucket>(json.items().size());
  std::size_t used = 0;
  for (const Json& bin : json.items()) {
    trapline_bucket& bucket = out[used++];
    bucket = {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
              0};
    const Json& low = member(bin, "low");
    const Json& high = member(bin, "high");
    if (!low.is_null()) bucket.low = signed_integer(low, "low");
    // A bound that no value can pass is none.
    const auto greatest = integer(high);
    const bool beyond = greatest && !greatest->negative && (greatest->bits & kSignBit) != 0;
    if (!high.is_null() && !beyond) bucket.high = signed_integer(high, "high");
    bucket.count = signed_integer(member(bin, "count"), "count");
  }
  return out;
}

void Decoder::datum(const Json& json, trapline_entry& entry) {
  switch (entry.function) {
    case TRAPLINE_FUNCTION_COUNT:
    case TRAPLINE_FUNCTION_SUM:
    case TRAPLINE_FUNCTION_MIN:
    case TRAPLINE_FUNCTION_MAX:
      entry.value = value(json, "value");
      if (entry.value.type > TRAPLINE_VALUE_UINT) fail("value", "is not an integer");
      return;
    case TRAPLINE_FUNCTION_AVG:
    case TRAPLINE_FUNCTION_STDDEV:
      entry.statistics.count = unsigned_integer(member(json, "count"), "count");
      entry.statistics.sum = signed_integer(member(json, "sum"), "sum");
      if (entry.function == TRAPLINE_FUNCTION_AVG) {
        entry.value.integer = average(entry.statistics);
        return;
      }
      {
        const Wide squares = wide_integer(member(json, "squares"), "squares");
        entry.statistics.squares_high = static_cast<std::uint64_t>(squares >> 64);
        entry.statistics.squares_low = static_cast<std::uint64_t>(squares);
      }
      entry.value.type = TRAPLINE_VALUE_UINT;
      entry.value.integer = static_cast<std::int64_t>(standard_deviation(entry.statistics));
      return;
    default:
      entry.buckets = buckets(json);
  }
}

trapline_aggregation Decoder::aggregation(const Json& json) {
  trapline_aggregation out{
      copy(text(member(json, "name"), "name")), {}, 1, 0, TRAPLINE_FUNCTION_COUNT};
  const auto function = position(kFunctions, text(member(json, "function"), "function"));
  if (!function) {
    fail("function", "is not known");
    return out;
  }
  out.function = static_cast<trapline_function>(*function);
  out.normal = unsigned_integer(member(json, "normal"), "normal");

  const Json& types = member(json, "types");
  const Json& entries = member(json, "entries");
  if (!is_array(types, "types") || !is_array(entries, "entries")) return out;
  out.key_size = types.items().size();
  std::array<trapline_value_type, 64> type_of{};
  if (out.key_size > type_of.size()) fail("types", "are too many");
  for (std::size_t i = 0; i < types.items().size() && !failed(); ++i) {
    const auto type = position(kTypes, text(types.items()[i], "types"));
    if (!type) fail("types", "has one that is not known");
    type_of[i] = static_cast<trapline_value_type>(type.value_or(0));
  }
  const std::span<trapline_entry> made =
      arena_.make<trapline_entry>(failed() ? 0 : entries.items().size());
  for (std::size_t i = 0; i < made.size() && !failed(); ++i) {
    const Json& entry = entries.items()[i];
    const Json& key = member(entry, "key");
    if (!is_array(key, "key") || key.items().size() != out.key_size) {
      fail("key", "has another size than announced");
      break;
    }
    const std::span<trapline_value> components = arena_.make<trapline_value>(out.key_size);
    for (std::size_t c = 0; c < key.items().size(); ++c) {
      components[c] = typed_value(key.items()[c], type_of[c], "key");
    }
    made[i].key = components;
    made[i].value.bytes = {"", 0};
    made[i].function = out.function;
    datum(member(entry, "value"), made[i]);
  }
  out.entries = made;
  return out;
}

std::span<trapline_aggregation> Decoder::aggregations(const Json& array, const char* what) {
  if (!is_array(array, what)) return {};
  const std::span<trapline_aggregation> out =
      arena_.make<trapline_aggregation>(array.items().size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = aggregation(array.items()[i]);
  }
  return out;
}

trapline_drops Decoder::drops(const Json& json) {
  trapline_drops drops{};
  if (!is_object(json, "drops")) return drops;
  const auto take = [&](const char* name, std::uint64_t& into) {
    into = unsigned_integer(member(json, name), name);
  };
  take("record", drops.record);
  take("aggregation", drops.aggregation);
  take("dynamic", drops.dynamic);
  take("speculation", drops.speculation);
  take("speculative", drops.speculative);
  take("level", drops.level);
  take("no_slot", drops.no_slot);
  take("samples", drops.samples);
  take("malformed", drops.malformed);
  take("client", drops.client);
  return drops;
}

}  // namespace trapline::client
