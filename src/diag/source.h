// Sources and places in them.
//
// Every D text that is compiled (a script, the argument of -n, a D library) is added to a
// SourceManager, which owns the bytes for as long as diagnostics may refer to them. A place is a
// source and a byte offset; line and column are computed when somebody asks. Two things make a
// place differ from what the user wrote: the preprocessor, whose line markers (`# 12 "file.d" 1`)
// rename what follows them, and macro arguments (`$1`), whose text comes from elsewhere. Both are
// recorded here by the lexer, in order of offset.
//
// Limits: a source is at most kMaxSourceSize bytes.

#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trapline::diag {

using SourceId = std::uint32_t;
inline constexpr SourceId kNoSource = ~SourceId{0};
inline constexpr std::size_t kMaxSourceSize = std::size_t{1} << 30;
inline constexpr std::size_t kMaxIncludesShown = 16;

struct Location {
  SourceId source = kNoSource;
  std::uint32_t offset = 0;  // bytes
  auto operator<=>(const Location&) const = default;
};

// Bytes [begin, end) of a source. An empty range is a point.
struct Range {
  SourceId source = kNoSource;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  auto operator<=>(const Range&) const = default;
  Location start() const { return {source, begin}; }
  bool known() const { return source != kNoSource; }
};

// From the start of `first` to the end of `last`, which are of one source.
Range join(Range first, Range last);

enum class SourceKind : std::uint8_t {
  kScript,   // a file: messages give lines
  kText,     // an argument of the command: messages of the classic form give no lines
  kLibrary,  // a D library: as a file, and always named
};

// Where a person looks: line and column count from 1; a column is a character (tabs count one,
// UTF-8 sequences one).
struct Position {
  std::string file;
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  bool renamed = false;  // `file` comes from a line marker, not from the source's name
};

// `# line "file" flag`: the line after the marker is number `line` of `file`.
struct LineMarker {
  enum class Flow : std::uint8_t { kNone, kEnter, kLeave };
  std::uint32_t line = 0;
  std::optional<std::string> file;  // none: the file stays; "": the source's own name
  Flow flow = Flow::kNone;          // kEnter: an included file begins; kLeave: back from one
};

// The text that stands where the program says `$1`, `$target`.
struct Expansion {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::string text;
};

class SourceManager {
 public:
  // Error kBadInput: the text is larger than kMaxSourceSize. `name` is what messages call it.
  Result<SourceId> add(std::string name, std::string text, SourceKind kind);

  // Preconditions: the source exists; markers and expansions come in order of offset. A marker's
  // offset is that of the line after it.
  void add_line_marker(SourceId source, std::uint32_t offset, LineMarker marker);
  void add_expansion(Range where, std::string text);

  std::size_t count() const { return sources_.size(); }
  std::string_view text(SourceId source) const;
  std::string_view text(Range range) const;
  const std::string& name(SourceId source) const;
  SourceKind kind(SourceId source) const;

  // An unknown location has no file and line 0.
  Position position(Location at) const;
  // The whole line around `at`, without its newline, and where it begins.
  std::string_view line_text(Location at) const;
  std::uint32_t line_start(Location at) const;
  // The places that included the file `at` is in, innermost first; at most kMaxIncludesShown.
  std::vector<Position> included_from(Location at) const;
  // The macro whose use covers `at`; nullptr: none.
  const Expansion* expansion_at(Location at) const;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Files and includes are kept once each, so that many markers cost little.
  struct Include {
    std::uint32_t file = kNone;  // of the place that includes
    std::uint32_t line = 0;
    std::uint32_t parent = kNone;  // the include around it
  };
  struct Marker {
    std::uint32_t offset = 0;  // of the line that is numbered
    std::uint32_t line = 0;
    std::uint32_t file = kNone;     // index in Source::files; kNone: the source's own name
    std::uint32_t include = kNone;  // index in Source::includes
  };
  struct Source {
    std::string name;
    std::string text;
    SourceKind kind = SourceKind::kScript;
    std::vector<std::uint32_t> line_starts;
    std::vector<Marker> markers;
    std::vector<std::string> files;
    std::vector<Include> includes;
    std::vector<Expansion> expansions;
  };

  static std::size_t physical_line(const Source& source, std::uint32_t offset);  // from 0
  static const Marker* marker_before(const Source& source, std::uint32_t offset);
  static std::string file_name(const Source& source, std::uint32_t file);
  static std::uint32_t presumed_line(const Source& source, std::uint32_t offset);
  const Source* find(Location at) const;

  std::vector<Source> sources_;
};

}  // namespace trapline::diag
