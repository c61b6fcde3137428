// Which modules a process has, kept up to date: those that were loaded and unloaded since the last
// look are found by comparing its executable mappings.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "probes/module_cache.h"
#include "symbols/modules.h"
#include "target/memory.h"

namespace trapline::session {

// Indices of modules.
struct ModuleChanges {
  std::vector<std::size_t> came;
  std::vector<std::size_t> gone;
  bool any() const { return !came.empty() || !gone.empty(); }
};

class LoadedModules {
 public:
  // All that are there now. `memory` reads the process, and is kept.
  static Result<LoadedModules> read(Pid pid, std::shared_ptr<target::Memory> memory);
  // Of a forked child, which has what its parent has.
  static LoadedModules of_child(const LoadedModules& parent, Pid pid,
                                std::shared_ptr<target::Memory> memory);

  probes::ModuleCache& cache() const { return *cache_; }

  // True: refresh() would find changes.
  Result<bool> changed() const;
  // What has changed since the last look. Only what is new is read.
  Result<ModuleChanges> refresh();
  // The half of it that is quick: those that have gone.
  Result<std::vector<std::size_t>> forget_gone();

 private:
  LoadedModules() = default;
  std::vector<std::size_t> forget_gone(std::span<const symbols::MapEntry> code);
  symbols::ModuleList read_list(const std::vector<symbols::MapEntry>& entries) const;

  Pid pid_;
  std::shared_ptr<target::Memory> memory_;
  std::unique_ptr<probes::ModuleCache> cache_;
  std::vector<symbols::MapEntry> code_;  // the mappings that the modules are known by
};

}  // namespace trapline::session
