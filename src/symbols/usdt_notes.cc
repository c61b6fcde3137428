#include "symbols/usdt_notes.h"

#include <elf.h>

#include <algorithm>

#include "base/cursor.h"

namespace trapline::symbols {
namespace {

constexpr std::string_view kOwner("stapsdt", sizeof("stapsdt"));  // with its NUL
constexpr std::uint32_t kType = 3;
constexpr std::size_t kAlignment = 4;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What is in front of the next NUL, which is taken too; nullopt: there is none.
std::optional<std::string_view> take_text(std::string_view& rest) {
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view text = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return text;
}

// What is added to the addresses of the notes; `base` is what .stapsdt.base was for them.
class Adjustment {
 public:
  explicit Adjustment(const ElfImage& image) : base_(image.find_section(".stapsdt.base")) {}
  LinkAddr adjust(std::uint64_t address, std::uint64_t base) const {
    if (base_ == nullptr || base == 0 || address == 0) return LinkAddr(address);
    return LinkAddr(address + (base_->address.value() - base));
  }

 private:
  const Section* base_;
};

std::optional<UsdtNote> parse_note(std::span<const std::byte> content,
                                   const Adjustment& adjustment) {
  Cursor cursor(content);
  const auto site = cursor.read<std::uint64_t>();
  const auto base = cursor.read<std::uint64_t>();
  const auto semaphore = cursor.read<std::uint64_t>();
  if (cursor.failed()) return std::nullopt;
  std::string_view rest = as_text(cursor.read_bytes(cursor.remaining()));
  const auto provider = take_text(rest);
  const auto name = take_text(rest);
  const auto arguments = take_text(rest);
  if (!provider || !name || !arguments || provider->empty() || name->empty()) return std::nullopt;
  return UsdtNote{adjustment.adjust(site, base), adjustment.adjust(semaphore, base), *provider,
                  *name, *arguments};
}

void parse_notes(std::span<const std::byte> bytes, const Adjustment& adjustment,
                 std::vector<UsdtNote>& notes) {
  Cursor cursor(bytes);
  const auto skip_padding = [&] {
    const std::size_t over = cursor.offset() % kAlignment;
    if (over != 0) cursor.skip(std::min(kAlignment - over, cursor.remaining()));
  };
  while (cursor.remaining() >= sizeof(Elf64_Nhdr) && notes.size() < kMaxUsdtNotes) {
    const auto header = cursor.read<Elf64_Nhdr>();
    const auto owner = cursor.read_bytes(header.n_namesz);
    skip_padding();
    const auto content = cursor.read_bytes(header.n_descsz);
    if (cursor.failed()) return;
    skip_padding();
    if (header.n_type != kType || as_text(owner) != kOwner) continue;
    if (const auto note = parse_note(content, adjustment)) notes.push_back(*note);
  }
}

struct FoundObject {
  std::optional<LinkAddr> address;
  bool ambiguous = false;
};

FoundObject find_in(const ElfImage& image, const Section& table, std::string_view name) {
  FoundObject found;
  if (table.link >= image.sections().size()) return found;
  const auto symbols = image.section_bytes(table);
  const auto strings = image.section_bytes(image.sections()[table.link]);
  if (!symbols || !strings) return found;
  const std::string_view texts = as_text(*strings);
  Cursor cursor(*symbols);
  while (cursor.remaining() >= sizeof(Elf64_Sym)) {
    const auto symbol = cursor.read<Elf64_Sym>();
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || (type != STT_OBJECT && type != STT_NOTYPE)) continue;
    if (symbol.st_name >= texts.size()) continue;
    const std::string_view text = texts.substr(symbol.st_name);
    if (!text.starts_with(name) || text.size() == name.size() || text[name.size()] != '\0')
      continue;
    const LinkAddr address(symbol.st_value);
    found.ambiguous = found.ambiguous || (found.address && *found.address != address);
    found.address = address;
  }
  return found;
}

}  // namespace

std::vector<UsdtNote> read_usdt_notes(const ElfImage& image) {
  std::vector<UsdtNote> notes;
  const Adjustment adjustment(image);
  for (const Section& section : image.sections()) {
    if (section.type != SHT_NOTE || section.name != ".note.stapsdt") continue;
    if (const auto bytes = image.section_bytes(section)) parse_notes(*bytes, adjustment, notes);
  }
  return notes;
}

std::optional<LinkAddr> find_object(const ElfImage& image, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const std::uint32_t type : {std::uint32_t{SHT_SYMTAB}, std::uint32_t{SHT_DYNSYM}}) {
    for (const Section& section : image.sections()) {
      if (section.type != type) continue;
      const FoundObject found = find_in(image, section, name);
      if (found.ambiguous) return std::nullopt;
      if (found.address) return found.address;
    }
  }
  return std::nullopt;
}

}  // namespace trapline::symbols
