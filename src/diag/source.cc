// Sources: where lines begin is found once, when a source is added; markers and expansions are
// searched by offset.

#include "diag/source.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "diag/utf8.h"

namespace trapline::diag {

Range join(Range first, Range last) {
  if (!first.known()) return last;
  if (!last.known() || last.source != first.source) return first;
  return {first.source, std::min(first.begin, last.begin), std::max(first.end, last.end)};
}

Result<SourceId> SourceManager::add(std::string name, std::string text, SourceKind kind) {
  if (text.size() > kMaxSourceSize) {
    return Error(ErrorCode::kBadInput, name + ": a program of more than 1 GiB is not accepted");
  }
  Source source;
  source.name = std::move(name);
  source.text = std::move(text);
  source.kind = kind;
  source.line_starts.push_back(0);
  for (std::size_t at = source.text.find('\n'); at != std::string::npos;
       at = source.text.find('\n', at + 1)) {
    source.line_starts.push_back(static_cast<std::uint32_t>(at + 1));
  }
  sources_.push_back(std::move(source));
  return static_cast<SourceId>(sources_.size() - 1);
}

void SourceManager::add_line_marker(SourceId id, std::uint32_t offset, LineMarker marker) {
  TL_CHECK(id < sources_.size());
  Source& source = sources_[id];
  TL_CHECK(source.markers.empty() || source.markers.back().offset <= offset);
  Marker added{.offset = offset, .line = marker.line};
  if (!source.markers.empty()) {
    added.file = source.markers.back().file;
    added.include = source.markers.back().include;
  }
  if (marker.flow == LineMarker::Flow::kEnter) {
    // The marker stands on the line before `offset`, in the place of the #include.
    const std::uint32_t line = presumed_line(source, offset == 0 ? 0 : offset - 1);
    source.includes.push_back({.file = added.file, .line = line, .parent = added.include});
    added.include = static_cast<std::uint32_t>(source.includes.size() - 1);
  } else if (marker.flow == LineMarker::Flow::kLeave && added.include != kNone) {
    added.include = source.includes[added.include].parent;
  }
  if (marker.file) {
    if (marker.file->empty()) {
      added.file = kNone;
    } else if (added.file == kNone || source.files[added.file] != *marker.file) {
      source.files.push_back(std::move(*marker.file));
      added.file = static_cast<std::uint32_t>(source.files.size() - 1);
    }
  }
  source.markers.push_back(added);
}

void SourceManager::add_expansion(Range where, std::string text) {
  TL_CHECK(where.source < sources_.size());
  std::vector<Expansion>& expansions = sources_[where.source].expansions;
  TL_CHECK(expansions.empty() || expansions.back().begin <= where.begin);
  expansions.push_back({where.begin, where.end, std::move(text)});
}

std::string_view SourceManager::text(SourceId source) const {
  return source < sources_.size() ? std::string_view(sources_[source].text) : std::string_view();
}

std::string_view SourceManager::text(Range range) const {
  const std::string_view all = text(range.source);
  if (range.begin > all.size() || range.end < range.begin) return {};
  return all.substr(range.begin, range.end - range.begin);
}

const std::string& SourceManager::name(SourceId source) const {
  TL_CHECK(source < sources_.size());
  return sources_[source].name;
}

SourceKind SourceManager::kind(SourceId source) const {
  TL_CHECK(source < sources_.size());
  return sources_[source].kind;
}

const SourceManager::Source* SourceManager::find(Location at) const {
  return at.source < sources_.size() && at.offset <= sources_[at.source].text.size()
             ? &sources_[at.source]
             : nullptr;
}

std::size_t SourceManager::physical_line(const Source& source, std::uint32_t offset) {
  const auto after = std::upper_bound(source.line_starts.begin(), source.line_starts.end(), offset);
  return static_cast<std::size_t>(after - source.line_starts.begin()) - 1;
}

const SourceManager::Marker* SourceManager::marker_before(const Source& source,
                                                          std::uint32_t offset) {
  const auto after = std::upper_bound(
      source.markers.begin(), source.markers.end(), offset,
      [](std::uint32_t value, const Marker& marker) { return value < marker.offset; });
  return after == source.markers.begin() ? nullptr : &*(after - 1);
}

std::string SourceManager::file_name(const Source& source, std::uint32_t file) {
  return file == kNone ? source.name : source.files[file];
}

std::uint32_t SourceManager::presumed_line(const Source& source, std::uint32_t offset) {
  const std::size_t line = physical_line(source, offset);
  const Marker* marker = marker_before(source, offset);
  if (marker == nullptr) return static_cast<std::uint32_t>(line + 1);
  return static_cast<std::uint32_t>(marker->line + (line - physical_line(source, marker->offset)));
}

Position SourceManager::position(Location at) const {
  const Source* source = find(at);
  if (source == nullptr) return {};
  const Marker* marker = marker_before(*source, at.offset);
  Position position;
  position.line = presumed_line(*source, at.offset);
  position.file = file_name(*source, marker == nullptr ? kNone : marker->file);
  position.renamed = marker != nullptr && marker->file != kNone;
  const std::string_view before =
      std::string_view(source->text).substr(line_start(at), at.offset - line_start(at));
  // Bytes that are no UTF-8 count one each, unless they look like the rest of a character.
  const auto characters =
      std::count_if(before.begin(), before.end(), [](char c) { return !is_utf8_continuation(c); });
  position.column = static_cast<std::uint32_t>(characters) + 1;
  return position;
}

std::uint32_t SourceManager::line_start(Location at) const {
  const Source* source = find(at);
  return source == nullptr ? 0 : source->line_starts[physical_line(*source, at.offset)];
}

std::string_view SourceManager::line_text(Location at) const {
  const Source* source = find(at);
  if (source == nullptr) return {};
  const std::size_t line = physical_line(*source, at.offset);
  const std::size_t begin = source->line_starts[line];
  const std::size_t end = line + 1 < source->line_starts.size() ? source->line_starts[line + 1] - 1
                                                                : source->text.size();
  std::string_view text = std::string_view(source->text).substr(begin, end - begin);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

std::vector<Position> SourceManager::included_from(Location at) const {
  std::vector<Position> includes;
  const Source* source = find(at);
  const Marker* marker = source == nullptr ? nullptr : marker_before(*source, at.offset);
  if (marker == nullptr) return includes;
  for (std::uint32_t i = marker->include; i != kNone && includes.size() < kMaxIncludesShown;
       i = source->includes[i].parent) {
    const Include& include = source->includes[i];
    includes.push_back({.file = file_name(*source, include.file),
                        .line = include.line,
                        .column = 1,
                        .renamed = include.file != kNone});
  }
  return includes;
}

const Expansion* SourceManager::expansion_at(Location at) const {
  const Source* source = find(at);
  if (source == nullptr) return nullptr;
  const auto after = std::upper_bound(
      source->expansions.begin(), source->expansions.end(), at.offset,
      [](std::uint32_t value, const Expansion& expansion) { return value < expansion.begin; });
  if (after == source->expansions.begin()) return nullptr;
  const Expansion& expansion = *(after - 1);
  return at.offset < expansion.end ? &expansion : nullptr;
}

}  // namespace trapline::diag
