// A module's code as isa judges it: its sections, and every place that control may reach by other
// ways than a direct branch.

#pragma once

#include <memory>

#include "isa/x86_64/control_flow.h"
#include "symbols/code_facts.h"
#include "symbols/modules.h"
#include "symbols/symbol_table.h"

namespace trapline::probes {

// The module's image must outlive the result. Parts that cannot be read are left out: their
// functions are then refused as no code.
std::unique_ptr<isa::ModuleCode> read_module_code(const symbols::Module& module,
                                                  const symbols::SymbolTable& symbols,
                                                  const symbols::CodeFacts& facts);

}  // namespace trapline::probes
