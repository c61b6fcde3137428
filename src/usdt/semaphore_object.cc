#include "usdt/semaphore_object.h"

#include <elf.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "usdt/header.h"

namespace trapline::usdt {

namespace {

constexpr std::size_t kSemaphoreSize = 2;

// In this order in the file; the last one makes the linker leave stacks unexecutable.
enum Section : std::uint16_t { kNull, kProbes, kSymbols, kStrings, kNames, kStackNote, kCount };

constexpr std::string_view kSectionNames[kCount] = {"",        ".probes",   ".symtab",
                                                    ".strtab", ".shstrtab", ".note.GNU-stack"};

class Writer {
 public:
  template <typename T>
  void add(const T& value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void add_text(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    bytes_.push_back(std::byte{0});
  }
  void align(std::size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
  }
  std::size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

  std::vector<std::byte> bytes_;
};

Elf64_Shdr section(std::uint32_t type, std::uint64_t flags, std::size_t begin, std::size_t end,
                   std::uint64_t alignment) {
  Elf64_Shdr header{};
  header.sh_type = type;
  header.sh_flags = flags;
  header.sh_offset = begin;
  header.sh_size = end - begin;
  header.sh_addralign = alignment;
  return header;
}

Elf64_Ehdr file_header(std::size_t sections) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_shoff = sections;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kCount;
  header.e_shstrndx = kNames;
  return header;
}

}  // namespace

std::vector<std::byte> semaphore_object(std::span<const plan::Provider> providers) {
  Writer strings;
  strings.add_text("");
  std::vector<Elf64_Sym> symbols(1);
  for (const plan::Provider& provider : providers) {
    for (const plan::ProviderProbe& probe : provider.probes) {
      Elf64_Sym symbol{};
      symbol.st_name = static_cast<Elf64_Word>(strings.size());
      symbol.st_info = ELF64_ST_INFO(STB_WEAK, STT_OBJECT);
      symbol.st_other = STV_HIDDEN;
      symbol.st_shndx = kProbes;
      symbol.st_value = (symbols.size() - 1) * kSemaphoreSize;
      symbol.st_size = kSemaphoreSize;
      symbols.push_back(symbol);
      strings.add_text(semaphore_name(provider, probe));
    }
  }

  Writer out;
  out.add(file_header(0));  // again below, when the place of the section headers is known
  std::array<Elf64_Shdr, kCount> sections{};
  std::size_t begin = out.size();
  out.bytes_.resize(begin + (symbols.size() - 1) * kSemaphoreSize);
  sections[kProbes] =
      section(SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, begin, out.size(), kSemaphoreSize);
  out.align(alignof(Elf64_Sym));
  begin = out.size();
  for (const Elf64_Sym& symbol : symbols) out.add(symbol);
  sections[kSymbols] = section(SHT_SYMTAB, 0, begin, out.size(), alignof(Elf64_Sym));
  sections[kSymbols].sh_link = kStrings;
  sections[kSymbols].sh_info = 1;  // the first symbol that is not local
  sections[kSymbols].sh_entsize = sizeof(Elf64_Sym);
  begin = out.size();
  out.bytes_.insert(out.bytes_.end(), strings.bytes_.begin(), strings.bytes_.end());
  sections[kStrings] = section(SHT_STRTAB, 0, begin, out.size(), 1);
  begin = out.size();
  std::array<Elf64_Word, kCount> names{};
  for (std::size_t i = 0; i < kCount; ++i) {
    names[i] = static_cast<Elf64_Word>(out.size() - begin);
    out.add_text(kSectionNames[i]);
  }
  sections[kNames] = section(SHT_STRTAB, 0, begin, out.size(), 1);
  sections[kStackNote] = section(SHT_PROGBITS, 0, out.size(), out.size(), 1);
  out.align(alignof(Elf64_Shdr));
  const Elf64_Ehdr header = file_header(out.size());
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i != kNull) sections[i].sh_name = names[i];
    out.add(sections[i]);
  }
  std::memcpy(out.bytes_.data(), &header, sizeof header);
  return out.take();
}

}  // namespace trapline::usdt
