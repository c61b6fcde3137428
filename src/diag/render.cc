// Rendering. The excerpt shows one line: tabs become blanks, control characters and bytes that are
// no UTF-8 become '?', and of a very long line only the surroundings of the mistake are shown.
//
// Limit: a character is taken to be one column wide; the caret is off after wide ones (CJK).

#include "diag/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "diag/utf8.h"

namespace trapline::diag {
namespace {

constexpr std::size_t kBefore = 80;  // bytes of the line shown in front of the mistake
constexpr std::size_t kAfter = 80;   // and from it on
constexpr std::size_t kTab = 8;

std::string_view severity_name(Severity severity) {
  return severity == Severity::kError ? "error" : "warning";
}

std::string place(const Position& position) {
  return fmt::format("{}:{}:{}", position.file, position.line, position.column);
}

// Text on its way to a terminal: one column a character.
class Columns {
 public:
  void add(std::string_view text, std::size_t at, const Utf8Char& c) {
    if (c.code == '\t') {
      const std::size_t blanks = kTab - columns_ % kTab;
      text_.append(blanks, ' ');
      columns_ += blanks;
      return;
    }
    const bool printable =
        c.valid && c.code >= 0x20 && c.code != 0x7f && !(c.code >= 0x80 && c.code < 0xa0);
    if (printable) {
      text_.append(text.substr(at, c.length));
    } else {
      text_.push_back('?');
    }
    ++columns_;
  }
  void add(std::string_view ascii) {
    text_.append(ascii);
    columns_ += ascii.size();
  }
  std::size_t columns() const { return columns_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t columns_ = 0;
};

// The line of `range` and a caret under it.
std::string excerpt(const SourceManager& sources, Range range) {
  if (!range.known()) return {};
  const std::string_view line = sources.line_text(range.start());
  const std::uint32_t start = sources.line_start(range.start());
  if (line.find_first_not_of(" \t\f\v") == std::string_view::npos)
    return {};  // the end of the text, mostly
  const std::size_t mark = std::min<std::size_t>(range.begin - start, line.size());
  const std::size_t mark_end = std::clamp<std::size_t>(range.end - start, mark, line.size());
  std::size_t begin = mark > kBefore ? mark - kBefore : 0;
  while (begin < mark && is_utf8_continuation(line[begin])) ++begin;
  const std::size_t end = std::min(line.size(), mark + kAfter);

  Columns shown;
  if (begin > 0) shown.add("...");
  std::size_t caret = 0;
  std::size_t caret_end = 0;
  for (std::size_t at = begin; at < end;) {
    if (at <= mark) caret = shown.columns();
    const Utf8Char c = decode_utf8(line, at);
    shown.add(line, at, c);
    at += c.length;
    if (at <= mark_end) caret_end = shown.columns();
  }
  if (mark >= end) caret = shown.columns();
  if (end < line.size()) shown.add("...");
  const std::size_t tail = caret_end > caret + 1 ? caret_end - caret - 1 : 0;
  return fmt::format("{:>5} | {}\n      | {}^{}\n", sources.position(range.start()).line,
                     shown.text(), std::string(caret, ' '), std::string(tail, '~'));
}

std::string one_line(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid || c.code < 0x20 || c.code == 0x7f) {
      result.push_back(c.code == '\n' || c.code == '\t' ? ' ' : '?');
    } else {
      result.append(text.substr(at, c.length));
    }
    at += c.length;
  }
  return result;
}

// What follows the first line: excerpt, where it was included and expanded, hint, notes.
std::string details(const SourceManager& sources, const Diagnostic& diagnostic) {
  std::string text = excerpt(sources, diagnostic.range);
  if (diagnostic.range.known()) {
    for (const Position& from : sources.included_from(diagnostic.range.start())) {
      text += fmt::format("  included from {}:{}\n", from.file, from.line);
    }
    if (const Expansion* expansion = sources.expansion_at(diagnostic.range.start())) {
      const Range macro{diagnostic.range.source, expansion->begin, expansion->end};
      text +=
          fmt::format("  {} is \"{}\"\n", one_line(sources.text(macro)), one_line(expansion->text));
    }
  }
  if (!diagnostic.hint.empty()) text += fmt::format("  hint: {}\n", diagnostic.hint);
  for (const Note& note : diagnostic.notes) {
    if (note.range.known()) {
      text +=
          fmt::format("  {}: note: {}\n", place(sources.position(note.range.start())), note.text);
      text += excerpt(sources, note.range);
    } else {
      text += fmt::format("  note: {}\n", note.text);
    }
  }
  return text;
}

std::string more(std::size_t count) {
  return count == 0 ? std::string()
                    : fmt::format("{} more error{}\n", count, count == 1 ? "" : "s");
}

std::string headline(const SourceManager& sources, const Diagnostic& diagnostic) {
  std::string text;
  if (diagnostic.range.known()) text = place(sources.position(diagnostic.range.start())) + ": ";
  text += fmt::format("{}: {}", severity_name(diagnostic.severity), diagnostic.text);
  if (!diagnostic.tag.empty()) text += fmt::format(" [D_{}]", diagnostic.tag);
  return text + "\n";
}

}  // namespace

std::string render(const SourceManager& sources, const Diagnostic& diagnostic) {
  return headline(sources, diagnostic) + details(sources, diagnostic);
}

std::string render_all(const SourceManager& sources, const Diagnostics& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics.sorted()) text += render(sources, diagnostic);
  return text + more(diagnostics.dropped());
}

std::string classic_text(const SourceManager& sources, const Diagnostic& diagnostic, Tags tags) {
  std::string text;
  if (tags == Tags::kShow && !diagnostic.tag.empty()) text = fmt::format("[D_{}] ", diagnostic.tag);
  if (diagnostic.range.known()) {
    const Position position = sources.position(diagnostic.range.start());
    const SourceKind kind = sources.kind(diagnostic.range.source);
    if (kind == SourceKind::kLibrary || (position.renamed && kind == SourceKind::kScript)) {
      text += fmt::format("\"{}\", line {}: ", position.file, position.line);
    } else if (kind == SourceKind::kScript) {
      text += fmt::format("line {}: ", position.line);
    } else if (!diagnostic.region.empty()) {
      text += fmt::format("in {}: ", diagnostic.region);
    }
  } else if (!diagnostic.region.empty()) {
    text += fmt::format("in {}: ", diagnostic.region);
  }
  return text + diagnostic.text;
}

std::string render_classic(const SourceManager& sources, const Diagnostics& diagnostics,
                           std::string_view program, SourceKind kind, std::string_view specifier,
                           Tags tags, Excerpt show) {
  const std::string_view what =
      kind == SourceKind::kText ? "invalid probe specifier" : "failed to compile script";
  std::string text;
  bool first = true;
  for (const Diagnostic& diagnostic : diagnostics.sorted()) {
    if (first && diagnostic.severity == Severity::kError) {
      text += fmt::format("{}: {} {}: {}\n", program, what, specifier,
                          classic_text(sources, diagnostic, tags));
      first = false;
    } else {
      text += headline(sources, diagnostic);
    }
    if (show == Excerpt::kShow) text += details(sources, diagnostic);
  }
  return text + more(diagnostics.dropped());
}

}  // namespace trapline::diag
