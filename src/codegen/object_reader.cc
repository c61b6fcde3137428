// See object_reader.h.

#include "codegen/object_reader.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "base/cursor.h"

namespace trapline::codegen {
namespace {

constexpr std::uint64_t kMaxAlignment = 64;
constexpr std::size_t kMaxObject = std::size_t{1} << 30;

Error broken(const std::string& what) {
  return {ErrorCode::kInternal, "the emitted object: " + what};
}

class Linker {
 public:
  explicit Linker(std::span<const std::byte> elf) : elf_(elf) {}

  Result<LinkedObject> run() {
    TL_TRY(read_sections());
    TL_TRY(place());
    TL_TRY(read_symbols());
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_REL) return broken("relocations without addends");
      if (section.sh_type == SHT_RELA) TL_TRY(relocate(section));
    }
    TL_TRY(read_stack_sizes());
    return std::move(linked_);
  }

 private:
  Result<std::span<const std::byte>> contents(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return broken("zero-initialised data");
    if (section.sh_offset > elf_.size() || section.sh_size > elf_.size() - section.sh_offset) {
      return broken("a section past its end");
    }
    return elf_.subspan(section.sh_offset, section.sh_size);
  }

  Result<> read_sections() {
    Cursor cursor(elf_);
    const auto header = cursor.read<Elf64_Ehdr>();
    if (cursor.failed() || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_type != ET_REL || header.e_machine != EM_X86_64 ||
        header.e_shentsize != sizeof(Elf64_Shdr) || elf_.size() > kMaxObject) {
      return broken("not a relocatable x86-64 object");
    }
    cursor.seek(header.e_shoff);
    for (unsigned i = 0; i < header.e_shnum; ++i) sections_.push_back(cursor.read<Elf64_Shdr>());
    if (cursor.failed() || header.e_shstrndx >= sections_.size()) return broken("no section table");
    TL_TRY_ASSIGN(names_, contents(sections_[header.e_shstrndx]));
    return {};
  }

  static std::string string_at(std::span<const std::byte> table, std::size_t offset) {
    if (offset >= table.size()) return {};
    const auto* start = reinterpret_cast<const char*>(table.data() + offset);
    return {start, ::strnlen(start, table.size() - offset)};
  }
  std::string name_of(const Elf64_Shdr& section) const {
    return string_at(names_, section.sh_name);
  }

  // Code first, read-only data behind it.
  Result<> place() {
    places_.assign(sections_.size(), std::nullopt);
    for (const bool code : {true, false}) {
      if (!code) {
        linked_.code_size = static_cast<std::uint32_t>(linked_.bytes.size());
        linked_.bytes.resize((linked_.bytes.size() + kMaxAlignment - 1) / kMaxAlignment *
                             kMaxAlignment);
        linked_.constants_offset = static_cast<std::uint32_t>(linked_.bytes.size());
      }
      for (std::size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& section = sections_[i];
        const bool loaded = (section.sh_flags & SHF_ALLOC) != 0 && section.sh_size != 0;
        if (!loaded || ((section.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
        if ((section.sh_flags & SHF_WRITE) != 0)
          return broken("writable data in " + name_of(section));
        TL_TRY(append(i));
      }
    }
    if (linked_.bytes.size() == linked_.constants_offset)
      linked_.constants_offset = linked_.code_size;
    return {};
  }

  Result<> append(std::size_t index) {
    const Elf64_Shdr& section = sections_[index];
    const std::uint64_t alignment = section.sh_addralign == 0 ? 1 : section.sh_addralign;
    if (alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0)
      return broken("a strange alignment");
    TL_TRY_ASSIGN(const auto bytes, contents(section));
    linked_.bytes.resize((linked_.bytes.size() + alignment - 1) / alignment * alignment);
    places_[index] = static_cast<std::uint32_t>(linked_.bytes.size());
    linked_.bytes.insert(linked_.bytes.end(), bytes.begin(), bytes.end());
    return {};
  }

  Result<> read_symbols() {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB) continue;
      if (section.sh_link >= sections_.size()) return broken("symbols without names");
      TL_TRY_ASSIGN(const auto table, contents(section));
      TL_TRY_ASSIGN(const auto names, contents(sections_[section.sh_link]));
      Cursor cursor(table);
      while (cursor.remaining() >= sizeof(Elf64_Sym)) {
        const auto symbol = cursor.read<Elf64_Sym>();
        symbols_.push_back(symbol);
        symbol_names_.push_back(string_at(names, symbol.st_name));
        const auto place = place_of(symbol);
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && place) {
          linked_.functions[symbol_names_.back()] = static_cast<std::uint32_t>(*place);
        }
      }
      return {};
    }
    return broken("no symbols");
  }

