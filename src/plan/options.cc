// See options.h. The names, kinds and initial values are Oracle's DTrace 2.0; those that only exist
// elsewhere (illumos, FreeBSD) and those of Trapline follow.

#include "plan/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

namespace trapline::plan {
namespace {

enum class When : std::uint8_t { kStart, kAnyTime };

constexpr OptionInfo option(std::string_view name, OptionKind kind, std::string_view initial = "",
                            When when = When::kStart) {
  return {name, kind, initial, when == When::kAnyTime, false, false};
}
constexpr OptionInfo extension(std::string_view name, OptionKind kind,
                               std::string_view initial = "") {
  return {name, kind, initial, false, true, false};
}
constexpr OptionInfo ignored(std::string_view name, OptionKind kind) {
  return {name, kind, "", false, false, true};
}

using enum OptionKind;

constexpr OptionInfo kOptions[] = {
    // Compile time.
    option("aggpercpu", kFlag),
    option("amin", kText),
    option("argref", kFlag),
    option("core", kText),
    option("cpp", kFlag),
    option("cppargs", kText),
    option("cpphdrs", kFlag),
    option("cpppath", kText, "cpp"),
    option("ctypes", kText),
    option("defaultargs", kFlag),
    option("debug", kFlag),
    option("define", kText),
    option("disasm", kNumber),
    option("droptags", kFlag),
    option("dtypes", kText),
    option("empty", kFlag),
    option("errtags", kFlag),
    option("evaltime", kText, "postinit"),
    option("incdir", kText),
    option("late", kText, "static"),
    option("libdir", kText),
    option("nolibs", kFlag),
    option("pgmax", kNumber, "8"),
    option("pspec", kFlag),
    option("stdc", kText, "a"),
    option("syslibdir", kText),
    option("tree", kNumber),
    option("undef", kText),
    option("verbose", kFlag),
    option("version", kText),
    option("zdefs", kFlag),
    // Run time.
    option("aggsize", kSize, "4m"),
    option("bufsize", kSize, "4m"),
    option("bufpolicy", kText, "switch"),
    option("bufresize", kText, "auto"),
    option("cleanrate", kRate, "101hz"),
    option("cpu", kNumber),
    option("destructive", kFlag),
    option("dynvarsize", kSize, "1m"),
    option("jstackframes", kNumber, "50"),
    option("jstackstrsize", kSize, "512"),
    option("maxframes", kNumber, "127"),
    option("nspec", kNumber, "1"),
    option("noresolve", kFlag),
    option("pcapsize", kSize, "1514"),
    option("scratchsize", kSize, "256"),
    option("specsize", kSize, "4m"),
    option("stackframes", kNumber, "20"),
    option("statusrate", kRate, "1s"),
    option("strsize", kSize, "256"),
    option("ustackframes", kNumber, "20"),
    // Run time, and while running.
    option("aggrate", kRate, "0", When::kAnyTime),
    option("aggsortkey", kFlag, "", When::kAnyTime),
    option("aggsortkeypos", kNumber, "0", When::kAnyTime),
    option("aggsortpos", kNumber, "0", When::kAnyTime),
    option("aggsortrev", kFlag, "", When::kAnyTime),
    option("flowindent", kFlag, "", When::kAnyTime),
    option("printsize", kSize, "8192", When::kAnyTime),
    option("quiet", kFlag, "", When::kAnyTime),
    option("quietresize", kFlag, "", When::kAnyTime),
    option("rawbytes", kFlag, "", When::kAnyTime),
    option("stackindent", kNumber, "14", When::kAnyTime),
    option("switchrate", kRate, "0", When::kAnyTime),
    // Only illumos and FreeBSD have these.
    option("agghist", kFlag, "", When::kAnyTime),
    option("aggpack", kFlag, "", When::kAnyTime),
    option("aggzoom", kFlag, "", When::kAnyTime),
    option("encoding", kText, "", When::kAnyTime),
    option("setenv", kText),
    option("unsetenv", kText),
    option("temporal", kFlag, "", When::kAnyTime),
    option("zone", kText),
    // Accepted, without a meaning here: they concern a kernel, or how DTrace itself is built and
    // linked.
    ignored("bpflog", kFlag),
    ignored("bpflogsize", kSize),
    ignored("ctfpath", kText),
    ignored("debugassert", kText),
    ignored("dofstashpath", kText),
    ignored("grabanon", kFlag),
    ignored("iregs", kNumber),
    ignored("kdefs", kFlag),
    ignored("knodefs", kFlag),
    ignored("lazyload", kFlag),
    ignored("ldpath", kText),
    ignored("linkmode", kText),
    ignored("linknommap", kFlag),
    ignored("linktype", kText),
    ignored("lockmem", kText),
    ignored("modpath", kText),
    ignored("preallocate", kSize),
    ignored("procfspath", kText),
    ignored("strip", kFlag),
    ignored("sysslice", kText),
    ignored("tregs", kNumber),
    ignored("udefs", kFlag),
    ignored("unodefs", kFlag),
    ignored("useruid", kNumber),
    // Trapline's own.
    extension("attach", kText, "detach"),
    extension("engine", kText, "inline"),
    extension("follow", kFlag),
    extension("force", kFlag),
    extension("format", kText, "text"),
    extension("inlines", kFlag),
};

// Options that take one of a few words.
struct Choice {
  std::string_view option;
  std::array<std::string_view, 4> words;
};
constexpr Choice kChoices[] = {
    {"attach", {"detach", "stay"}},
    {"bufpolicy", {"switch", "fill", "ring", "block"}},
    {"bufresize", {"auto", "manual"}},
    {"encoding", {"ascii", "utf8"}},
    {"engine", {"auto", "inline", "trap", "outside"}},
    {"evaltime", {"exec", "preinit", "postinit", "main"}},
    {"format", {"text", "json"}},
    {"late", {"dynamic", "static"}},
    {"stdc", {"a", "c", "s", "t"}},
};

constexpr std::int64_t kMinStrsize = 2;
constexpr std::int64_t kMaxStrsize = 64 * 1024 - 256;  // a string has to fit a record

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

// true, false, or nullopt for a word that is neither.
std::optional<bool> parse_truth(std::string_view text) {
  static constexpr std::string_view kYes[] = {"yes", "enable", "enabled", "true", "on", "set"};
  static constexpr std::string_view kNo[] = {"no", "disable", "disabled", "false", "off", "unset"};
  for (std::string_view word : kYes) {
    if (equal_ignoring_case(word, text)) return true;
  }
  for (std::string_view word : kNo) {
    if (equal_ignoring_case(word, text)) return false;
  }
  return std::nullopt;
}

// An unsigned number at the start of the text, decimal, 0x or octal as C writes it; what follows is
// left in `rest`.
std::optional<std::int64_t> parse_leading(std::string_view text, std::string_view& rest) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
  }
  std::int64_t value = 0;
  if (text.empty() || text[0] == '-') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{}) return std::nullopt;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return value;
}

