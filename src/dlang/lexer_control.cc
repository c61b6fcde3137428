// Lines that begin with '#': `# 12 "file.d" 1` and `#line`, `#pragma D ...`, `#error`, `#ident`,
// `#!`.
//
// The forms and the tags of their errors are DTrace's; what a well-formed pragma means is mostly
// the checker's business (see Pragma in ast.h). Pragmas that are not for D are ignored, as K&R
// A12.8 asks.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "dlang/lexer.h"

namespace trapline::dlang {

enum class WordKind : std::uint8_t { kWord, kInteger, kString };

struct ControlWord {
  WordKind kind = WordKind::kWord;
  diag::Range range;
  std::string text;
  std::uint64_t value = 0;  // kInteger
};

namespace {

bool is_one_of(std::string_view text, auto&&... names) { return ((text == names) || ...); }

bool is_stability(std::string_view name) {
  return is_one_of(name, "Internal", "Private", "Obsolete", "External", "Unstable", "Evolving",
                   "Stable", "Standard");
}

bool is_dependency_class(std::string_view name) {
  return is_one_of(name, "Unknown", "CPU", "Platform", "Group", "ISA", "Common");
}

// Name/Data/Class, as in Stable/Stable/Common.
bool is_attributes(std::string_view text) {
  const std::size_t first = text.find('/');
  const std::size_t second = first == std::string_view::npos ? first : text.find('/', first + 1);
  return second != std::string_view::npos && is_stability(text.substr(0, first)) &&
         is_stability(text.substr(first + 1, second - first - 1)) &&
         is_dependency_class(text.substr(second + 1));
}

// Version numbers: 1.0, 1.2.3.
bool is_version(std::string_view text) {
  int parts = 1;
  bool digit = false;
  for (const char c : text) {
    if (is_digit(c)) {
      digit = true;
    } else if (c == '.' && digit && parts < 3) {
      ++parts;
      digit = false;
    } else {
      return false;
    }
  }
  return digit && parts >= 2;
}

struct Problem {
  std::string_view tag;  // empty: none
  std::string text;
  std::string hint = {};
};

using Words = std::vector<ControlWord>;

Problem option_pragma(const Words& words, std::size_t at, Pragma& pragma) {
  if (at >= words.size() || words[at].kind != WordKind::kWord) {
    return {"PRAGMA_MALFORM", "malformed #pragma option <option>=<val>"};
  }
  if (at + 1 < words.size()) {
    return {"PRAGMA_MALFORM", "superfluous arguments specified for #pragma option",
            "write it without blanks: option=value"};
  }
  pragma.pragma = PragmaKind::kOption;
  const std::string& text = words[at].text;
  const std::size_t equals = text.find('=');
  pragma.name = text.substr(0, equals);
  if (equals != std::string::npos) pragma.value = text.substr(equals + 1);
  return {};
}

Problem attributes_pragma(const Words& words, std::size_t at, Pragma& pragma) {
  if (at + 1 >= words.size() || words[at].kind != WordKind::kWord ||
      words[at + 1].kind != WordKind::kWord) {
    return {"PRAGMA_MALFORM", "malformed #pragma attributes <attributes> <ident>"};
  }
  if (!is_attributes(words[at].text)) {
    return {"PRAGMA_INVAL", "invalid attributes specified by #pragma attributes",
            "attributes look like Stable/Stable/Common"};
  }
  pragma.pragma = PragmaKind::kAttributes;
  pragma.value = words[at].text;
  pragma.name = words[at + 1].text;
  if (pragma.name == "provider") {
    if (at + 3 >= words.size()) {
      return {"PRAGMA_MALFORM", "malformed #pragma attributes <attributes> provider <name> <part>"};
    }
    pragma.arguments = {words[at + 2].text, words[at + 3].text};
    if (!is_one_of(words[at + 3].text, "provider", "module", "function", "name", "args")) {
      return {"PRAGMA_INVAL",
              fmt::format("invalid component \"{}\" in attribute #pragma for provider {}",
                          brief(words[at + 3].text), brief(words[at + 2].text))};
    }
  }
  return {};
}

Problem binding_pragma(const Words& words, std::size_t at, Pragma& pragma) {
  if (at + 1 >= words.size() || words[at].kind != WordKind::kString ||
      words[at + 1].kind != WordKind::kWord) {
    return {"PRAGMA_MALFORM", "malformed #pragma binding \"version\" <ident>"};
  }
  if (!is_version(words[at].text))
    return {"PRAGMA_INVAL", "invalid version string specified by #pragma binding"};
  pragma.pragma = PragmaKind::kBinding;
  pragma.value = words[at].text;
  pragma.name = words[at + 1].text;
  return {};
}

Problem depends_on_pragma(const Words& words, std::size_t at, diag::SourceKind source,
                          Pragma& pragma) {
  if (at + 1 >= words.size() || words[at].kind != WordKind::kWord ||
      words[at + 1].kind != WordKind::kWord) {
    return {"PRAGMA_MALFORM", "malformed #pragma depends_on <class> <name>"};
  }
  pragma.pragma = PragmaKind::kDependsOn;
  pragma.name = words[at].text;
  pragma.value = words[at + 1].text;
  if (pragma.name == "library" && source != diag::SourceKind::kLibrary) {
    return {"PRAGMA_DEPEND", "main program may not explicitly depend on a library"};
  }
  if (!is_one_of(pragma.name, "provider", "module", "library")) {
    return {"PRAGMA_INVAL",
            fmt::format("invalid class {} specified by #pragma depends_on", brief(pragma.name))};
  }
  return {};
}

std::string error_text(const Words& words, std::size_t at) {
  std::string text = "#error: ";
  for (; at < words.size(); ++at) {
    if (words[at].kind != WordKind::kInteger) text += words[at].text + " ";
  }
  return text;
}

// A word of a control line; `at` moves behind it. Precondition: no blank at `at`. Strings must end
// on the line.
Problem read_word(std::string_view line, std::size_t& at, ControlWord& word) {
  const std::size_t begin = at;
  if (line[at] == '"') {
    for (++at; at < line.size() && line[at] != '"';)
      at += line[at] == '\\' && at + 1 < line.size() ? 2 : 1;
    if (at >= line.size()) return {"STR_NL", "newline encountered in string literal"};
    word.kind = WordKind::kString;
    word.text = resolve_escapes(line.substr(begin + 1, at - begin - 1));
    ++at;
    return {};
  }
  while (at < line.size() && !is_blank(line[at]) && line[at] != '"') ++at;
  word.text = std::string(line.substr(begin, at - begin));
  IntegerValue value;
  std::string_view rest;
  if (!is_digit(line[begin])) return {};
  const bool fits = read_integer(word.text, value, rest);
  if (!rest.empty()) return {};
  if (!fits)
    return {"INT_OFLOW", fmt::format("constant {} results in integer overflow", brief(word.text))};
  word.kind = WordKind::kInteger;
  word.value = value.value;
  return {};
}

}  // namespace

void Lexer::control_error(std::string_view tag, diag::Range range, std::string text,
                          std::string hint) {
  // Lines for a preprocessor that did not run come in crowds.
  if (tag == "PRAGCTL_INVAL" && control_failed_) return;
  control_failed_ = true;
  report(tag, range, std::move(text), std::move(hint));
}

// Precondition: at a '#' that is the first on its line. Afterwards at the next line.
bool Lexer::control_line() {
  const std::size_t hash = at_;
  const std::size_t newline = text_.find('\n', at_);
  if (peek(1) == '!') {
    at_ = newline == std::string_view::npos ? text_.size() : newline + 1;
    return true;
  }
  if (newline == std::string_view::npos) {
    at_ = text_.size();
    control_error("SYNTAX", end_of_source(), "end-of-file encountered before end of control line");
    return false;
  }
  at_ = newline + 1;
  std::string_view line = text_.substr(0, newline);
  std::vector<ControlWord> words;
  for (std::size_t at = hash + 1; at < line.size();) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    ControlWord word;
    const std::size_t begin = at;
    const Problem problem = read_word(line, at, word);
    word.range = range(begin, at);
    if (!problem.tag.empty()) {
      control_error(problem.tag, word.range, problem.text);
      return true;
    }
    words.push_back(std::move(word));
  }
  directive(words, newline + 1);
  return true;
}

