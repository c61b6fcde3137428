// For tests only: a module made of a few bytes.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "isa/x86_64/site.h"

namespace trapline::isa {

inline constexpr std::uint64_t kBase = 0x401000;

inline std::vector<std::byte> make_bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

inline std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto v = std::to_integer<unsigned>(b);
    if (!out.empty()) out += ' ';
    out += kDigits[v >> 4];
    out += kDigits[v & 15];
  }
  return out;
}

// Code at kBase, whose first `size` bytes (all, if 0) are a function.
class TestModule {
 public:
  explicit TestModule(std::initializer_list<int> code, std::size_t size = 0, ModuleInput input = {})
      : bytes_(make_bytes(code)) {
    const CodeRange range{LinkAddr(kBase), LinkAddr(kBase + (size != 0 ? size : bytes_.size()))};
    input.sections.push_back({LinkAddr(kBase), bytes_});
    input.functions.push_back(range);
    module_ = std::make_unique<ModuleCode>(std::move(input));
    function_ = analyze_function(*module_, range);
  }
  const ModuleCode& module() const { return *module_; }
  const FunctionCode& function() const { return function_; }

  SiteSet plan_all() const {
    std::vector<PointRequest> points{entry_point(function_, 1)};
    for (const PointRequest& p : exit_points(function_, 2)) points.push_back(p);
    return plan_sites(*module_, points);
  }
  SiteSet plan(std::uint64_t offset, PointKind kind) const {
    const PointRequest point{.at = LinkAddr(kBase + offset), .kind = kind, .function = &function_};
    return plan_sites(*module_, std::span(&point, 1));
  }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<ModuleCode> module_;
  FunctionCode function_;
};

}  // namespace trapline::isa
