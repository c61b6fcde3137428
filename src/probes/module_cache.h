// What is known of the modules of one traced process: symbols, code facts, IFUNC choices, each read
// when first asked for.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "symbols/code_facts.h"
#include "symbols/ifunc.h"
#include "symbols/modules.h"
#include "symbols/symbol_table.h"

namespace trapline::probes {

class ModuleCache {
 public:
  ModuleCache(symbols::ModuleList modules, symbols::MemoryReader memory);

  // Keeps what `before`, of the same process and image, knew of modules that are still there;
  // `before` is of no use afterwards.
  void take_over(ModuleCache& before);

  std::size_t size() const { return list_.modules.size(); }
  const symbols::Module& module(std::size_t index) const { return list_.modules[index]; }
  const symbols::ModuleList& list() const { return list_; }

  // Errors: kBadInput, naming the file, where its symbols cannot be read at all.
  Result<const symbols::SymbolTable*> symbol_table(std::size_t index);
  const symbols::CodeFacts& code_facts(std::size_t index);
  // The implementations that the module's IFUNC symbols stand for in this process.
  const std::vector<symbols::IfuncChoice>& ifuncs(std::size_t index);

  const symbols::MemoryReader& memory() const { return memory_; }

 private:
  struct Known {
    std::optional<Result<symbols::SymbolTable>> symbols;
    std::optional<symbols::CodeFacts> facts;
    std::optional<std::vector<symbols::IfuncChoice>> ifuncs;
  };

  symbols::ModuleList list_;
  symbols::MemoryReader memory_;
  std::vector<Known> known_;
};

}  // namespace trapline::probes
