#include "symbols/symbol_table.h"

#include <algorithm>
#include <elf.h>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "base/cursor.h"
#include "symbols/code_facts.h"
#include "symbols/debug_files.h"
#include "symbols/dynamic_symbols.h"

namespace trapline::symbols {
namespace {

constexpr std::size_t kMaxSymbols = 1 << 26;
// Of one f.cold, how many static functions f it is listed for when the file does not tell which.
constexpr std::size_t kMaxNamesakes = 64;

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

// Collects the functions of one or more raw tables.
class Collector {
 public:
  explicit Collector(const ElfImage& image)
      : code_(image.code_ranges()), plt_(plt_ranges(image)) {}

  std::vector<Symbol> take() { return std::move(symbols_); }

  std::size_t add_dynamic(const DynamicSymbols& table, std::span<const std::byte> strings) {
    const std::size_t before = symbols_.size();
    symbols_.reserve(before + table.size());
    for (std::size_t i = 1; i < table.size(); ++i) {
      const Elf64_Sym raw = table.symbol(i);
      if (!wanted(raw) || ELF64_ST_TYPE(raw.st_info) == STT_NOTYPE) continue;
      Symbol s = convert(raw, table_string(strings, raw.st_name), SymbolOrigin::kDynsym);
      const SymbolVersion version = table.version(i);
      if (!version.name.empty()) {
        // The version's text is in the same table; find our copy of it.
        const std::ptrdiff_t at =
            version.name.data() - reinterpret_cast<const char*>(table.strings().data());
        s.version = table_string(strings, static_cast<std::uint64_t>(at));
        s.default_version = version.is_default;
      }
      push(s);
    }
    return symbols_.size() - before;
  }

  std::size_t add_static(std::span<const std::byte> entries, std::span<const std::byte> strings,
                         SymbolOrigin origin) {
    const std::size_t before = symbols_.size();
    const std::size_t count = std::min(entries.size() / sizeof(Elf64_Sym), kMaxSymbols);
    symbols_.reserve(before + count);
    for (std::size_t i = 1; i < count; ++i) {
      const auto raw = Cursor(entries.subspan(i * sizeof(Elf64_Sym))).read<Elf64_Sym>();
      if (ELF64_ST_TYPE(raw.st_info) == STT_FILE) {
        ++file_;
        continue;
      }
      if (!wanted(raw)) continue;
      Symbol s = convert(raw, table_string(strings, raw.st_name), origin);
      split_version(s);
      push(s);
    }
    return symbols_.size() - before;
  }

 private:
  bool wanted(const Elf64_Sym& raw) const {
    const auto type = ELF64_ST_TYPE(raw.st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) return false;
    if (raw.st_shndx == SHN_UNDEF || raw.st_name == 0) return false;
    const LinkAddr a(raw.st_value);
    return in_ranges(code_, a) && !in_ranges(plt_, a);
  }

  Symbol convert(const Elf64_Sym& raw, std::string_view name, SymbolOrigin origin) const {
    Symbol s;
    s.address = LinkAddr(raw.st_value);
    // A size that wraps around is no size.
    s.size = raw.st_value + raw.st_size < raw.st_value ? 0 : raw.st_size;
    s.name = name;
    s.origin = origin;
    const auto type = ELF64_ST_TYPE(raw.st_info);
    s.kind = type == STT_FUNC        ? SymbolKind::kFunction
             : type == STT_GNU_IFUNC ? SymbolKind::kIfunc
                                     : SymbolKind::kUntyped;
    const auto binding = ELF64_ST_BIND(raw.st_info);
    s.binding = binding == STB_LOCAL  ? SymbolBinding::kLocal
                : binding == STB_WEAK ? SymbolBinding::kWeak
                                      : SymbolBinding::kGlobal;
    if (s.binding == SymbolBinding::kLocal) s.file = file_;
    const auto visibility = ELF64_ST_VISIBILITY(raw.st_other);
    s.hidden = visibility == STV_HIDDEN || visibility == STV_INTERNAL;
    return s;
  }

