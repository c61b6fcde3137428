// Feeds bytes to the lexer and the parser, as a script, an argument of the command or a library,
// and checks what they promise of any input: bounded depth, dense expression numbers, ranges within
// the source, and that trees and diagnostics can be printed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "diag/render.h"
#include "dlang/ast_print.h"
#include "dlang/parser.h"

namespace {

using namespace trapline;
using namespace trapline::dlang;

struct Bounds {
  diag::SourceId source;
  std::size_t size;
  std::uint32_t expressions;
};

void check_range(const Bounds& bounds, const diag::Range& range) {
  TL_CHECK(range.source == bounds.source);
  TL_CHECK(range.begin <= range.end && range.end <= bounds.size);
}

void check_expression(const Bounds& bounds, const Expression* expression) {
  if (expression == nullptr) return;
  TL_CHECK(expression->depth <= kMaxTreeDepth);
  TL_CHECK(expression->id < bounds.expressions);
  check_range(bounds, expression->range);
}

void check_item(const Bounds& bounds, const Item& item) {
  check_range(bounds, item.range);
  if (const auto* clause = item.get_if<Clause>()) {
    TL_CHECK(!clause->probes.empty());
    check_expression(bounds, clause->predicate.get());
    for (const ExpressionPtr& statement : clause->statements)
      check_expression(bounds, statement.get());
  } else if (const auto* definition = item.get_if<InlineDefinition>()) {
    check_expression(bounds, definition->value.get());
  } else if (const auto* translator = item.get_if<TranslatorDefinition>()) {
    for (const TranslatorMember& member : translator->members)
      check_expression(bounds, member.value.get());
  }
}

Macros make_macros() {
  Macros macros;
  macros.arguments = {"script.d", "42", "-7", "word", "a string", "0x10", ""};
  macros.variables = {{"target", 1234}, {"pid", 1}, {"uid", -1}};
  return macros;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t mode = data[0];
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static constexpr diag::SourceKind kKinds[] = {diag::SourceKind::kScript, diag::SourceKind::kText,
                                                diag::SourceKind::kLibrary};
  const diag::SourceKind kind = kKinds[mode % 3];

  diag::SourceManager sources;
  const auto source = sources.add("fuzz.d", text, kind);
  TL_CHECK(source.has_value());
  const Macros macros = make_macros();
  ParseRequest request;
  request.source = *source;
  request.kind = static_cast<DescriptionKind>((mode / 3) % 5);
  request.macros = &macros;
  request.is_type = [](std::string_view name) { return name.ends_with("_t"); };
  request.default_arguments = (mode & 0x40) != 0;
  request.prefer_descriptions = (mode & 0x80) != 0;

  diag::Diagnostics diagnostics;
  const ParseResult result = parse(request, sources, diagnostics);
  const Bounds bounds{*source, text.size(), result.program->expression_count};
  for (const auto& item : result.program->items) check_item(bounds, *item);
  print_tree(*result.program);
  for (const diag::Diagnostic& diagnostic : diagnostics.sorted()) {
    if (diagnostic.range.known()) check_range(bounds, diagnostic.range);
  }
  diag::render_all(sources, diagnostics);
  diag::render_classic(sources, diagnostics, "dtrace", kind, "fuzz.d", diag::Tags::kShow,
                       diag::Excerpt::kShow);
  return 0;
}