  // Where the symbol lies in the linked bytes; nullopt: outside.
  std::optional<std::uint64_t> place_of(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx >= places_.size() || !places_[symbol.st_shndx]) return std::nullopt;
    if (symbol.st_value > sections_[symbol.st_shndx].sh_size) return std::nullopt;
    return *places_[symbol.st_shndx] + symbol.st_value;
  }

  Result<> relocate(const Elf64_Shdr& section) {
    if (section.sh_info >= sections_.size()) return broken("relocations of no section");
    if (!places_[section.sh_info]) return {};  // of a section that is not loaded
    TL_TRY_ASSIGN(const auto table, contents(section));
    Cursor cursor(table);
    while (cursor.remaining() >= sizeof(Elf64_Rela)) {
      const auto entry = cursor.read<Elf64_Rela>();
      const std::size_t index = ELF64_R_SYM(entry.r_info);
      if (index >= symbols_.size()) return broken("a relocation without symbol");
      const auto target = place_of(symbols_[index]);
      if (!target) return broken("a reference to " + symbol_names_[index] + ", which is not in it");
      const auto type = ELF64_R_TYPE(entry.r_info);
      if (type != R_X86_64_PC32 && type != R_X86_64_PLT32) {
        return broken("a relocation of type " + std::to_string(type));
      }
      const std::uint64_t at = *places_[section.sh_info] + entry.r_offset;
      if (entry.r_offset > sections_[section.sh_info].sh_size || at + 4 > linked_.bytes.size()) {
        return broken("a relocation outside its section");
      }
      const auto value =
          static_cast<std::uint32_t>(*target + static_cast<std::uint64_t>(entry.r_addend) - at);
      std::memcpy(linked_.bytes.data() + at, &value, sizeof(value));
    }
    return {};
  }

  // .stack_sizes: for each function its address (relocated, here: through its relocation) and a
  // ULEB128.
  Result<> read_stack_sizes() {
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (name_of(sections_[i]) != ".stack_sizes") continue;
      TL_TRY_ASSIGN(const auto bytes, contents(sections_[i]));
      TL_TRY_ASSIGN(const auto addresses, relocated_addresses(i));
      Cursor cursor(bytes);
      while (cursor.remaining() > 0) {
        const auto found = addresses.find(cursor.offset());
        cursor.skip(8);
        std::uint64_t size = 0;
        unsigned shift = 0;
        std::uint8_t byte = 0;
        do {
          byte = cursor.read<std::uint8_t>();
          if (shift < 64) size |= std::uint64_t{byte & 0x7fU} << shift;
          shift += 7;
        } while ((byte & 0x80) != 0);
        if (cursor.failed() || found == addresses.end() || size > 0xffffffff)
          return broken("bad stack sizes");
        for (const auto& [name, offset] : linked_.functions) {
          if (offset == found->second) linked_.stack_sizes[name] = static_cast<std::uint32_t>(size);
        }
      }
    }
    return {};
  }

  Result<std::map<std::size_t, std::uint64_t>> relocated_addresses(std::size_t of) const {
    std::map<std::size_t, std::uint64_t> addresses;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_RELA || section.sh_info != of) continue;
      TL_TRY_ASSIGN(const auto table, contents(section));
      Cursor cursor(table);
      while (cursor.remaining() >= sizeof(Elf64_Rela)) {
        const auto entry = cursor.read<Elf64_Rela>();
        const std::size_t index = ELF64_R_SYM(entry.r_info);
        if (index >= symbols_.size()) return broken("a relocation without symbol");
        if (const auto place = place_of(symbols_[index])) {
          addresses[entry.r_offset] = *place + static_cast<std::uint64_t>(entry.r_addend);
        }
      }
    }
    return addresses;
  }

  std::span<const std::byte> elf_;
  std::span<const std::byte> names_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<std::optional<std::uint32_t>> places_;  // by section: where it lies in linked_.bytes
  std::vector<Elf64_Sym> symbols_;
  std::vector<std::string> symbol_names_;
  LinkedObject linked_;
};

}  // namespace

Result<LinkedObject> link_object(std::span<const std::byte> elf) { return Linker(elf).run(); }

}  // namespace trapline::codegen
