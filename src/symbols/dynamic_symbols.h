// A module's dynamic symbol table as raw entries, with their versions. Shared by the symbol table
// and the relocations.
//
// Works without section headers: the number of entries comes from the hash tables then.
// Sources: gABI chapter 5; "GNU hash ELF sections" (glibc's elf/dl-lookup.c); LSB "Symbol
// Versioning".

#pragma once

#include <elf.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "symbols/elf_image.h"

namespace trapline::symbols {

struct SymbolVersion {
  std::string_view name;   // empty: none
  bool is_default = true;  // of a definition: name@@VERSION
};

// Views into the image.
class DynamicSymbols {
 public:
  // An empty table when the module has none; kBadInput when it cannot be read.
  static Result<DynamicSymbols> read(const ElfImage& image);

  std::size_t size() const { return count_; }
  Elf64_Sym symbol(std::size_t index) const;  // index < size()
  std::string_view name(const Elf64_Sym& symbol) const;
  SymbolVersion version(std::size_t index) const;
  std::span<const std::byte> entries() const { return entries_; }
  std::span<const std::byte> strings() const { return strings_; }

 private:
  std::size_t count_ = 0;
  std::span<const std::byte> entries_;
  std::span<const std::byte> strings_;
  std::span<const std::byte> versym_;            // 2 bytes each; may be shorter than the table
  std::vector<std::string_view> version_names_;  // by version index
};

// The string at an offset of a string table; empty when there is none.
std::string_view table_string(std::span<const std::byte> table, std::uint64_t offset);

}  // namespace trapline::symbols
