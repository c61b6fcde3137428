// Where the instructions of a function begin: the names of its offset probes.
//
// x86 code can be told apart into instructions only from a beginning, so a function is analysed as
// the planner will do it (isa's analyze_function): what is named here is what it finds there.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "isa/x86_64/control_flow.h"
#include "probes/module_cache.h"
#include "probes/pid_provider.h"

namespace trapline::probes {

class InstructionOffsets {
 public:
  // Nothing is read before it is asked for. All outlive this.
  InstructionOffsets(ModuleCache& modules, std::size_t module, const symbols::SymbolTable& table)
      : modules_(modules), module_(module), table_(table) {}

  // Of the instructions in any of the function's places; sorted.
  std::vector<std::uint64_t> of(const MatchedFunction& function);

 private:
  ModuleCache& modules_;
  std::size_t module_;
  const symbols::SymbolTable& table_;
  std::unique_ptr<isa::ModuleCode> code_;
};

}  // namespace trapline::probes
