// The module part of a probe description. See modules.h.

#include <algorithm>
#include <array>
#include <cctype>

#include "symbols/modules.h"

namespace trapline::symbols {
namespace {

constexpr std::array<std::string_view, 3> kVdsoNames = {"linux-vdso", "vdso", "[vdso]"};

std::string_view last_component(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "LM0`libc.so.6": link-map ids select a namespace of dlmopen(); names are matched in all of them.
std::string_view without_link_map(std::string_view pattern) {
  if (!pattern.starts_with("LM")) return pattern;
  const std::size_t tick = pattern.find('`');
  if (tick == std::string_view::npos || tick == 2) return pattern;
  const std::string_view id = pattern.substr(2, tick - 2);
  if (id.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) return pattern;
  return pattern.substr(tick + 1);
}

bool literal_matches(std::string_view wanted, const Module& module) {
  if (module.role == ModuleRole::kExecutable && wanted == "a.out") return true;
  if (module.role == ModuleRole::kVdso &&
      std::ranges::find(kVdsoNames, wanted) != kVdsoNames.end()) {
    return true;
  }
  const auto shorts = short_module_names(module.name);
  return std::ranges::find(shorts, wanted) != shorts.end();
}

}  // namespace

std::vector<std::string_view> short_module_names(std::string_view name) {
  std::vector<std::string_view> out;
  const std::size_t suffix = name.find(".so");
  const bool is_library = suffix != std::string_view::npos && suffix > 0 &&
                          (suffix + 3 == name.size() || name[suffix + 3] == '.');
  if (!is_library) return out;
  out.push_back(name.substr(0, suffix));
  // libc-2.31 -> libc. The version begins with a digit; libpng-dev keeps its dash.
  const std::string_view base = out.back();
  const std::size_t dash = base.rfind('-');
  if (dash != std::string_view::npos && dash > 0 && dash + 1 < base.size() &&
      std::isdigit(static_cast<unsigned char>(base[dash + 1])) != 0 &&
      base.find_first_not_of("0123456789.", dash + 1) == std::string_view::npos) {
    out.push_back(base.substr(0, dash));
  }
  return out;
}

bool module_matches(std::string_view pattern, const Module& module) {
  pattern = without_link_map(pattern);
  if (pattern.empty()) return true;
  const std::string_view base = last_component(module.path);
  // As written first: "[vdso]" is a set of characters only for a matcher.
  if (pattern == module.path || pattern == base || pattern == module.name) return true;
  if (literal_matches(pattern, module)) return true;
  const Glob glob(pattern);
  if (glob.is_literal()) {
    const std::string& text = glob.literal();
    return text == module.path || text == base || text == module.name ||
           literal_matches(text, module);
  }
  return glob.matches(base) || glob.matches(module.name) || glob.matches(module.path);
}

}  // namespace trapline::symbols
