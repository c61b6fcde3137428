#include "probes/usdt_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>

#include "symbols/glob.h"
#include "symbols/usdt_notes.h"

namespace trapline::probes {

namespace {

using symbols::Symbol;
using symbols::UsdtNote;

std::string shown_name(std::string_view noted) {
  std::string name;
  for (std::size_t i = 0; i < noted.size(); ++i) {
    const bool dash = noted.substr(i).starts_with("__");
    name += dash ? '-' : noted[i];
    if (dash) ++i;
  }
  return name;
}

// What contains the address; without a symbol, by unwind information; else nothing.
Symbol function_around(const symbols::SymbolTable* table, const symbols::CodeFacts& facts,
                       LinkAddr at) {
  if (table != nullptr) {
    if (const Symbol* symbol = table->containing(at)) return *symbol;
  }
  const std::vector<symbols::AddressRange>& functions = facts.frames.functions;
  const auto next = std::ranges::upper_bound(functions, at, {}, &symbols::AddressRange::begin);
  Symbol unnamed;
  if (next == functions.begin() || !std::prev(next)->contains(at)) return unnamed;
  unnamed.address = std::prev(next)->begin;
  unnamed.size = std::prev(next)->size();
  unnamed.binding = symbols::SymbolBinding::kLocal;
  return unnamed;
}

std::string function_name(const Symbol& symbol) {
  const bool cold = symbol.clone == symbols::CloneKind::kCold;
  return std::string(cold ? symbols::parse_clone_name(symbol.name).base : symbol.name);
}

class NoteMatcher {
 public:
  NoteMatcher(ModuleCache& modules, std::size_t index, const UsdtPattern& pattern, Pid pid)
      : modules_(modules),
        index_(index),
        pid_(std::to_string(pid.value)),
        provider_(pattern.provider),
        function_(pattern.function),
        name_(pattern.name),
        demangled_(pattern.demangled || pattern.function.find("::") != std::string::npos ||
                   pattern.function.find('(') != std::string::npos) {}

  std::vector<MatchedFunction> run() {
    const symbols::ElfImage& image = *modules_.module(index_).image;
    for (const UsdtNote& note : symbols::read_usdt_notes(image)) {
      if (!provider_.matches(std::string(note.provider) + pid_)) continue;
      const std::string name = shown_name(note.name);
      if (name_.matches(name) || name_.matches(note.name)) add(image, note, name);
    }
    std::vector<MatchedFunction> found;
    for (auto& [key, function] : functions_) found.push_back(std::move(function));
    std::ranges::sort(found, {}, [](const MatchedFunction& f) { return f.usdt->sites[0]->at; });
    return found;
  }

 private:
  void add(const symbols::ElfImage& image, const UsdtNote& note, const std::string& name) {
    const auto table = modules_.symbol_table(index_);
    const Symbol around =
        function_around(table ? *table : nullptr, modules_.code_facts(index_), note.site);
    const std::string function = function_name(around);
    if (!function_.matches(demangled_ ? symbols::demangle(function) : function)) return;
    MatchedFunction& matched = functions_[{std::string(note.provider), function, name}];
    matched.module = index_;
    matched.name = function;
    matched.points = {{PointKind::kUsdt}};
    if (!matched.usdt) matched.usdt = UsdtProbe{std::string(note.provider), name, {}};
    matched.usdt->sites.push_back(std::make_shared<const UsdtSite>(site_of(image, note, around)));
  }

  static UsdtSite site_of(const symbols::ElfImage& image, const UsdtNote& note,
                          const Symbol& around) {
    UsdtSite site;
    site.at = note.site;
    site.function = around;
    site.semaphore = note.semaphore;
    const auto find = [&](std::string_view name) { return symbols::find_object(image, name); };
    for (const std::string_view text : isa::split_operands(note.arguments)) {
      site.types.emplace_back(isa::type_of_operand(text).value_or(""));
      const auto operand = isa::parse_operand(text, note.site, find);
      if (operand) {
        site.operands.push_back(*operand);
      } else if (site.problem.empty()) {
        site.problem =
            fmt::format("argument {}: {}", site.types.size() - 1, operand.error().text());
      }
    }
    if (!has_counter(image, note.semaphore))
      site.problem = "its semaphore is in no memory of the module's that can be written";
    return site;
  }

  static bool has_counter(const symbols::ElfImage& image, LinkAddr semaphore) {
    if (semaphore == LinkAddr()) return true;
    const symbols::Segment* segment = image.segment_of(semaphore);
    return segment != nullptr && segment->writable && semaphore.value() % 2 == 0 &&
           segment->memory.end - semaphore >= 2;
  }

  ModuleCache& modules_;
  std::size_t index_;
  std::string pid_;
  symbols::Glob provider_, function_, name_;
  bool demangled_;
  std::map<std::tuple<std::string, std::string, std::string>, MatchedFunction> functions_;
};

}  // namespace

PatternMatches match_usdt(ModuleCache& modules, const UsdtPattern& pattern, Pid pid,
                          std::span<const std::size_t> which) {
  PatternMatches matches;
  for (const std::size_t i : which) {
    if (!symbols::module_matches(pattern.module, modules.module(i))) continue;
    std::vector<MatchedFunction> found = NoteMatcher(modules, i, pattern, pid).run();
    if (found.empty()) continue;
    matches.modules.push_back({i, found.size()});
    std::ranges::move(found, std::back_inserter(matches.functions));
  }
  return matches;
}

bool has_usdt_provider(ModuleCache& modules, const std::string& provider,
                       std::span<const std::size_t> which) {
  return std::ranges::any_of(which, [&](std::size_t i) {
    const std::vector<UsdtNote> notes = symbols::read_usdt_notes(*modules.module(i).image);
    return std::ranges::any_of(notes,
                               [&](const UsdtNote& note) { return note.provider == provider; });
  });
}

}  // namespace trapline::probes
