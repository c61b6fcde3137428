#include "probes/pid_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>

#include "probes/instruction_offsets.h"
#include "symbols/glob.h"

namespace trapline::probes {

namespace {

using symbols::Symbol;
using symbols::SymbolKind;

bool is_demangled_pattern(std::string_view pattern) {
  return pattern.find("::") != std::string_view::npos ||
         pattern.find('(') != std::string_view::npos;
}

bool is_function(const Symbol& symbol) { return symbol.clone != symbols::CloneKind::kCold; }

// The symbol of an IFUNC's implementation, under the IFUNC's name.
Symbol implementation_symbol(const symbols::SymbolTable& table, LinkAddr address,
                             std::string_view name) {
  const auto known = table.at(address);
  Symbol symbol;
  if (!known.empty()) {
    symbol = known.front();
  } else if (const Symbol* around = table.containing(address)) {
    symbol = *around;
    symbol.size -= address - symbol.address;
  }
  symbol.address = address;
  symbol.name = name;
  symbol.kind = SymbolKind::kFunction;
  return symbol;
}

// Functions by address of one module, as one pattern finds them.
class ModuleMatcher {
 public:
  ModuleMatcher(ModuleCache& modules, std::size_t index, const symbols::SymbolTable& table)
      : modules_(modules), index_(index), table_(table) {}

  std::vector<MatchedFunction> match(const FunctionPattern& wanted) {
    const std::string& pattern = wanted.function;
    const symbols::Glob glob(pattern);
    if (wanted.demangled || is_demangled_pattern(pattern)) {
      for (const Symbol* symbol : table_.matching_demangled(glob)) {
        if (is_function(*symbol)) add(std::string(symbol->name), *symbol, {});
      }
    } else if (glob.is_literal()) {
      match_name(glob.literal());
    } else {
      match_glob(glob);
    }
    std::vector<MatchedFunction> found;
    for (auto& [name, function] : functions_) found.push_back(std::move(function));
    std::ranges::sort(found, {}, [](const MatchedFunction& f) { return f.places.front().address; });
    return found;
  }

 private:
  void match_name(const std::string& name) {
    for (const Symbol* symbol : table_.named(name)) {
      if (!is_function(*symbol)) continue;
      if (symbol->kind == SymbolKind::kIfunc) {
        add_ifunc(name);
      } else {
        add(name, *symbol, {});
      }
    }
  }

  // Each address once: the IFUNC's name before the implementation's own, then the preferred symbol
  // that matches.
  void match_glob(const symbols::Glob& glob) {
    std::vector<LinkAddr> taken;
    for (const Symbol* symbol : table_.matching(glob)) {
      if (symbol->kind == SymbolKind::kIfunc) {
        for (const LinkAddr address :
             add_ifunc(std::string(symbol->name), Sharing::kFirstNameOnly)) {
          taken.push_back(address);
        }
      }
    }
    std::ranges::sort(taken);
    LinkAddr last{~std::uint64_t{0}};
    for (const Symbol* symbol : table_.matching(glob)) {
      if (symbol->kind != SymbolKind::kFunction || !is_function(*symbol)) continue;
      if (symbol->address == last || std::ranges::binary_search(taken, symbol->address)) continue;
      last = symbol->address;
      add(std::string(symbol->name), *symbol, {});
    }
  }

  enum class Sharing : std::uint8_t { kEveryName, kFirstNameOnly };

  // Adds the implementations of the IFUNC `name`; returns their addresses.
  std::vector<LinkAddr> add_ifunc(const std::string& name, Sharing sharing = Sharing::kEveryName) {
    std::vector<LinkAddr> added;
    for (const symbols::IfuncChoice& choice : modules_.ifuncs(index_)) {
      if (choice.name != name) continue;
      for (const RemoteAddr chosen : choice.implementations) {
        if (modules_.containing(chosen) != index_) {
          unknown_ifuncs_.push_back(
              fmt::format("{} is the kernel's own here (vDSO), which cannot be probed", name));
          continue;
        }
        const LinkAddr address = modules_.module(index_).bias.to_link(chosen);
        if (sharing == Sharing::kFirstNameOnly &&
            std::ranges::find(ifunc_places_, address) != ifunc_places_.end()) {
          continue;
        }
        ifunc_places_.push_back(address);
        added.push_back(address);
        add(name, implementation_symbol(table_, address, name), choice.note);
      }
      if (choice.implementations.empty()) {
        unknown_ifuncs_.push_back(
            fmt::format("{} is chosen at run time and has not been: {}", name, choice.note));
      }
    }
    return added;
  }

  bool is_there(LinkAddr address) const {
    const symbols::Module& module = modules_.module(index_);
    return !module.is_part ||
           std::ranges::any_of(module.text, [&](const symbols::RemoteRange& text) {
             return text.contains(module.bias.to_remote(address));
           });
  }

