// Gathers the functions of several raw symbol tables of one module and merges them. Internal to
// SymbolTable.
//
// A large program has 150,000 raw entries, most of them twice. So only 16 bytes an entry are kept
// and sorted, by address; names are compared within one address only, and a Symbol is made for what
// remains.

#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "symbols/dynamic_symbols.h"
#include "symbols/elf_image.h"
#include "symbols/symbol_table.h"

namespace trapline::symbols {

class SymbolCollector {
 public:
  explicit SymbolCollector(const ElfImage& image);

  // Both give the number of functions in the table. `strings` must live as long as the merged
  // symbols; for the dynamic table it is a copy of the table's own, which lives as long as its
  // image.
  std::size_t add_dynamic(DynamicSymbols table, std::span<const std::byte> strings);
  std::size_t add_static(Bytes entries, std::span<const std::byte> strings, SymbolOrigin origin);

  // One symbol for each (address, name), by address, the preferred name first.
  std::vector<Symbol> merged();

 private:
  struct Table {
    std::span<const std::byte> entries;
    std::span<const std::byte> strings;
    SymbolOrigin origin;
  };
  struct Key {
    std::uint64_t address;
    std::uint32_t index;
    std::uint32_t origin;  // table in the top two bits (there are four at most), below them the
                           // STT_FILE group

    std::uint32_t table() const { return origin >> kTableShift; }
    std::uint32_t file() const { return origin & kMaxFileGroup; }
  };
  static constexpr unsigned kTableShift = 30;
  static constexpr std::uint32_t kMaxFileGroup = (1U << kTableShift) - 1;

  std::size_t add(std::span<const std::byte> entries, std::span<const std::byte> strings,
                  SymbolOrigin origin);
  bool wanted(const Elf64_Sym& raw) const;
  Elf64_Sym entry(const Key& key) const;
  Symbol symbol(const Key& key) const;

  std::vector<AddressRange> code_;
  std::vector<AddressRange> plt_;
  std::vector<Table> tables_;
  std::vector<Bytes> owned_;
  std::optional<DynamicSymbols> dynamic_;
  std::vector<Key> keys_;
  std::uint32_t file_ = 0;
};

}  // namespace trapline::symbols
