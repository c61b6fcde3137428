#include "isa/x86_64/go_prologue.h"

#include <algorithm>

namespace trapline::isa {

namespace {

constexpr std::uint8_t kRsp = 4, kR14 = 14;
constexpr std::uint8_t kBelow = 2, kBelowOrEqual = 6;  // conditions of jb, jbe
constexpr std::int64_t kLimit = 16;                    // of g
constexpr std::int64_t kG = -8;                        // from fs on
constexpr std::size_t kLongest = 6;                    // instructions of a check

bool writes_only(const Instruction& i, std::uint8_t reg) { return i.writes == 1u << reg; }

bool is_load_of_g(const Instruction& i) {
  return i.kind == Kind::kPlain && i.memory.present && i.memory.segment == 'f' &&
         i.memory.base == kNoRegister && i.memory.displacement == kG && i.reg0 != kNoRegister &&
         writes_only(i, i.reg0);
}

// cmp LOWEST, [g+16]
bool is_compare(const Instruction& i, std::uint8_t lowest, std::uint8_t g) {
  return i.kind == Kind::kPlain && i.writes_flags && i.writes == 0 && i.reg0 == lowest &&
         i.memory.present && i.memory.base == g && i.memory.index == kNoRegister &&
         i.memory.displacement == kLimit;
}

// lea REG, [rsp-N] or mov REG, rsp
bool is_copy_of_rsp(const Instruction& i) {
  const bool reads_rsp = (i.reads & 1u << kRsp) != 0;
  return i.kind == Kind::kPlain && !i.writes_flags && reads_rsp && i.reg0 != kNoRegister &&
         i.reg0 != kRsp && writes_only(i, i.reg0);
}

bool is_inside(const FunctionCode& function, std::uint64_t target) {
  return std::ranges::any_of(function.parts, [&](const CodeRange& part) {
    return part.strictly_contains(LinkAddr(target));
  });
}

}  // namespace

std::optional<GoEntry> go_entry(const FunctionCode& function) {
  const auto& code = function.instructions;
  if (function.parts.empty() || code.empty() ||
      code.front().address != function.parts.front().begin.value()) {
    return std::nullopt;
  }
  PointKind kind = PointKind::kGoEntry;
  std::uint8_t g = kR14, lowest = kRsp;
  for (std::size_t n = 0; n < std::min(code.size() - 1, kLongest); ++n) {
    const Instruction& i = code[n];
    if (is_load_of_g(i) && n == 0) {
      kind = PointKind::kGoStackEntry;
      g = i.reg0;
    } else if (is_compare(i, lowest, g)) {
      const Instruction& jump = code[n + 1];
      const bool leaves = jump.kind == Kind::kJumpConditional && jump.condition == kBelowOrEqual &&
                          is_inside(function, jump.target);
      if (!leaves) return std::nullopt;
      return GoEntry{LinkAddr(jump.end()), kind};
    } else if (is_copy_of_rsp(i) && lowest == kRsp) {
      lowest = i.reg0;
    } else {
      const bool subtracts = i.kind == Kind::kPlain && lowest != kRsp && i.has_immediate &&
                             writes_only(i, lowest) && i.reg0 == lowest;
      const bool wrapped = i.kind == Kind::kJumpConditional && i.condition == kBelow;
      if (!subtracts && !wrapped) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace trapline::isa
