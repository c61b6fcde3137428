#include "symbols/symbol_collector.h"

#include <algorithm>
#include <tuple>

#include "base/cursor.h"
#include "symbols/code_facts.h"

namespace trapline::symbols {
namespace {

constexpr std::size_t kMaxSymbols = 1 << 26;

bool in_ranges(std::span<const AddressRange> ranges, LinkAddr a) {
  const auto next = std::ranges::upper_bound(ranges, a, {}, &AddressRange::begin);
  return next != ranges.begin() && std::prev(next)->contains(a);
}

std::size_t leading_underscores(std::string_view name) {
  return std::min(name.find_first_not_of('_'), name.size());
}

int binding_rank(SymbolBinding b) {
  return b == SymbolBinding::kGlobal ? 0 : b == SymbolBinding::kWeak ? 1 : 2;
}

// Of two names of one address, the one that people would use.
bool preferred_before(const Symbol& a, const Symbol& b) {
  const auto key = [](const Symbol& s) {
    return std::tuple(s.kind == SymbolKind::kUntyped, s.clone == CloneKind::kCold,
                      binding_rank(s.binding), !s.default_version, leading_underscores(s.name));
  };
  const auto ka = key(a);
  const auto kb = key(b);
  return ka != kb ? ka < kb : a.name < b.name;
}

// .symtab writes versions into names: memcpy@@GLIBC_2.14, memcpy@GLIBC_2.2.5.
void split_version(Symbol& s) {
  const std::size_t at = s.name.find('@');
  if (at == std::string_view::npos || at == 0) return;
  std::string_view version = s.name.substr(at + 1);
  s.default_version = version.starts_with('@');
  if (s.default_version) version.remove_prefix(1);
  s.version = version;
  s.name = s.name.substr(0, at);
}

// Names that begin with a dot are markers of tools (annobin, local labels), not functions.
bool names_a_function(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.front() != '$';
}

// Of two entries of one function and name, what either knows.
void absorb(Symbol& into, const Symbol& other) {
  if (into.size == 0) into.size = other.size;
  if (into.version.empty() || (!into.default_version && other.default_version)) {
    if (!other.version.empty()) {
      into.version = other.version;
      into.default_version = other.default_version;
    }
  }
  if (into.kind == SymbolKind::kUntyped) into.kind = other.kind;
  if (binding_rank(other.binding) < binding_rank(into.binding)) into.binding = other.binding;
}

// One symbol for each name in symbols[begin..], all of one address; the preferred first.
void unite(std::vector<Symbol>& symbols, std::size_t begin) {
  const auto group = std::span(symbols).subspan(begin);
  std::ranges::sort(group, {}, &Symbol::name);
  std::size_t kept = 1;
  for (std::size_t i = 1; i < group.size(); ++i) {
    if (group[kept - 1].name == group[i].name) {
      absorb(group[kept - 1], group[i]);
    } else {
      group[kept++] = group[i];
    }
  }
  std::ranges::sort(group.first(kept), preferred_before);
  symbols.resize(begin + kept);
}

}  // namespace

SymbolCollector::SymbolCollector(const ElfImage& image)
    : code_(image.code_ranges()), plt_(plt_ranges(image)) {}

bool SymbolCollector::wanted(const Elf64_Sym& raw) const {
  const auto type = ELF64_ST_TYPE(raw.st_info);
  if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) return false;
  if (raw.st_shndx == SHN_UNDEF || raw.st_name == 0) return false;
  const LinkAddr a(raw.st_value);
  return in_ranges(code_, a) && !in_ranges(plt_, a);
}

std::size_t SymbolCollector::add_dynamic(DynamicSymbols table, std::span<const std::byte> strings) {
  dynamic_ = std::move(table);
  return add(dynamic_->entries(), strings, SymbolOrigin::kDynsym);
}

std::size_t SymbolCollector::add_static(Bytes entries, std::span<const std::byte> strings,
                                        SymbolOrigin origin) {
  owned_.push_back(std::move(entries));
  return add(std::as_const(owned_.back()).span(), strings, origin);
}

