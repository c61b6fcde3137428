#include "probes/module_cache.h"

namespace trapline::probes {

ModuleCache::ModuleCache(symbols::ModuleList modules, symbols::MemoryReader memory)
    : list_(std::move(modules)), memory_(std::move(memory)), known_(list_.modules.size()) {}

namespace {

// Loaded at the same place from a file of the same build. Without a build-id nobody knows.
bool is_same(const symbols::Module& a, const symbols::Module& b) {
  return a.path == b.path && a.bias.value == b.bias.value && a.text == b.text &&
         a.image->build_id() && b.image->build_id() && *a.image->build_id() == *b.image->build_id();
}

}  // namespace

void ModuleCache::take_over(ModuleCache& before) {
  for (std::size_t i = 0; i < size(); ++i) {
    for (std::size_t j = 0; j < before.size(); ++j) {
      symbols::Module& old = before.list_.modules[j];
      if (!old.image || !is_same(list_.modules[i], old)) continue;
      // The tables refer to their image.
      list_.modules[i] = std::move(old);
      old.image.reset();
      known_[i] = std::move(before.known_[j]);
      break;
    }
  }
}

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
