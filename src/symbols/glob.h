// Patterns of probe descriptions: `*`, `?`, `[a-z]`, `[!a]` (or `[^a]`), `[[:alpha:]]`, and `\` to
// take the next character as it is.
//
// A pattern without these is compared as a string; "prefix*", "*suffix" and "*infix*" do not need
// the matcher. The empty pattern matches all. Matching takes at most |pattern| * |text| steps,
// whatever the pattern. The finer points are fnmatch(3)'s in the C locale, which DTrace on Linux
// uses: a `[` that is not closed stands for itself, `]` first in a set is a member, and nothing
// matches a pattern that ends in a single `\`. Limits: no [=a=] and [.a.], which fnmatch has.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trapline::symbols {

class Glob {
 public:
  explicit Glob(std::string_view pattern);

  bool matches(std::string_view text) const;
  // True: the pattern is a plain string (literal() gives it, unescaped), so that an index can be
  // used.
  bool is_literal() const { return form_ == Form::kLiteral; }
  bool matches_all() const { return form_ == Form::kAll; }
  const std::string& literal() const { return literal_; }
  const std::string& pattern() const { return pattern_; }

 private:
  enum class Form : std::uint8_t { kAll, kLiteral, kPrefix, kSuffix, kInfix, kGeneral };

  std::string pattern_;
  std::string literal_;  // the fixed part of every form but kGeneral
  Form form_;
};

}  // namespace trapline::symbols
