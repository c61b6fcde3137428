// Splits at ':' outside of quotes, expands macros, and assigns the parts from the right.

#include "dlang/probe_description.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace trapline::dlang {
namespace {

struct Part {
  std::string text;
  bool quoted = false;
};

bool is_name_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_number_char(char c) { return c >= '0' && c <= '9'; }

std::size_t part_count(DescriptionKind kind) {
  switch (kind) {
    case DescriptionKind::kProvider:
      return 1;
    case DescriptionKind::kModule:
      return 2;
    case DescriptionKind::kFunction:
      return 3;
    case DescriptionKind::kName:
    case DescriptionKind::kId:
      return 4;
  }
  return 4;
}

// Reads the macro at text[at] == '$' into `out`; `at` moves behind it. $$ is the same as $.
bool read_macro(std::string_view text, std::size_t& at, const MacroLookup& lookup,
                std::string& out) {
  ++at;
  if (at < text.size() && text[at] == '$') ++at;
  const std::size_t begin = at;
  const bool number = at < text.size() && is_number_char(text[at]);
  while (at < text.size() && (number ? is_number_char(text[at]) : is_name_char(text[at]))) ++at;
  std::string value;
  if (at == begin || !lookup(text.substr(begin, at - begin), value)) return false;
  out += value;
  return true;
}

// Reads the quoted text at text[at] == '"' into `out`; `at` moves behind it.
void read_quoted(std::string_view text, std::size_t& at, std::string& out) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\'))
      ++at;
    out.push_back(text[at]);
  }
  if (at < text.size()) ++at;
}

}  // namespace

DescriptionResult parse_description(std::string_view text, DescriptionKind kind,
                                    const MacroLookup& lookup) {
  DescriptionResult result;
  result.probe.text = std::string(text);
  std::vector<Part> parts(1);
  bool any_quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ':') {
      parts.emplace_back();
      ++at;
    } else if (text[at] == '"') {
      parts.back().quoted = any_quoted = true;
      read_quoted(text, at, parts.back().text);
    } else if (text[at] == '$') {
      const std::size_t begin = at;
      if (!read_macro(text, at, lookup, parts.back().text)) {
        result.problem = "Undefined macro variable in probe description";
        if (text.substr(begin, at - begin) == "$target")
          result.hint = "$target is the process of -p or -c";
        return result;
      }
    } else {
      parts.back().text.push_back(text[at++]);
    }
  }
  // An empty part in front is none: DTrace allows ":provider:module:function:name".
  if (parts.size() > 1 && text.front() == ':') parts.erase(parts.begin());
  const std::size_t allowed = part_count(kind);
  if (parts.size() > allowed) {
    result.problem = "Overspecified probe description";
    if (!any_quoted && text.find("::", 1) != std::string_view::npos) {
      result.hint = "a C++ or Rust name goes in quotes: pid$target::\"ns::f(int)\":entry";
    }
    return result;
  }
  std::string* const fields[] = {&result.probe.provider, &result.probe.module,
                                 &result.probe.function, &result.probe.name};
  std::size_t field = allowed - parts.size();
  for (Part& part : parts) {
    if (field == 2) result.probe.quoted = part.quoted;
    *fields[field++] = std::move(part.text);
  }
  return result;
}

}  // namespace trapline::dlang
