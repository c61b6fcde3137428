// The pid provider: which functions of a process a probe description names.
//
// A probe is a (module, function name, point): the function's entry, its returns, or one of its
// instructions, named by its offset in hexadecimal. It may stand for several places: static
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
//   - A name part with wildcards, or none, is matched against "entry", "return" and the offset of
//   every instruction. One without wildcards that is none of the first two is an offset.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "isa/x86_64/operand.h"
#include "probes/module_cache.h"

namespace trapline::probes {

enum class PointKind : std::uint8_t {
  kEntry,
  kReturn,
  kOffset,
  kUsdt,  // the sites of a statically defined probe: see usdt_provider.h
};

struct ProbePoint {
  PointKind kind = PointKind::kEntry;
  std::uint64_t offset = 0;  // kOffset: of the instruction in the function
};
std::string point_name(const ProbePoint& point);  // "entry", "return", "1a"; none of kUsdt

// One place of a statically defined probe.
struct UsdtSite {
  LinkAddr at;
  symbols::Symbol function;            // that contains it; of size 0: none is known
  std::vector<isa::Operand> operands;  // its arguments
  std::vector<std::string> types;      // of each; "": not known
  LinkAddr semaphore;                  // 0: none
  std::string problem;                 // why it cannot be armed: an operand that is not understood
};

struct UsdtProbe {
  std::string provider;  // without a pid
  std::string name;
  std::vector<std::shared_ptr<const UsdtSite>> sites;
};

// A description without its provider part.
struct FunctionPattern {
  std::string module;
  std::string function;
  std::string name;        // "entry", "return", an offset, a glob over all of these; "" is "*"
  bool demangled = false;  // `function` is a demangled name, though it may not look like one
};

// One function under one name, and the points that are wanted there.
struct MatchedFunction {
  std::size_t module = 0;  // index in the ModuleCache
  std::string name;
  std::vector<symbols::Symbol> places;  // where its code is; for an IFUNC, the implementations
  std::vector<ProbePoint> points;
  std::string note;               // what a user should know: an IFUNC choice that is not proven
  std::optional<UsdtProbe> usdt;  // then there are no places
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

// Errors: kBadInput for a name part that is no point's; kNotFound for an offset that is none of an
// instruction of the function, where the function part has no wildcards.
Result<PatternMatches> match_functions(ModuleCache& modules, const FunctionPattern& pattern);
// Only in these modules.
Result<PatternMatches> match_functions(ModuleCache& modules, const FunctionPattern& pattern,
                                       std::span<const std::size_t> which);

}  // namespace trapline::probes
