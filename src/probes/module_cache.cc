#include "probes/module_cache.h"

namespace trapline::probes {

ModuleCache::ModuleCache(symbols::ModuleList modules, symbols::MemoryReader memory)
    : list_(std::move(modules)), memory_(std::move(memory)), known_(list_.modules.size()) {}

ModuleCache::ModuleCache(const ModuleCache& parent, symbols::MemoryReader memory)
    : list_(parent.list_), memory_(std::move(memory)), known_(parent.known_) {}

namespace {

// The same build of the same file. Without a build-id nobody knows.
bool is_same_file(const symbols::Module& a, const symbols::Module& b) {
  return a.path == b.path && a.image->build_id() && b.image->build_id() &&
         *a.image->build_id() == *b.image->build_id();
}

bool is_same_place(const symbols::Module& a, const symbols::Module& b) {
  return a.bias.value == b.bias.value && a.text == b.text;
}

}  // namespace

void ModuleCache::share_files(const ModuleCache& other) {
  for (std::size_t i = 0; i < size(); ++i) {
    symbols::Module& mine = list_.modules[i];
    for (std::size_t j = 0; j < other.size(); ++j) {
      const symbols::Module& known = other.module(j);
      const bool by_file = mine.file_state != symbols::FileState::kMemoryOnly &&
                           known.file_state != symbols::FileState::kMemoryOnly;
      if (!by_file || !is_same_file(mine, known)) continue;
      mine.image = known.image;
      known_[i].file = other.known_[j].file;
      break;
    }
  }
}

std::size_t ModuleCache::add(symbols::Module module) {
  std::shared_ptr<File> file;
  for (std::size_t i = 0; i < size(); ++i) {
    if (!is_same_file(list_.modules[i], module)) continue;
    Known& known = known_[i];
    if (!known.mapped && !known.retired && is_same_place(list_.modules[i], module)) {
      known.mapped = true;
      known.ifuncs.reset();
      return i;
    }
    if (module.file_state == symbols::FileState::kMemoryOnly) continue;
    // Symbols refer to the image that they were read of.
    file = known.file;
    module.image = list_.modules[i].image;
  }
  list_.modules.push_back(std::move(module));
  known_.emplace_back();
  if (file) known_.back().file = std::move(file);
  return size() - 1;
}

std::vector<std::size_t> ModuleCache::mapped() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < size(); ++i) {
    if (known_[i].mapped) indices.push_back(i);
  }
  return indices;
}

std::optional<std::size_t> ModuleCache::containing(RemoteAddr address) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (!known_[i].mapped) continue;
    for (const symbols::RemoteRange& range : module(i).text) {
      if (range.contains(address)) return i;
    }
  }
  return std::nullopt;
}

Result<const symbols::SymbolTable*> ModuleCache::symbol_table(std::size_t index) {
  File& file = *known_[index].file;
  if (!file.symbols) {
    const symbols::Module& m = module(index);
    file.symbols.emplace(symbols::SymbolTable::read(*m.image, m.symbol_options));
  }
  if (!*file.symbols) return file.symbols->error();
  return &**file.symbols;
}

const symbols::CodeFacts& ModuleCache::code_facts(std::size_t index) {
  File& file = *known_[index].file;
  if (!file.facts) file.facts.emplace(symbols::read_code_facts(*module(index).image));
  return *file.facts;
}

const std::vector<symbols::IfuncChoice>& ModuleCache::ifuncs(std::size_t index) {
  Known& known = known_[index];
  if (!known.ifuncs) {
    known.ifuncs.emplace();
    const auto table = symbol_table(index);
    if (table) {
      std::vector<symbols::LoadedImage> loaded;
      for (const std::size_t i : mapped())
        loaded.push_back({module(i).image.get(), module(i).bias});
      known.ifuncs = symbols::choose_ifuncs({module(index).image.get(), module(index).bias},
                                            **table, loaded, memory_);
    }
  }
  return *known.ifuncs;
}

}  // namespace trapline::probes
