// The options that -x, #pragma D option and the command's flags set, with DTrace's names.
//
// One table gives each name, its kind and what it may be; values stay text until a typed accessor
// asks.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace trapline::plan {

enum class OptionKind : std::uint8_t {
  kFlag,    // present or not
  kNumber,  // an integer
  kSize,    // bytes, with k m g t
  kRate,    // a period, with tick's suffixes (none: hz); read as nanoseconds
  kText,
};

struct OptionInfo {
  std::string_view name;
  OptionKind kind;
  std::string_view initial;  // "" : unset
  bool while_running;        // setopt() may change it
  bool extension;            // Trapline's own
  bool ignored;              // accepted for DTrace's sake: has no meaning here
};

// Where an option is given. Some are needed before a program is read, so its pragmas come too late.
enum class OptionPlace : std::uint8_t { kOutside, kProgram };

// nullptr: no such option.
const OptionInfo* find_option(std::string_view name);

class Options {
 public:
  // Errors: kBadInput for an unknown name, a value of the wrong form or an option that a program
  // cannot set; the text says what is allowed.
  Result<> set(std::string_view name, std::optional<std::string_view> value,
               OptionPlace place = OptionPlace::kOutside);

  bool flag(std::string_view name) const;
  std::int64_t number(std::string_view name) const;  // numbers and sizes (bytes)
  std::int64_t period_ns(std::string_view name) const;
  std::string text(std::string_view name) const;
  bool is_set(std::string_view name) const;  // by the user

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// "10", "4m", "0x10": bytes or a plain number. "97hz", "10ms", "1s": nanoseconds. nullopt:
// malformed or overflowing.
std::optional<std::int64_t> parse_size(std::string_view text);
std::optional<std::int64_t> parse_period(std::string_view text);

}  // namespace trapline::plan
