#include "symbols/symbol_table.h"

#include <elf.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "symbols/debug_files.h"
#include "symbols/dynamic_symbols.h"
#include "symbols/symbol_collector.h"

namespace trapline::symbols {
namespace {

// Of one f.cold, how many static functions f it is listed for when the file does not tell which.
constexpr std::size_t kMaxNamesakes = 64;

// Untyped symbols count only where no function is: labels inside a function, or other names of one,
// go.
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
std::string_view cold_parent(std::string_view name) { return name.substr(0, name.rfind(".cold")); }

}  // namespace

struct SymbolTable::State {
  struct ColdPart {
    LinkAddr parent;
    AddressRange range;
  };

  std::vector<Symbol> symbols;
  std::vector<LinkAddr> reach;  // reach[i]: the furthest end of symbols[0..i]
  std::vector<ColdPart> cold;   // by parent
  std::vector<Bytes> strings;
  SymbolSources sources;
  mutable std::vector<std::string> demangled;  // as `symbols`; empty: not mangled, or not done yet
  mutable bool demangling_done = false;

  void read_dynamic(const ElfImage& image, SymbolCollector& collector);
  // True: there was a .symtab with functions.
  std::size_t read_static(const ElfImage& image, SymbolOrigin origin, SymbolCollector& collector);
  void read_debug(const ElfImage& image, const SymbolOptions& options, SymbolCollector& collector);
  void index();
  void index_cold();
};

void SymbolTable::State::read_dynamic(const ElfImage& image, SymbolCollector& collector) {
  auto table = DynamicSymbols::read(image);
  if (!table) {
    sources.notes.push_back(table.error().text());
    return;
  }
  auto copy = Bytes::allocate(table->strings().size());
  if (!copy) return;
  std::ranges::copy(table->strings(), copy->span().begin());
  strings.push_back(std::move(*copy));
  const auto names = std::as_const(strings.back()).span();
  sources.dynsym = collector.add_dynamic(std::move(*table), names);
}

std::size_t SymbolTable::State::read_static(const ElfImage& image, SymbolOrigin origin,
                                            SymbolCollector& collector) {
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
  return collector.add_static(std::move(*entries), std::as_const(strings.back()).span(), origin);
}

void SymbolTable::State::read_debug(const ElfImage& image, const SymbolOptions& options,
                                    SymbolCollector& collector) {
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
    // A static function and its cold part come from the same source file. No such one: it is a
    // global's.
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
  SymbolCollector collector(image);
  state->read_dynamic(image, collector);
  state->sources.symtab = state->read_static(image, SymbolOrigin::kSymtab, collector);
  const bool search = options.debug_files == DebugFiles::kSearch;
  if (state->sources.symtab == 0 && search) state->read_debug(image, options, collector);

  state->symbols = collector.merged();
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