std::size_t SymbolCollector::add(std::span<const std::byte> entries,
                                 std::span<const std::byte> strings, SymbolOrigin origin) {
  const std::size_t before = keys_.size();
  const std::size_t count = std::min(entries.size() / sizeof(Elf64_Sym), kMaxSymbols);
  const auto table = static_cast<std::uint32_t>(tables_.size()) << kTableShift;
  tables_.push_back({entries, strings, origin});
  keys_.reserve(before + count);
  for (std::uint32_t i = 1; i < count; ++i) {
    const auto raw = Cursor(entries.subspan(i * sizeof(Elf64_Sym))).read<Elf64_Sym>();
    const auto type = ELF64_ST_TYPE(raw.st_info);
    if (type == STT_FILE) file_ = std::min(file_ + 1, kMaxFileGroup);
    if (!wanted(raw) || (origin == SymbolOrigin::kDynsym && type == STT_NOTYPE)) continue;
    const bool local = ELF64_ST_BIND(raw.st_info) == STB_LOCAL;
    keys_.push_back({raw.st_value, i, table | (local ? file_ : 0)});
  }
  return keys_.size() - before;
}

Elf64_Sym SymbolCollector::entry(const Key& key) const {
  const auto entries = tables_[key.table()].entries;
  return Cursor(entries.subspan(key.index * sizeof(Elf64_Sym))).read<Elf64_Sym>();
}

Symbol SymbolCollector::symbol(const Key& key) const {
  const Table& table = tables_[key.table()];
  const Elf64_Sym raw = entry(key);
  Symbol s;
  s.address = LinkAddr(raw.st_value);
  // A size that wraps around is no size.
  s.size = raw.st_value + raw.st_size < raw.st_value ? 0 : raw.st_size;
  s.name = table_string(table.strings, raw.st_name);
  s.file = key.file();
  s.origin = table.origin;
  const auto type = ELF64_ST_TYPE(raw.st_info);
  s.kind = type == STT_FUNC        ? SymbolKind::kFunction
           : type == STT_GNU_IFUNC ? SymbolKind::kIfunc
                                   : SymbolKind::kUntyped;
  const auto binding = ELF64_ST_BIND(raw.st_info);
  s.binding = binding == STB_LOCAL  ? SymbolBinding::kLocal
              : binding == STB_WEAK ? SymbolBinding::kWeak
                                    : SymbolBinding::kGlobal;
  const auto visibility = ELF64_ST_VISIBILITY(raw.st_other);
  s.hidden = visibility == STV_HIDDEN || visibility == STV_INTERNAL;
  if (table.origin != SymbolOrigin::kDynsym) {
    split_version(s);
  } else if (const SymbolVersion version = dynamic_->version(key.index); !version.name.empty()) {
    // The version's text is in the same string table; find our copy of it.
    const auto at = version.name.data() - reinterpret_cast<const char*>(dynamic_->strings().data());
    s.version = table_string(table.strings, static_cast<std::uint64_t>(at));
    s.default_version = version.is_default;
  }
  if (s.name.find('.') != std::string_view::npos) s.clone = parse_clone_name(s.name).kind;
  return s;
}

std::vector<Symbol> SymbolCollector::merged() {
  std::ranges::sort(keys_, [](const Key& a, const Key& b) {
    return std::tie(a.address, a.origin, a.index) < std::tie(b.address, b.origin, b.index);
  });
  std::vector<Symbol> out;
  out.reserve(keys_.size());
  for (std::size_t i = 0; i < keys_.size();) {
    const std::size_t begin = out.size();
    const std::uint64_t address = keys_[i].address;
    for (; i < keys_.size() && keys_[i].address == address; ++i) {
      // Entries and names are visited out of order.
      if (i + 16 < keys_.size()) {
        const Key& later = keys_[i + 16];
        __builtin_prefetch(&tables_[later.table()].entries[later.index * sizeof(Elf64_Sym)]);
      }
      if (i + 8 < keys_.size()) {
        const auto strings = tables_[keys_[i + 8].table()].strings;
        const std::uint64_t at = entry(keys_[i + 8]).st_name;
        if (at < strings.size()) __builtin_prefetch(&strings[at]);
      }
      const Symbol next = symbol(keys_[i]);
      if (!names_a_function(next.name)) continue;
      // The usual pair: one of .dynsym, one of .symtab.
      if (out.size() == begin + 1 && out.back().name == next.name) {
        absorb(out.back(), next);
      } else {
        out.push_back(next);
      }
    }
    if (out.size() > begin + 1) unite(out, begin);
  }
  return out;
}

}  // namespace trapline::symbols
