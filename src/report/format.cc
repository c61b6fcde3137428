// Each conversion becomes one of C's printf, of a value that is wide enough: integers are extended
// to 64 bits by their type before, so the length modifiers of the D format decide nothing any more.
// Like DTrace, %d of an unsigned type prints it unsigned, a precision of 0 is none, and %% takes no
// value.

#include "report/format.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "consume/statistics.h"
#include "report/histogram_text.h"
#include "report/text.h"

namespace trapline::report {
namespace {

using consume::Value;
using plan::FormatItem;
using plan::ValueKind;

constexpr int kPointerWidth = 16;
constexpr std::uint64_t kNanoseconds = 1'000'000'000;

struct Layout {
  std::string spec;  // "%-08.3": all but the length modifier and the conversion
};

int clamp_recorded(const Value& value) {
  return static_cast<int>(
      std::clamp<std::int64_t>(value.as_signed(), -kMaxRecordedWidth, kMaxRecordedWidth));
}

const Value& value_at(std::span<const Value> values, std::uint32_t index) {
  static const Value none;
  return index < values.size() ? values[index] : none;
}

Layout layout_of(const FormatItem& item, const FormatInput& input) {
  // In the order written: '-' takes back '0' and the other way round.
  bool zero = false;
  bool left = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  bool group = false;
  int width = std::clamp(item.width, 0, kMaxWidth);
  for (const char flag : item.flags) {
    if (flag == '0' || flag == '-') {
      zero = flag == '0';
      left = flag == '-';
    }
    plus |= flag == '+';
    space |= flag == ' ';
    alternate |= flag == '#';
    group |= flag == '\'';
    if (flag == '?' && item.width == -1) width = kPointerWidth;
  }
  int precision = std::clamp(item.precision, 0, kMaxWidth);
  if (item.width == -2) width = clamp_recorded(value_at(input.values, item.width_field));
  if (item.precision == -2) {
    precision = clamp_recorded(value_at(input.values, item.precision_field));
  }
  Layout layout;
  layout.spec = "%";
  if (alternate) layout.spec += '#';
  if (zero) layout.spec += '0';
  if (left || width < 0) layout.spec += '-';
  if (plus) layout.spec += '+';
  if (group) layout.spec += '\'';
  if (space) layout.spec += ' ';
  if (width != 0) layout.spec += std::to_string(std::abs(width));
  if (precision > 0) layout.spec += '.' + std::to_string(precision);
  return layout;
}

// The one place where a format string is not a literal: spec's characters come from layout_of only.
template <typename T>
void append_converted(std::string& out, const std::string& spec, T value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  append(out, spec.c_str(), value);
#pragma GCC diagnostic pop
}

void append_integer(std::string& out, const Layout& layout, char conversion, std::uint64_t value) {
  append_converted(out, layout.spec + "ll" + conversion, static_cast<unsigned long long>(value));
}

void append_text(std::string& out, const Layout& layout, std::string_view text) {
  append_converted(out, layout.spec + 's', std::string(text).c_str());
}

std::uint64_t as_unsigned(const Value& value) {
  if (value.type.size == 0 || value.type.size >= 8) return value.integer;
  return value.integer & ((std::uint64_t{1} << (8 * value.type.size)) - 1);
}

// "1973 Dec  3 17:20:00", local time.
std::string calendar_time(std::uint64_t nanoseconds) {
  const auto seconds = static_cast<std::time_t>(nanoseconds / kNanoseconds);
  std::tm parts{};
  char text[64] = "";
  if (::localtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y %b %e %H:%M:%S", &parts);
  }
  return text;
}

// "Mon, 03 Dec 1973 17:20:00 GMT", local time.
std::string mail_time(std::uint64_t nanoseconds) {
  const auto seconds = static_cast<std::time_t>(nanoseconds / kNanoseconds);
  std::tm parts{};
  char text[64] = "";
  if (::localtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%a, %d %b %G %T %Z", &parts);
  }
  return text;
}

double as_double(const Value& value) {
  if (value.type.size == 4) {
    const auto raw = static_cast<std::uint32_t>(value.integer);
    float out;
    std::memcpy(&out, &raw, sizeof out);
    return static_cast<double>(out);
  }
  double out;
  std::memcpy(&out, &value.integer, sizeof out);
  return out;
}

std::string utf8(std::uint64_t code) {
  std::string out;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18 & 7));
    out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
  return out;
}

// A wchar_t array, 4 bytes a character, up to a NUL.
std::string wide_text(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t code;
    std::memcpy(&code, bytes.data() + at, 4);
    if (code == 0) break;
    out += utf8(code > 0x10ffff ? 0xfffd : code);
  }
  return out;
}