void Lexer::directive(const std::vector<ControlWord>& words, std::size_t next_line) {
  enum class Level : std::uint8_t { kNaked, kPragma, kPragmaD } level = Level::kNaked;
  std::size_t at = 0;
  while (at < words.size() && words[at].kind == WordKind::kWord) {
    if (level == Level::kNaked && words[at].text == "pragma") {
      level = Level::kPragma;
    } else if (level == Level::kPragma && words[at].text == "D") {
      level = Level::kPragmaD;
    } else {
      break;
    }
    ++at;
  }
  if (at == words.size()) return;  // "#" alone is nothing
  const ControlWord& name = words[at];
  if (name.kind == WordKind::kInteger) return line_directive(words, at, next_line);
  if (name.kind == WordKind::kString)
    return control_error("PRAGCTL_INVAL", name.range, "invalid control directive");
  if (name.text == "line") return line_directive(words, at + 1, next_line);
  if (name.text == "ident") return;
  if (name.text == "error") return control_error("PRAGERR", name.range, error_text(words, at + 1));

  auto pragma = std::make_unique<Pragma>();
  Problem problem;
  const bool for_d = level == Level::kPragmaD;
  if (for_d && name.text == "option") {
    problem = option_pragma(words, at + 1, *pragma);
  } else if (for_d && name.text == "attributes") {
    problem = attributes_pragma(words, at + 1, *pragma);
  } else if (for_d && name.text == "binding") {
    problem = binding_pragma(words, at + 1, *pragma);
  } else if (for_d && name.text == "depends_on") {
    problem = depends_on_pragma(words, at + 1, sources_.kind(source_), *pragma);
  } else if (for_d) {
    problem = {"PRAGMA_INVAL", fmt::format("invalid D pragma: {}", brief(name.text))};
  } else if (level == Level::kPragma) {
    return;
  } else {
    const bool cpp = is_one_of(name.text, "include", "define", "undef", "if", "ifdef", "ifndef",
                               "else", "elif", "endif");
    problem = {"PRAGCTL_INVAL", fmt::format("invalid control directive: #{}", brief(name.text)),
               cpp ? "option -C runs the C preprocessor first" : ""};
  }
  if (!problem.tag.empty()) {
    return control_error(problem.tag, diag::join(words.front().range, words.back().range),
                         std::move(problem.text), std::move(problem.hint));
  }
  pragma->range = diag::join(words.front().range, words.back().range);
  if (pragma->pragma == PragmaKind::kOption) {
    if (pragma->name == "defaultargs") options_.default_arguments = true;
    if (pragma->name == "argref") options_.unused_arguments_ok = true;
    if (pragma->name == "empty") options_.empty_ok = true;
    if (pragma->name == "pspec") options_.prefer_descriptions = true;
  }
  pragmas_.push_back(std::move(pragma));
}

