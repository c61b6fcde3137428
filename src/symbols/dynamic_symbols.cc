#include "symbols/dynamic_symbols.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/cursor.h"

namespace trapline::symbols {
namespace {

constexpr std::uint64_t kMaxSymbols = 1 << 26;
constexpr std::uint16_t kHiddenVersion = 0x8000;

template <typename T>
std::optional<T> load_at(const ElfImage& image, LinkAddr address) {
  if (address.value() + sizeof(T) < address.value()) return std::nullopt;
  auto bytes = image.bytes_at({address, address + sizeof(T)});
  if (!bytes) return std::nullopt;
  return Cursor(*bytes).read<T>();
}

std::optional<std::uint64_t> count_by_sysv_hash(const ElfImage& image, LinkAddr hash) {
  const auto chains = load_at<std::uint32_t>(image, hash + 4);
  return chains ? std::optional<std::uint64_t>(*chains) : std::nullopt;
}

// The table holds no count: the last symbol is the end of the chain of the bucket that starts last.
// Symbols before `symoffset`, the undefined ones, are not hashed. No hashed symbol: nothing is
// known.
std::optional<std::uint64_t> count_by_gnu_hash(const ElfImage& image, LinkAddr hash) {
  const auto buckets = load_at<std::uint32_t>(image, hash);
  const auto first = load_at<std::uint32_t>(image, hash + 4);
  const auto bloom_words = load_at<std::uint32_t>(image, hash + 8);
  if (!buckets || !first || !bloom_words || *buckets > kMaxSymbols) return std::nullopt;
  const LinkAddr table = hash + 16 + std::uint64_t{*bloom_words} * 8;
  const std::uint64_t table_size = std::uint64_t{*buckets} * 4;
  if (table.value() + table_size < table.value()) return std::nullopt;
  auto bytes = image.bytes_at({table, table + table_size});
  if (!bytes) return std::nullopt;
  std::uint64_t last = 0;
  Cursor cursor(*bytes);
  for (std::uint32_t i = 0; i < *buckets; ++i) {
    last = std::max<std::uint64_t>(last, cursor.read<std::uint32_t>());
  }
  if (last < *first || last == 0) return std::nullopt;
  const LinkAddr chains = table + table_size;
  for (; last < kMaxSymbols; ++last) {
    const auto value = load_at<std::uint32_t>(image, chains + (last - *first) * 4);
    if (!value) return std::nullopt;
    if ((*value & 1) != 0) return last + 1;
  }
  return std::nullopt;
}

std::uint64_t count_symbols(const ElfImage& image) {
  const DynamicInfo& d = image.dynamic();
  for (const Section& s : image.sections()) {
    if (s.type == SHT_DYNSYM && s.address == d.symtab) return s.size / sizeof(Elf64_Sym);
  }
  if (d.hash != LinkAddr()) {
    if (const auto n = count_by_sysv_hash(image, d.hash)) return *n;
  }
  if (d.gnu_hash != LinkAddr()) {
    if (const auto n = count_by_gnu_hash(image, d.gnu_hash)) return *n;
  }
  // Linkers put the strings right after the symbols.
  return d.strtab > d.symtab ? (d.strtab - d.symtab) / sizeof(Elf64_Sym) : 0;
}

class VersionNames {
 public:
  VersionNames(const ElfImage& image, std::span<const std::byte> strings)
      : image_(image), strings_(strings) {
    read_definitions();
    read_needs();
  }
  std::vector<std::string_view> take() { return std::move(names_); }

 private:
  void add(std::uint16_t index, std::uint32_t name) {
    index &= static_cast<std::uint16_t>(~kHiddenVersion);
    if (index >= names_.size()) names_.resize(index + 1U);
    names_[index] = table_string(strings_, name);
  }

  void read_definitions() {
    LinkAddr at = image_.dynamic().verdef;
    const std::uint64_t count = std::min<std::uint64_t>(image_.dynamic().verdef_count, 0x7fff);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto def = load_at<Elf64_Verdef>(image_, at);
      if (!def) return;
      // The base definition names the file, not a version.
      if ((def->vd_flags & VER_FLG_BASE) == 0) {
        if (const auto aux = load_at<Elf64_Verdaux>(image_, at + def->vd_aux)) {
          add(def->vd_ndx, aux->vda_name);
        }
      }
      if (def->vd_next == 0) return;
      at += def->vd_next;
    }
  }

  void read_needs() {
    LinkAddr at = image_.dynamic().verneed;
    const std::uint64_t count = std::min<std::uint64_t>(image_.dynamic().verneed_count, 0x7fff);
    std::uint64_t budget = 0xffff;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto need = load_at<Elf64_Verneed>(image_, at);
      if (!need) return;
      LinkAddr aux_at = at + need->vn_aux;
      for (unsigned k = 0; k < need->vn_cnt && budget > 0; ++k, --budget) {
        const auto aux = load_at<Elf64_Vernaux>(image_, aux_at);
        if (!aux) return;
        add(aux->vna_other, aux->vna_name);
        if (aux->vna_next == 0) break;
        aux_at += aux->vna_next;
      }
      if (need->vn_next == 0) return;
      at += need->vn_next;
    }
  }

  const ElfImage& image_;
  std::span<const std::byte> strings_;
  std::vector<std::string_view> names_;
};

}  // namespace

std::string_view table_string(std::span<const std::byte> table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto* begin = reinterpret_cast<const char*>(table.data()) + offset;
  const std::size_t room = table.size() - offset;
  return {begin, ::strnlen(begin, room)};
}

Result<DynamicSymbols> DynamicSymbols::read(const ElfImage& image) {
  const DynamicInfo& d = image.dynamic();
  DynamicSymbols out;
  if (!d.present || d.symtab == LinkAddr() || d.strtab == LinkAddr()) return out;
  const std::uint64_t count = count_symbols(image);
  const std::uint64_t size = count * sizeof(Elf64_Sym);
  if (count > kMaxSymbols || d.symtab.value() + size < d.symtab.value() ||
      d.strtab.value() + d.strtab_size < d.strtab.value()) {
    return Error(ErrorCode::kBadInput, image.name() + ": corrupt dynamic symbol table");
  }
  TL_TRY_ASSIGN(out.entries_, image.bytes_at({d.symtab, d.symtab + size}));
  TL_TRY_ASSIGN(out.strings_, image.bytes_at({d.strtab, d.strtab + d.strtab_size}));
  out.count_ = count;
  if (d.versym != LinkAddr() && d.versym.value() + count * 2 > d.versym.value()) {
    if (auto versym = image.bytes_at({d.versym, d.versym + count * 2})) out.versym_ = *versym;
    out.version_names_ = VersionNames(image, out.strings_).take();
  }
  return out;
}

Elf64_Sym DynamicSymbols::symbol(std::size_t index) const {
  Cursor cursor(entries_.subspan(index * sizeof(Elf64_Sym)));
  return cursor.read<Elf64_Sym>();
}

std::string_view DynamicSymbols::name(const Elf64_Sym& symbol) const {
  return table_string(strings_, symbol.st_name);
}

SymbolVersion DynamicSymbols::version(std::size_t index) const {
  if ((index + 1) * 2 > versym_.size()) return {};
  const auto raw = Cursor(versym_.subspan(index * 2)).read<std::uint16_t>();
  const std::size_t at = raw & static_cast<std::uint16_t>(~kHiddenVersion);
  if (at <= VER_NDX_GLOBAL || at >= version_names_.size()) return {};
  return {version_names_[at], (raw & kHiddenVersion) == 0};
}

}  // namespace trapline::symbols