// "2.0": major.minor and, perhaps, micro. The newest version of D is 2.0.
bool is_known_version(std::string_view text) {
  constexpr std::int64_t kNewest = 2;
  std::int64_t parts[3] = {};
  std::size_t count = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (count < std::size(parts)) {
    const auto [next, error] = std::from_chars(at, end, parts[count]);
    if (error != std::errc{} || parts[count] < 0) return false;
    ++count;
    at = next;
    if (at == end || *at != '.') break;
    ++at;
  }
  return at == end && count >= 2 && (parts[0] < kNewest || (parts[0] == kNewest && parts[1] == 0));
}

Error bad_value(const OptionInfo& info, std::string_view value, std::string allowed) {
  return {ErrorCode::kBadInput, "Invalid value for specified option: " + std::string(info.name) +
                                    " takes " + std::move(allowed) + ", not \"" +
                                    std::string(value) + "\""};
}

// Flags and numbers share DTrace's run-time form: nothing, a word of yes or no, or a number.
Result<std::string> normal_number(const OptionInfo& info, std::optional<std::string_view> value) {
  if (!value) return std::string(info.kind == kFlag ? "1" : "0");
  if (value->empty()) return std::string();
  if (const auto truth = parse_truth(*value)) return std::string(*truth ? "1" : "");
  std::string_view rest;
  const auto number = parse_leading(*value, rest);
  if (!number || !rest.empty()) return bad_value(info, *value, "a number that is not negative");
  return std::to_string(*number);
}

Result<std::string> normal_value(const OptionInfo& info, std::optional<std::string_view> value) {
  switch (info.kind) {
    case kFlag:
    case kNumber:
      return normal_number(info, value);
    case kSize: {
      const auto size = parse_size(value.value_or("0"));
      if (!size) return bad_value(info, *value, "a size: a number, with k, m, g or t");
      if (info.name == "strsize" && (*size < kMinStrsize || *size > kMaxStrsize)) {
        return bad_value(
            info, value.value_or(""),
            "a size from " + std::to_string(kMinStrsize) + " to " + std::to_string(kMaxStrsize));
      }
      return std::to_string(*size);
    }
    case kRate: {
      const auto period = parse_period(value.value_or("0"));
      if (!period)
        return bad_value(info, *value, "a rate: a number, with hz, ns, us, ms, s, m, h or d");
      return std::to_string(*period) + "ns";
    }
    case kText: {
      for (const Choice& choice : kChoices) {
        if (choice.option != info.name) continue;
        std::string allowed;
        for (std::string_view word : choice.words) {
          if (word.empty()) continue;
          if (value && word == *value) return std::string(word);
          if (!allowed.empty()) allowed += ", ";
          allowed += word;
        }
        return bad_value(info, value.value_or(""), "one of " + allowed);
      }
      if (info.name == "version" && !is_known_version(value.value_or("")))
        return bad_value(info, value.value_or(""), "a version of D, up to 2.0");
      return std::string(value.value_or(""));
    }
  }
  return Error(ErrorCode::kInternal, "option kind");
}

