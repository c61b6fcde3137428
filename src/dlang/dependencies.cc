#include "dlang/dependencies.h"

#include "diag/diagnostic.h"
#include "diag/source.h"
#include "dlang/ast.h"
#include "dlang/lexer.h"

namespace trapline::dlang {

namespace {

DependencyKind kind_of(const std::string& word) {
  if (word == "module") return DependencyKind::kModule;
  return word == "provider" ? DependencyKind::kProvider : DependencyKind::kLibrary;
}

}  // namespace

std::vector<Dependency> read_dependencies(const std::string& text) {
  diag::SourceManager sources;
  diag::Diagnostics diagnostics;
  const auto source = sources.add("", text, diag::SourceKind::kLibrary);
  if (!source) return {};
  Lexer lexer(*source, nullptr, {}, sources, diagnostics);
  lexer.set_quiet(true);
  while (lexer.next().kind != TokenKind::kEnd) {
  }
  std::vector<Dependency> found;
  for (const auto& pragma : lexer.take_pragmas()) {
    if (pragma->pragma == PragmaKind::kDependsOn && pragma->value)
      found.push_back({kind_of(pragma->name), *pragma->value});
  }
  return found;
}

}  // namespace trapline::dlang