// <line> ["file" [flags]]: of cpp's flags 1 enters an included file, 2 comes back from one.
void Lexer::line_directive(const std::vector<ControlWord>& words, std::size_t first,
                           std::size_t next_line) {
  bool good = first < words.size() && words[first].kind == WordKind::kInteger &&
              words[first].value <= std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = first + 1; good && i < words.size(); ++i) {
    good = words[i].kind == (i == first + 1 ? WordKind::kString : WordKind::kInteger);
  }
  if (!good) {
    const diag::Range where =
        words.empty() ? end_of_source() : diag::join(words.front().range, words.back().range);
    return control_error("PRAGMA_MALFORM", where, "malformed #line <line> [ [\"file\"] state ]");
  }
  diag::LineMarker marker;
  marker.line = static_cast<std::uint32_t>(words[first].value);
  if (first + 1 < words.size()) {
    // What cpp read from its standard input is the script itself.
    const std::string& file = words[first + 1].text;
    marker.file = file == "/dev/stdin" || file == "<stdin>" ? std::string() : file;
  }
  for (std::size_t i = first + 2; i < words.size(); ++i) {
    if (words[i].value == 1) marker.flow = diag::LineMarker::Flow::kEnter;
    if (words[i].value == 2) marker.flow = diag::LineMarker::Flow::kLeave;
  }
  sources_.add_line_marker(source_, static_cast<std::uint32_t>(next_line), std::move(marker));
}

}  // namespace trapline::dlang
