#include "symbols/glob.h"

#include <algorithm>
#include <optional>

namespace trapline::symbols {
namespace {

constexpr std::string_view kSpecial = "*?[\\";

bool in_class(std::string_view name, unsigned char c) {
  const bool lower = c >= 'a' && c <= 'z';
  const bool upper = c >= 'A' && c <= 'Z';
  const bool digit = c >= '0' && c <= '9';
  const bool graph = c > 0x20 && c < 0x7f;
  if (name == "alpha") return lower || upper;
  if (name == "digit") return digit;
  if (name == "alnum") return lower || upper || digit;
  if (name == "lower") return lower;
  if (name == "upper") return upper;
  if (name == "xdigit") return digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  if (name == "punct") return graph && !(lower || upper || digit);
  if (name == "graph") return graph;
  if (name == "print") return graph || c == ' ';
  if (name == "space") return c == ' ' || (c >= '\t' && c <= '\r');
  if (name == "blank") return c == ' ' || c == '\t';
  if (name == "cntrl") return c < 0x20 || c == 0x7f;
  return false;
}

struct SetMatch {
  bool matched;
  std::size_t next;  // index in the pattern after the `]`
};

// One member of a set, after its escape; `at` moves past it. nullopt: the pattern ends.
std::optional<unsigned char> set_member(std::string_view pattern, std::size_t& at) {
  if (at < pattern.size() && pattern[at] == '\\') ++at;
  if (at >= pattern.size()) return std::nullopt;
  return static_cast<unsigned char>(pattern[at++]);
}

// The set that opens at pattern[open] == '['; nullopt: it is never closed, so that the `[` is
// itself.
std::optional<SetMatch> match_set(std::string_view pattern, std::size_t open, unsigned char c) {
  std::size_t at = open + 1;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  bool matched = false;
  for (bool first = true;; first = false) {
    if (at >= pattern.size()) return std::nullopt;
    if (pattern[at] == ']' && !first) return SetMatch{matched != negated, at + 1};
    if (pattern.substr(at).starts_with("[:")) {
      const std::size_t close = pattern.find(":]", at + 2);
      if (close != std::string_view::npos) {
        matched |= in_class(pattern.substr(at + 2, close - at - 2), c);
        at = close + 2;
        continue;
      }
    }
    const auto low = set_member(pattern, at);
    if (!low) return std::nullopt;
    auto high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
      ++at;
      high = set_member(pattern, at);
      if (!high) return std::nullopt;
    }
    matched |= *low <= c && c <= *high;
  }
}

// Matches one pattern element that is not `*` at `p` against c; 0: no match, else the element's
// length.
std::size_t match_one(std::string_view pattern, std::size_t p, char c) {
  switch (pattern[p]) {
    case '?':
      return 1;
    case '[':
      if (const auto set = match_set(pattern, p, static_cast<unsigned char>(c))) {
        return set->matched ? set->next - p : 0;
      }
      return c == '[' ? 1 : 0;
    case '\\':
      return p + 1 < pattern.size() && pattern[p + 1] == c ? 2 : 0;
    default:
      return pattern[p] == c ? 1 : 0;
  }
}

// Going back to the last `*` only is enough: an earlier one could not match more.
bool general_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    const std::size_t length = p < pattern.size() ? match_one(pattern, p, text[t]) : 0;
    if (length > 0) {
      p += length;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// The literal that a pattern of ordinary and escaped characters stands for; nullopt: it has other
// specials.
std::optional<std::string> unescape(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (++i == pattern.size()) return std::nullopt;
    } else if (kSpecial.find(pattern[i]) != std::string_view::npos) {
      return std::nullopt;
    }
    out += pattern[i];
  }
  return out;
}

}  // namespace

Glob::Glob(std::string_view pattern) : pattern_(pattern), form_(Form::kGeneral) {
  if (pattern.find_first_not_of('*') == std::string_view::npos) {
    form_ = Form::kAll;
    return;
  }
  const bool front = pattern.front() == '*';
  std::string_view middle = pattern;
  middle.remove_prefix(std::min(pattern.find_first_not_of('*'), pattern.size()));
  // A `*` at the end is one unless an odd number of backslashes stands before it.
  std::size_t last = middle.find_last_not_of('*') + 1;
  std::size_t slashes = 0;
  while (slashes < last && middle[last - 1 - slashes] == '\\') ++slashes;
  if (slashes % 2 == 1 && last < middle.size()) ++last;
  const bool back = last < middle.size();
  middle = middle.substr(0, last);

  if (auto literal = unescape(middle)) {
    literal_ = *std::move(literal);
    form_ = front ? (back ? Form::kInfix : Form::kSuffix) : (back ? Form::kPrefix : Form::kLiteral);
  }
}

bool Glob::matches(std::string_view text) const {
  switch (form_) {
    case Form::kAll:
      return true;
    case Form::kLiteral:
      return text == literal_;
    case Form::kPrefix:
      return text.starts_with(literal_);
    case Form::kSuffix:
      return text.ends_with(literal_);
    case Form::kInfix:
      return text.find(literal_) != std::string_view::npos;
    case Form::kGeneral:
      break;
  }
  return general_match(pattern_, text);
}

}  // namespace trapline::symbols
