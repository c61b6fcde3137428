// Diagnostics: what is wrong with a program, collected while it is compiled.
//
// A mistake in D source is not an Error: compilation goes on to find the others. All are kept, in
// the order of the source, up to a cap, beyond which they are only counted.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "diag/source.h"

namespace trapline::diag {

enum class Severity : std::uint8_t { kError, kWarning };

// A second place that helps to understand: "first declared here".
struct Note {
  Range range;
  std::string text;
};

struct Diagnostic {
  Severity severity = Severity::kError;
  std::string tag;  // DTrace's, without "D_": "SYNTAX". Empty: none.
  Range range;      // may be unknown: about the program as a whole
  std::string text;
  std::string hint;  // what to do about it; may be empty
  std::string
      region;  // "action list", "predicate": the classic form names it where there are no lines
  std::vector<Note> notes;
};

class Diagnostics {
 public:
  static constexpr std::size_t kDefaultCap = 100;

  explicit Diagnostics(std::size_t cap = kDefaultCap) : cap_(cap) {}

  // The result may be completed (hint, notes, region) until the next one is added. A diagnostic
  // that repeats another (same place, tag and text) is dropped.
  Diagnostic& add(Diagnostic diagnostic);
  Diagnostic& error(std::string_view tag, Range range, std::string text, std::string hint = {});
  Diagnostic& warning(std::string_view tag, Range range, std::string text, std::string hint = {});

  // In source order: by source, then by offset; those of one place as they came. Unknown places
  // come last.
  std::vector<Diagnostic> sorted() const;

  bool has_errors() const { return error_count_ != 0; }
  std::size_t error_count() const { return error_count_; }
  std::size_t dropped() const { return dropped_; }  // over the cap
  bool empty() const { return diagnostics_.empty(); }
  // More would only be counted: passes may stop looking.
  bool full() const { return diagnostics_.size() >= cap_; }

 private:
  std::size_t cap_;
  std::size_t error_count_ = 0;
  std::size_t dropped_ = 0;
  std::vector<Diagnostic> diagnostics_;
  Diagnostic overflow_;  // what add() returns once full
};

}  // namespace trapline::diag
