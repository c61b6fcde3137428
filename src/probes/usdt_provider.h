// USDT providers: which statically defined probes of a process a description names.
//
// A probe is all sites of one (module, provider, function, name). Its provider is shown with the
// process's id behind it ("postgresql4711"), its name with "-" for the "__" of the note; a pattern
// may write either. The function is the one that contains the site, "" where none is known. The
// sites are patched as other instructions are (PointKind::kUsdt); each brings its own operands for
// the arguments, and perhaps a semaphore that is raised as long as somebody listens.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "probes/module_cache.h"
#include "probes/pid_provider.h"

namespace trapline::probes {

struct UsdtPattern {
  std::string provider;  // with the pid, a glob; "" is "*"
  std::string module;
  std::string function;
  std::string name;
  bool demangled = false;  // `function` is a demangled name, though it may not look like one
};

// The functions of the matches have `usdt`, and one point. `pid`: by which it is named.
PatternMatches match_usdt(ModuleCache& modules, const UsdtPattern& pattern, Pid pid,
                          std::span<const std::size_t> which);

// Whether the process has a provider of that very name, without a pid.
bool has_usdt_provider(ModuleCache& modules, const std::string& provider,
                       std::span<const std::size_t> which);

}  // namespace trapline::probes