  // .symtab writes versions into names: memcpy@@GLIBC_2.14, memcpy@GLIBC_2.2.5.
  static void split_version(Symbol& s) {
    const std::size_t at = s.name.find('@');
    if (at == std::string_view::npos || at == 0) return;
    std::string_view version = s.name.substr(at + 1);
    s.default_version = version.starts_with('@');
    if (s.default_version) version.remove_prefix(1);
    s.version = version;
    s.name = s.name.substr(0, at);
  }

  void push(Symbol& s) {
    // Names that begin with a dot are markers of tools (annobin, local labels), not functions.
    if (s.name.empty() || s.name.front() == '.' || s.name.front() == '$') return;
    if (s.name.find('.') != std::string_view::npos) s.clone = parse_clone_name(s.name).kind;
    symbols_.push_back(s);
  }

  std::vector<AddressRange> code_;
  std::vector<AddressRange> plt_;
  std::vector<Symbol> symbols_;
  std::uint32_t file_ = 0;
};

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

// By address, and within one address as unite() has it. Numbers are sorted first and names only within a group:
// comparing the names of all would take most of the time.
std::vector<Symbol> merge(const std::vector<Symbol>& raw) {
  struct Key {
    std::uint64_t address;
    std::uint32_t index;
  };
  std::vector<Key> keys;
  keys.reserve(raw.size());
  for (std::uint32_t i = 0; i < raw.size(); ++i) keys.push_back({raw[i].address.value(), i});
  std::ranges::sort(keys, [](const Key& a, const Key& b) {
    return a.address != b.address ? a.address < b.address : a.index < b.index;
  });
  std::vector<Symbol> out;
  out.reserve(raw.size());
  for (std::size_t i = 0; i < keys.size();) {
    const std::size_t begin = out.size();
    const std::uint64_t address = keys[i].address;
    for (; i < keys.size() && keys[i].address == address; ++i) {
      // Both the symbols and their names are visited out of order.
      if (i + 16 < keys.size()) __builtin_prefetch(&raw[keys[i + 16].index]);
      if (i + 8 < keys.size()) __builtin_prefetch(raw[keys[i + 8].index].name.data());
      const Symbol& next = raw[keys[i].index];
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

// Untyped symbols count only where no function is: labels inside a function, or other names of one, go.
void drop_labels(std::vector<Symbol>& symbols) {
  const auto is_function = [](const Symbol& s) { return s.kind != SymbolKind::kUntyped; };
  std::vector<char> drop(symbols.size(), 0);
  LinkAddr covered;
  for (std::size_t i = 0; i < symbols.size();) {
    std::size_t end = i;
    bool typed = false;
    LinkAddr reach = covered;
    for (; end < symbols.size() && symbols[end].address == symbols[i].address; ++end) {
      if (!is_function(symbols[end])) continue;
      typed = true;
      reach = std::max(reach, symbols[end].range().end);
    }
    for (std::size_t k = i; k < end; ++k) {
      drop[k] = !is_function(symbols[k]) && (typed || symbols[k].address < covered);
    }
    covered = reach;
    i = end;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (drop[i] == 0) symbols[kept++] = symbols[i];
  }
  symbols.resize(kept);
}

void guess_sizes(std::vector<Symbol>& symbols, std::span<const AddressRange> code) {
  for (std::size_t i = symbols.size(), next = i; i-- > 0;) {
    if (i + 1 < symbols.size() && symbols[i + 1].address != symbols[i].address) next = i + 1;
    Symbol& s = symbols[i];
    if (s.size != 0) continue;
    const auto range = std::ranges::upper_bound(code, s.address, {}, &AddressRange::begin);
    if (range == code.begin()) continue;
    LinkAddr end = std::prev(range)->end;
    if (next < symbols.size()) end = std::min(end, symbols[next].address);
    s.size = end > s.address ? end - s.address : 0;
    s.size_guessed = true;
  }
}

// "f" of "f.cold" and "f.cold.3"; stacked suffixes such as "f.part.0.cold" belong to "f.part.0".
std::string_view cold_parent(std::string_view name) {
  return name.substr(0, name.rfind(".cold"));
}

}  // namespace

struct SymbolTable::State {
  struct ColdPart {
    LinkAddr parent;
    AddressRange range;
  };

  std::vector<Symbol> symbols;
  std::vector<LinkAddr> reach;    // reach[i]: the furthest end of symbols[0..i]
  std::vector<ColdPart> cold;     // by parent
  std::vector<Bytes> strings;
  SymbolSources sources;
  mutable std::vector<std::string> demangled;  // as `symbols`; empty: not mangled, or not done yet
  mutable bool demangling_done = false;

  void read_dynamic(const ElfImage& image, Collector& collector);
  // True: there was a .symtab with functions.
  std::size_t read_static(const ElfImage& image, SymbolOrigin origin, Collector& collector);
  void read_debug(const ElfImage& image, const SymbolOptions& options, Collector& collector);
  void index();
  void index_cold();
};

void SymbolTable::State::read_dynamic(const ElfImage& image, Collector& collector) {
  auto table = DynamicSymbols::read(image);
  if (!table) {
    sources.notes.push_back(table.error().text());
    return;
  }
  auto copy = Bytes::allocate(table->strings().size());
  if (!copy) return;
  std::ranges::copy(table->strings(), copy->span().begin());
  strings.push_back(std::move(*copy));
  sources.dynsym = collector.add_dynamic(*table, std::as_const(strings.back()).span());
}

std::size_t SymbolTable::State::read_static(const ElfImage& image, SymbolOrigin origin,
                                            Collector& collector) {
  const auto& sections = image.sections();
  const auto table = std::ranges::find(sections, std::uint32_t{SHT_SYMTAB}, &Section::type);
  if (table == sections.end()) return 0;
  if (table->link >= sections.size()) {
    sources.notes.push_back(image.name() + ": .symtab has no string table");
    return 0;
  }
  auto names = image.copy_section(sections[table->link]);
  auto entries = image.copy_section(*table);
  if (!names || !entries) {
    sources.notes.push_back((!names ? names.error() : entries.error()).text());
    return 0;
  }
  strings.push_back(std::move(*names));
  return collector.add_static(std::as_const(*entries).span(),
                              std::as_const(strings.back()).span(), origin);
}

void SymbolTable::State::read_debug(const ElfImage& image, const SymbolOptions& options,
                                    Collector& collector) {
  auto found = find_debug_file(image, options.path.empty() ? image.name() : options.path,
                               options.root_prefix);
  std::ranges::move(found.notes, std::back_inserter(sources.notes));
  if (found.file) {
    sources.debug_file = read_static(*found.file, SymbolOrigin::kDebugFile, collector);
    sources.debug_path = found.path;
    if (sources.debug_file > 0) return;
  }
  const Section* data = image.find_section(".gnu_debugdata");
  if (data == nullptr) return;
  auto mini = read_debug_data(image, *data);
  if (!mini) {
    sources.notes.push_back(mini.error().text());
    return;
  }
  sources.debug_data = read_static(*mini, SymbolOrigin::kDebugData, collector);
}

void SymbolTable::State::index() {
  reach.reserve(symbols.size());
  LinkAddr furthest;
  for (const Symbol& s : symbols) {
    furthest = std::max(furthest, s.range().end);
    reach.push_back(furthest);
  }
  index_cold();
}

void SymbolTable::State::index_cold() {
  std::unordered_map<std::string_view, std::vector<const Symbol*>> parents;
  for (const Symbol& s : symbols) {
    if (s.clone == CloneKind::kCold) parents.try_emplace(cold_parent(s.name));
  }
  if (parents.empty()) return;
  for (const Symbol& s : symbols) {
    if (s.clone == CloneKind::kCold) continue;
    if (const auto it = parents.find(s.name); it != parents.end()) it->second.push_back(&s);
  }
  for (const Symbol& s : symbols) {
    if (s.clone != CloneKind::kCold) continue;
    const auto& candidates = parents.find(cold_parent(s.name))->second;
    // A static function and its cold part come from the same source file. No such one: it is a global's.
    const auto same_file = [&](const Symbol* c) { return c->file != 0 && c->file == s.file; };
    const auto is_global = [](const Symbol* c) { return c->binding != SymbolBinding::kLocal; };
    const bool by_file = std::ranges::any_of(candidates, same_file);
    const bool by_global = !by_file && std::ranges::any_of(candidates, is_global);
    std::size_t listed = 0;
    for (const Symbol* c : candidates) {
      if ((by_file && !same_file(c)) || (by_global && !is_global(c))) continue;
      if (++listed > kMaxNamesakes) break;
      cold.push_back({c->address, s.range()});
    }
  }
  std::ranges::sort(cold, [](const ColdPart& a, const ColdPart& b) {
    return std::tie(a.parent, a.range) < std::tie(b.parent, b.range);
  });
}

SymbolTable::SymbolTable(std::unique_ptr<State> state) : state_(std::move(state)) {}
SymbolTable::SymbolTable(SymbolTable&&) noexcept = default;
SymbolTable& SymbolTable::operator=(SymbolTable&&) noexcept = default;
SymbolTable::~SymbolTable() = default;

Result<SymbolTable> SymbolTable::read(const ElfImage& image, const SymbolOptions& options) {
  auto state = std::make_unique<State>();
  Collector collector(image);
  state->read_dynamic(image, collector);
  state->sources.symtab = state->read_static(image, SymbolOrigin::kSymtab, collector);
  const bool search = options.debug_files == DebugFiles::kSearch;
  if (state->sources.symtab == 0 && search) state->read_debug(image, options, collector);

  state->symbols = merge(collector.take());
  drop_labels(state->symbols);
  guess_sizes(state->symbols, image.code_ranges());
  state->index();
  return SymbolTable(std::move(state));
}

std::span<const Symbol> SymbolTable::symbols() const { return state_->symbols; }
const SymbolSources& SymbolTable::sources() const { return state_->sources; }

std::span<const Symbol> SymbolTable::at(LinkAddr address) const {
  const auto found = std::ranges::equal_range(state_->symbols, address, {}, &Symbol::address);
  return {found.begin(), found.end()};
}

const Symbol* SymbolTable::containing(LinkAddr address) const {
  const auto& all = state_->symbols;
  const auto next = std::ranges::upper_bound(all, address, {}, &Symbol::address);
  for (auto i = static_cast<std::size_t>(next - all.begin()); i > 0;) {
    if (state_->reach[i - 1] <= address) return nullptr;
    // The group of names at one address, best first.
    const auto group = at(all[i - 1].address);
    for (const Symbol& s : group) {
      if (s.range().contains(address)) return &s;
    }
    i -= group.size();
  }
  return nullptr;
}

std::vector<const Symbol*> SymbolTable::named(std::string_view name) const {
  std::vector<const Symbol*> out;
  for (const Symbol& s : state_->symbols) {
    if (s.name == name) out.push_back(&s);
  }
  return out;
}

std::vector<const Symbol*> SymbolTable::matching(const Glob& glob) const {
  if (glob.is_literal()) return named(glob.literal());
  std::vector<const Symbol*> out;
  for (const Symbol& s : state_->symbols) {
    if (s.kind != SymbolKind::kUntyped && glob.matches(s.name)) out.push_back(&s);
  }
  return out;
}

std::vector<const Symbol*> SymbolTable::matching_demangled(const Glob& glob) const {
  auto& texts = state_->demangled;
  if (!state_->demangling_done) {
    texts.resize(state_->symbols.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (state_->symbols[i].name.starts_with("_Z")) texts[i] = demangle(state_->symbols[i].name);
    }
    state_->demangling_done = true;
  }
  std::vector<const Symbol*> out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Symbol& s = state_->symbols[i];
    const std::string_view text = texts[i].empty() ? s.name : std::string_view(texts[i]);
    if ((s.kind != SymbolKind::kUntyped || glob.is_literal()) && glob.matches(text)) {
      out.push_back(&s);
    }
  }
  return out;
}

std::vector<AddressRange> SymbolTable::cold_parts(const Symbol& function) const {
  const auto found =
      std::ranges::equal_range(state_->cold, function.address, {}, &State::ColdPart::parent);
  std::vector<AddressRange> out;
  for (const auto& part : found) {
    if (out.empty() || out.back() != part.range) out.push_back(part.range);
  }
  return out;
}

}  // namespace trapline::symbols
