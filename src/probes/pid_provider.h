// The pid provider: which functions of a process a probe description names.
//
// A probe is a (module, function name, entry or return); it may stand for several places: static
// functions of one name, the candidates of an IFUNC. Rules of matching:
//   - The module part is taken as symbols::module_matches says; "" is every module.
//   - A function part without wildcards matches every function of that linked name (or, when it
//   holds "::" or "(", of that
//     demangled name), under the name that was asked for.
//   - With wildcards, each address is matched once, under its preferred name, as DTrace does:
//   aliases do not
//     make two probes. An IFUNC's name stands at the implementation that the process chose.
//   - f.cold parts have no entry and are no functions. Symbols without a type match only when named
//   in full.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "probes/module_cache.h"

namespace trapline::probes {

enum class PointKind : std::uint8_t { kEntry, kReturn };

std::string_view point_name(PointKind kind);  // "entry", "return"

// A description without its provider part.
struct FunctionPattern {
  std::string module;
  std::string function;
  std::string name;        // "entry", "return", a glob over both, or "" for both
  bool demangled = false;  // `function` is a demangled name, though it may not look like one
};

// One function under one name, and the points that are wanted there.
struct MatchedFunction {
  std::size_t module = 0;  // index in the ModuleCache
  std::string name;
  std::vector<symbols::Symbol> places;  // where its code is; for an IFUNC, the implementations
  bool entry = false;
  bool returns = false;
  std::string note;  // what a user should know: an IFUNC choice that is not proven
};

struct MatchedModule {
  std::size_t module = 0;
  std::size_t functions = 0;
};

struct PatternMatches {
  std::vector<MatchedFunction> functions;  // by module, then address
  std::vector<MatchedModule> modules;      // those with at least one
  std::vector<Error> problems;  // modules whose symbols could not be read; others went on
};

// Errors: kUnsupported for a name part that is neither entry nor return (offsets), naming it.
Result<PatternMatches> match_functions(ModuleCache& modules, const FunctionPattern& pattern);
// Only in these modules.
Result<PatternMatches> match_functions(ModuleCache& modules, const FunctionPattern& pattern,
                                       std::span<const std::size_t> which);

}  // namespace trapline::probes