  void add(std::string name, const Symbol& symbol, const std::string& note) {
    if (!is_there(symbol.address)) return;
    MatchedFunction& function = functions_[name];
    function.module = index_;
    function.name = std::move(name);
    if (function.note.empty()) function.note = note;
    const bool known = std::ranges::any_of(
        function.places, [&](const Symbol& place) { return place.address == symbol.address; });
    if (!known) function.places.push_back(symbol);
  }

 public:
  const std::vector<std::string>& unknown_ifuncs() const { return unknown_ifuncs_; }

 private:
  ModuleCache& modules_;
  std::size_t index_;
  const symbols::SymbolTable& table_;
  std::map<std::string, MatchedFunction> functions_;
  std::vector<LinkAddr> ifunc_places_;
  std::vector<std::string> unknown_ifuncs_;
};

// The points that a description's name part asks for.
struct WantedPoints {
  bool entry = false;
  bool returns = false;
  std::optional<symbols::Glob> offsets;  // of every instruction, as text
  std::optional<std::uint64_t> offset;

  bool fixed_only() const { return !offsets && !offset; }
};

Result<WantedPoints> wanted_points(const std::string& name) {
  const symbols::Glob glob(name);
  WantedPoints wanted{glob.matches("entry"), glob.matches("return"), {}, {}};
  if (!glob.is_literal()) {
    wanted.offsets = glob;
  } else if (!wanted.entry && !wanted.returns) {
    const std::string& digits = glob.literal();
    const std::string_view bare =
        digits.starts_with("0x") ? std::string_view(digits).substr(2) : std::string_view(digits);
    std::uint64_t offset = 0;
    const auto end = std::from_chars(bare.data(), bare.data() + bare.size(), offset, 16);
    if (end.ec != std::errc() || end.ptr != bare.data() + bare.size())
      return Error(ErrorCode::kBadInput, fmt::format("'{}' is an invalid probe name", name));
    wanted.offset = offset;
  }
  return wanted;
}

// What a function has of the wanted points.
std::vector<ProbePoint> points_of(const MatchedFunction& function, const WantedPoints& wanted,
                                  InstructionOffsets& instructions) {
  std::vector<ProbePoint> points;
  if (wanted.entry) points.push_back({PointKind::kEntry});
  if (wanted.returns) points.push_back({PointKind::kReturn});
  if (wanted.fixed_only()) return points;
  for (const std::uint64_t offset : instructions.of(function)) {
    const bool meant = wanted.offset ? offset == *wanted.offset
                                     : wanted.offsets->matches(fmt::format("{:x}", offset));
    if (meant) points.push_back({PointKind::kOffset, offset});
  }
  return points;
}

// Why no function of that name has an instruction there.
Error no_instruction(const MatchedFunction& function, std::uint64_t offset) {
  const bool outside = std::ranges::all_of(
      function.places, [&](const Symbol& place) { return offset >= place.size; });
  if (outside)
    return {ErrorCode::kNotFound,
            fmt::format("offset {:#x} outside of function '{}'", offset, function.name)};
  return {ErrorCode::kNotFound,
          fmt::format("offset {:#x} is not aligned on an instruction of function '{}'", offset,
                      function.name)};
}

}  // namespace

std::string point_name(const ProbePoint& point) {
  switch (point.kind) {
    case PointKind::kEntry:
      return "entry";
    case PointKind::kReturn:
      return "return";
    case PointKind::kUsdt:
      return "";
    case PointKind::kOffset:
      break;
  }
  return fmt::format("{:x}", point.offset);
}

Result<PatternMatches> match_functions(ModuleCache& modules, const FunctionPattern& pattern) {
  return match_functions(modules, pattern, modules.mapped());
}

Result<PatternMatches> match_functions(ModuleCache& modules, const FunctionPattern& pattern,
                                       std::span<const std::size_t> which) {
  PatternMatches matches;
  TL_TRY_ASSIGN(const WantedPoints wanted, wanted_points(pattern.name));
  std::optional<Error> misplaced;
  for (const std::size_t i : which) {
    if (!symbols::module_matches(pattern.module, modules.module(i))) continue;
    const auto table = modules.symbol_table(i);
    if (!table) {
      matches.problems.push_back(table.error());
      continue;
    }
    ModuleMatcher matcher(modules, i, **table);
    std::vector<MatchedFunction> found = matcher.match(pattern);
    for (const std::string& text : matcher.unknown_ifuncs()) {
      matches.problems.emplace_back(ErrorCode::kNotFound, text);
    }
    InstructionOffsets instructions(modules, i, **table);
    for (MatchedFunction& function : found) {
      function.points = points_of(function, wanted, instructions);
      if (function.points.empty() && wanted.offset && !misplaced)
        misplaced = no_instruction(function, *wanted.offset);
    }
    std::erase_if(found, [](const MatchedFunction& function) { return function.points.empty(); });
    if (found.empty()) continue;
    matches.modules.push_back({i, found.size()});
    std::ranges::move(found, std::back_inserter(matches.functions));
  }
  // A pattern of functions means those that have an instruction there.
  if (matches.functions.empty() && misplaced && symbols::Glob(pattern.function).is_literal())
    return *misplaced;
  return matches;
}

}  // namespace trapline::probes