// Needed before a program is read.
bool is_only_outside(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "cpp",    "cppargs", "cpphdrs", "cpppath", "ctfpath", "ctypes", "define",    "dtypes",
      "incdir", "ldpath",  "libdir",  "modpath", "nolibs",  "stdc",   "syslibdir", "undef"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Options that may be given several times; the values are collected, a line each.
bool accumulates(std::string_view name) {
  return name == "define" || name == "undef" || name == "incdir" || name == "libdir" ||
         name == "cppargs" || name == "setenv" || name == "unsetenv";
}

}  // namespace

const OptionInfo* find_option(std::string_view name) {
  const auto* found = std::ranges::find(kOptions, name, &OptionInfo::name);
  return found == std::end(kOptions) ? nullptr : found;
}

std::optional<std::int64_t> parse_size(std::string_view text) {
  std::string_view rest;
  const auto number = parse_leading(text, rest);
  if (!number) return std::nullopt;
  if (rest.empty()) return number;
  if (rest.size() != 1) return std::nullopt;
  static constexpr std::string_view kSuffixes = "kmgt";
  const auto place =
      kSuffixes.find(static_cast<char>(std::tolower(static_cast<unsigned char>(rest[0]))));
  if (place == std::string_view::npos) return std::nullopt;
  const int shift = static_cast<int>(place + 1) * 10;
  if (*number > std::numeric_limits<std::int64_t>::max() >> shift) return std::nullopt;
  return *number << shift;
}

std::optional<std::int64_t> parse_period(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::int64_t ns;
  };
  static constexpr std::int64_t kSecond = 1'000'000'000;
  static constexpr Unit kUnits[] = {
      {"ns", 1},
      {"nsec", 1},
      {"us", 1'000},
      {"usec", 1'000},
      {"ms", 1'000'000},
      {"msec", 1'000'000},
      {"s", kSecond},
      {"sec", kSecond},
      {"m", 60 * kSecond},
      {"min", 60 * kSecond},
      {"h", 3600 * kSecond},
      {"hour", 3600 * kSecond},
      {"d", 86400 * kSecond},
      {"day", 86400 * kSecond},
  };
  std::string_view rest;
  const auto number = parse_leading(text, rest);
  if (!number) return std::nullopt;
  if (rest.empty() || equal_ignoring_case(rest, "hz")) return *number == 0 ? 0 : kSecond / *number;
  for (const Unit& unit : kUnits) {
    if (!equal_ignoring_case(unit.name, rest)) continue;
    if (*number > std::numeric_limits<std::int64_t>::max() / unit.ns) return std::nullopt;
    return *number * unit.ns;
  }
  return std::nullopt;
}

Result<> Options::set(std::string_view name, std::optional<std::string_view> value,
                      OptionPlace place) {
  const OptionInfo* info = find_option(name);
  if (info == nullptr) {
    return Error(ErrorCode::kBadInput,
                 "Invalid option name: there is no option \"" + std::string(name) + "\"");
  }
  if (place == OptionPlace::kProgram && is_only_outside(name)) {
    return Error(
        ErrorCode::kBadInput,
        "Option cannot be used from within a D program: give it as -x " + std::string(name));
  }
  TL_TRY_ASSIGN(std::string normal, normal_value(*info, value));
  if (accumulates(name)) {
    std::string& all = values_[std::string(name)];
    if (!all.empty()) all += '\n';
    all += normal;
    return {};
  }
  values_[std::string(name)] = std::move(normal);
  return {};
}

bool Options::is_set(std::string_view name) const { return values_.find(name) != values_.end(); }

std::string Options::text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  const OptionInfo* info = find_option(name);
  return info == nullptr ? std::string() : std::string(info->initial);
}

bool Options::flag(std::string_view name) const {
  const std::string value = text(name);
  return !value.empty() && value != "0";
}

std::int64_t Options::number(std::string_view name) const {
  return parse_size(text(name)).value_or(0);
}

std::int64_t Options::period_ns(std::string_view name) const {
  return parse_period(text(name)).value_or(0);
}

}  // namespace trapline::plan
