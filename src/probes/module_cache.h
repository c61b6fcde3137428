// What is known of the modules of one traced process: symbols, code facts, IFUNC choices, each read
// when first asked for.
//
// Modules come and go while it is traced (dlopen, dlclose). A module keeps its index as long as the
// process runs one program: sites and probes name it by that. One that has gone stays known, and
// has its index again when the same file is mapped at the same place again. Copies (of a forked
// child) share what was read.

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
  // Of a forked child, which has the same modules; `memory` reads the child's.
  ModuleCache(const ModuleCache& parent, symbols::MemoryReader memory);

  // What `other`, of any process, knows of the files that are modules here, too.
  void share_files(const ModuleCache& other);

  std::size_t size() const { return list_.modules.size(); }
  const symbols::Module& module(std::size_t index) const { return list_.modules[index]; }
  bool is_mapped(std::size_t index) const { return known_[index].mapped; }
  // Of all that are mapped.
  std::vector<std::size_t> mapped() const;
  // The one that is mapped there; nullopt: none.
  std::optional<std::size_t> containing(RemoteAddr address) const;

  // A module was mapped; its index.
  std::size_t add(symbols::Module module);
  // It is no longer mapped.
  void remove(std::size_t index) { known_[index].mapped = false; }
  // If it comes again, it is another one.
  void retire(std::size_t index) { known_[index].retired = true; }

  // Errors: kBadInput, naming the file, where its symbols cannot be read at all.
  Result<const symbols::SymbolTable*> symbol_table(std::size_t index);
  const symbols::CodeFacts& code_facts(std::size_t index);
  // The implementations that the module's IFUNC symbols stand for in this process.
  const std::vector<symbols::IfuncChoice>& ifuncs(std::size_t index);

  const symbols::MemoryReader& memory() const { return memory_; }

 private:
  struct File {  // the same wherever it is mapped
    std::optional<Result<symbols::SymbolTable>> symbols;
    std::optional<symbols::CodeFacts> facts;
  };
  struct Known {
    std::shared_ptr<File> file = std::make_shared<File>();
    std::optional<std::vector<symbols::IfuncChoice>> ifuncs;
    bool mapped = true;
    bool retired = false;
  };

  symbols::ModuleList list_;
  symbols::MemoryReader memory_;
  std::vector<Known> known_;
};

}  // namespace trapline::probes
