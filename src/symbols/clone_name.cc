// The suffixes GCC and clang give to clones of a function, and demangling. See symbol_table.h.

#include <cxxabi.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "symbols/symbol_table.h"

namespace trapline::symbols {
namespace {

// Longer names are shown as they are: demangling can expand a name without bound.
constexpr std::size_t kMaxDemangled = 4096;

struct Suffix {
  std::string_view text;
  CloneKind kind;
};
constexpr std::array<Suffix, 9> kSuffixes = {{
    {"cold", CloneKind::kCold},
    {"part", CloneKind::kPart},
    {"constprop", CloneKind::kSpecialised},
    {"isra", CloneKind::kSpecialised},
    {"lto_priv", CloneKind::kSpecialised},
    {"llvm", CloneKind::kSpecialised},
    {"specialized", CloneKind::kSpecialised},
    {"clone", CloneKind::kSpecialised},
    {"localalias", CloneKind::kSpecialised},
}};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The kind of the suffix after a dot, e.g. "part"; kNone: not one of a compiler.
CloneKind suffix_kind(std::string_view text) {
  for (const Suffix& s : kSuffixes) {
    if (text == s.text) return s.kind;
  }
  return CloneKind::kNone;
}

}  // namespace

CloneName parse_clone_name(std::string_view name) {
  CloneName out{name, CloneKind::kNone};
  while (true) {
    const std::size_t dot = out.base.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return out;
    std::string_view rest = out.base.substr(0, dot);
    CloneKind kind = suffix_kind(out.base.substr(dot + 1));
    if (kind == CloneKind::kNone && is_number(out.base.substr(dot + 1))) {
      const std::size_t before = rest.rfind('.');
      if (before == std::string_view::npos || before == 0) return out;
      kind = suffix_kind(rest.substr(before + 1));
      rest = rest.substr(0, before);
    }
    if (kind == CloneKind::kNone) return out;
    const bool stronger = out.kind == CloneKind::kNone || kind == CloneKind::kCold ||
                          (kind == CloneKind::kPart && out.kind != CloneKind::kCold);
    if (stronger) out.kind = kind;
    out.base = rest;
  }
}

std::string demangle(std::string_view name) {
  if (!name.starts_with("_Z") || name.size() > kMaxDemangled) return std::string(name);
  const std::string terminated(name);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> out(
      abi::__cxa_demangle(terminated.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && out ? std::string(out.get()) : terminated;
}

}  // namespace trapline::symbols
