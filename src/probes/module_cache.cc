#include "probes/module_cache.h"

namespace trapline::probes {

ModuleCache::ModuleCache(symbols::ModuleList modules, symbols::MemoryReader memory)
    : list_(std::move(modules)), memory_(std::move(memory)), known_(list_.modules.size()) {}

Result<const symbols::SymbolTable*> ModuleCache::symbol_table(std::size_t index) {
  Known& known = known_[index];
  if (!known.symbols) {
    const symbols::Module& m = module(index);
    known.symbols.emplace(symbols::SymbolTable::read(*m.image, m.symbol_options));
  }
  if (!*known.symbols) return known.symbols->error();
  return &**known.symbols;
}

const symbols::CodeFacts& ModuleCache::code_facts(std::size_t index) {
  Known& known = known_[index];
  if (!known.facts) known.facts.emplace(symbols::read_code_facts(*module(index).image));
  return *known.facts;
}

const std::vector<symbols::IfuncChoice>& ModuleCache::ifuncs(std::size_t index) {
  Known& known = known_[index];
  if (!known.ifuncs) {
    known.ifuncs.emplace();
    const auto table = symbol_table(index);
    if (table) {
      std::vector<symbols::LoadedImage> loaded;
      for (const symbols::Module& m : list_.modules) loaded.push_back({m.image.get(), m.bias});
      known.ifuncs = symbols::choose_ifuncs({module(index).image.get(), module(index).bias},
                                            **table, loaded, memory_);
    }
  }
  return *known.ifuncs;
}

}  // namespace trapline::probes