std::string_view text_of(const Value& value) {
  return std::string_view(value.bytes).substr(0, value.bytes.find('\0'));
}

bool is_wide(const FormatItem& item) {
  return item.length.find_first_of("lw") != std::string::npos;
}

void append_character(std::string& out, const Layout& layout, const FormatItem& item,
                      const Value& value) {
  const auto code = static_cast<std::uint32_t>(value.integer);
  if (is_wide(item) && code >= 0x80) {
    append_text(out, layout, utf8(code > 0x10ffff ? 0xfffd : code));
    return;
  }
  append_converted(out, layout.spec + 'c', static_cast<int>(value.as_signed()));
}

std::string address_text(std::uint64_t address, const FormatInput& input) {
  if (input.options != nullptr && input.options->symbol_name) {
    return input.options->symbol_name(address);
  }
  std::string out;
  append(out, "0x%llx", static_cast<unsigned long long>(address));
  return out;
}

void append_value(std::string& out, const FormatItem& item, const Layout& layout,
                  const Value& value, const FormatInput& input) {
  switch (item.conversion) {
    case 'd':
    case 'i':
      if (value.type.is_signed) return append_integer(out, layout, item.conversion, value.integer);
      return append_integer(out, layout, 'u', as_unsigned(value));
    case 'p':
      return append_integer(out, layout, 'x', as_unsigned(value));
    case 'c':
      return append_character(out, layout, item, value);
    case 'C': {
      const char c = static_cast<char>(value.integer);
      return append_text(out, layout, escape(std::string_view(&c, 1)));
    }
    case 's':
      return append_text(out, layout, is_wide(item) ? wide_text(value.bytes) : text_of(value));
    case 'S':
      return append_text(
          out, layout,
          escape(text_of(value)) + (text_of(value).size() + 1 <= value.type.size ? "\\0" : ""));
    case 'a':
    case 'A':
      return append_text(out, layout, address_text(as_unsigned(value), input));
    case 'Y':
      return append_text(out, layout, calendar_time(value.integer));
    case 'T':
      return append_text(out, layout, mail_time(value.integer));
    case 'e':
    case 'E':
    case 'f':
    case 'g':
    case 'G':
      return append_converted(out, layout.spec + item.conversion, as_double(value));
    default:  // o u x X
      return append_integer(out, layout, item.conversion, as_unsigned(value));
  }
}

// The result of an aggregating function is a signed number, count()'s an unsigned one.
void append_aggregation(std::string& out, const FormatItem& item, const Layout& layout,
                        const AggregationValue& shown, const FormatInput& input) {
  static const consume::Datum zero;
  const consume::Datum& datum = shown.datum != nullptr ? *shown.datum : zero;
  const auto kind = shown.aggregation->kind;
  if (consume::is_histogram(kind)) {
    append_histogram(out, *shown.aggregation, datum, shown.normal);
    return;
  }
  if (std::string_view("TYaA").find(item.conversion) != std::string_view::npos) {
    Value value;
    value.integer = static_cast<std::uint64_t>(consume::scalar_value(kind, datum, shown.normal));
    append_value(out, item, layout, value, input);
    return;
  }
  const bool wants_signed = item.conversion == 'd' || item.conversion == 'i';
  const std::int64_t value = consume::scalar_value(kind, datum, 1);
  char conversion = item.conversion == 'p' ? 'x' : item.conversion;
  if (kind == plan::AggregationKind::kCount && wants_signed) conversion = 'u';
  const bool sum_like =
      kind != plan::AggregationKind::kAvg && kind != plan::AggregationKind::kStddev;
  if (sum_like && !(wants_signed && conversion != 'u')) {
    // Divided as the unsigned number that is printed.
    append_integer(out, layout, conversion,
                   static_cast<std::uint64_t>(value) / std::max<std::uint64_t>(1, shown.normal));
    return;
  }
  append_integer(out, layout, conversion,
                 static_cast<std::uint64_t>(consume::scalar_value(kind, datum, shown.normal)));
}

}  // namespace

void append_format(std::string& out, std::span<const FormatItem> items, const FormatInput& input) {
  for (const FormatItem& item : items) {
    if (item.conversion == 0) {
      out += item.text;
      continue;
    }
    if (item.conversion == '%') {
      out += '%';
      continue;
    }
    const Layout layout = layout_of(item, input);
    if (!item.is_aggregation) {
      append_value(out, item, layout, value_at(input.values, item.value), input);
    } else if (!input.aggregations.empty()) {
      // Conversions beyond the number of aggregations show the last one again.
      const std::size_t index = std::min<std::size_t>(item.value, input.aggregations.size() - 1);
      append_aggregation(out, item, layout, input.aggregations[index], input);
    }
  }
}

}  // namespace trapline::report
