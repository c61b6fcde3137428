#include "isa/x86_64/jump_table.h"

#include <Zydis/Mnemonic.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace trapline::isa {
namespace {

constexpr std::size_t kLookBack = 32;         // instructions searched for a definition
constexpr std::size_t kMaxEntries = 1 << 16;  // of one table

constexpr std::uint16_t bit(std::uint8_t reg) {
  return static_cast<std::uint16_t>(1u << (reg & 15));
}

bool is_table_lea(const Instruction& i) {
  return i.mnemonic == ZYDIS_MNEMONIC_LEA && i.reg0 != kNoRegister && i.memory.rip_relative;
}

class Resolver {
 public:
  Resolver(const ModuleCode& module, const FunctionCode& function, const TableBases& bases,
           std::size_t jump, std::size_t budget)
      : module_(module),
        function_(function),
        code_(function.instructions),
        bases_(bases),
        jump_(jump),
        budget_(budget) {}

  JumpTable run() {
    const Instruction& jump = code_[jump_];
    if (jump.memory.present) {
      from_memory(jump.memory, jump_);
    } else if (jump.reg0 != kNoRegister) {
      from_register(jump.reg0, jump_);
    }
    if (out_.entries_read >= budget_) {
      return {.targets = {}, .source = JumpSource::kOther, .entries_read = budget_};
    }
    std::ranges::sort(out_.targets);
    const auto rest = std::ranges::unique(out_.targets);
    out_.targets.erase(rest.begin(), rest.end());
    return std::move(out_);
  }

 private:
  // The nearest instruction before `from` that writes `reg`, in line. Flow that ends in between
  // hides it.
  std::optional<std::size_t> definition(std::uint8_t reg, std::size_t from) const {
    for (std::size_t n = from, steps = 0; n-- > 0 && steps < kLookBack; ++steps) {
      if (code_[n].end() != code_[n + 1].address || code_[n].ends_flow()) return std::nullopt;
      if ((code_[n].writes & bit(reg)) != 0) return n;
    }
    return std::nullopt;
  }

  void from_register(std::uint8_t reg, std::size_t from) {
    for (int moves = 0; moves < 4; ++moves) {
      const auto at = definition(reg, from);
      if (!at) return;
      const Instruction& i = code_[*at];
      if (i.mnemonic == ZYDIS_MNEMONIC_MOV && i.memory.present && i.reg0 == reg) {
        from_memory(i.memory, *at);
        return;
      }
      if (i.mnemonic == ZYDIS_MNEMONIC_MOV && i.reg0 == reg && i.reg1 != kNoRegister) {
        reg = i.reg1;
        from = *at;
        continue;
      }
      if (i.mnemonic == ZYDIS_MNEMONIC_ADD && i.reg0 == reg && i.reg1 != kNoRegister) {
        if (!from_sum(reg, i.reg1, *at)) from_sum(i.reg1, reg, *at);
      }
      return;
    }
  }

  // offset + base, where `offset` was loaded from a table of 4-byte offsets.
  bool from_sum(std::uint8_t offset, std::uint8_t base, std::size_t from) {
    const auto at = definition(offset, from);
    if (!at) return false;
    const Instruction& load = code_[*at];
    if (load.mnemonic != ZYDIS_MNEMONIC_MOVSXD || !load.memory.present || load.memory.scale != 4 ||
        load.memory.index == kNoRegister || load.memory.base == kNoRegister) {
      return false;
    }
    for (const std::uint64_t table : bases(base, *at)) {
      read_offsets(table + static_cast<std::uint64_t>(load.memory.displacement), table,
                   bound(load.memory.index, *at));
    }
    return true;
  }

  void from_memory(const MemoryOperand& memory, std::size_t at) {
    if (memory.segment != 0) return;
    out_.source = JumpSource::kLoadedPointer;
    if (memory.index == kNoRegister || memory.scale != 8) return;
    const auto displacement = static_cast<std::uint64_t>(memory.displacement);
    if (memory.base == kNoRegister) {
      read_addresses(displacement, bound(memory.index, at));
      return;
    }
    for (const std::uint64_t table : bases(memory.base, at)) {
      read_addresses(table + displacement, bound(memory.index, at));
    }
  }

  // The addresses that `reg` may hold: that of the lea before, else those of every lea into it, as
  // compilers load a table's address once, before a loop.
  std::vector<std::uint64_t> bases(std::uint8_t reg, std::size_t from) const {
    const auto at = definition(reg, from);
    if (at && is_table_lea(code_[*at]) && code_[*at].reg0 == reg) return {code_[*at].rip_target};
    return bases_.of_register[reg & 15];
  }

  // Entries that a bounds check before promises; 0: none seen.
  std::size_t bound(std::uint8_t index, std::size_t from) const {
    for (std::size_t n = from, steps = 0; n-- > 0 && steps < kLookBack; ++steps) {
      const Instruction& i = code_[n];
      if (i.mnemonic == ZYDIS_MNEMONIC_CMP && i.reg0 == index && i.has_immediate) {
        if (i.immediate < 0 || i.immediate >= static_cast<std::int64_t>(kMaxEntries)) return 0;
        return static_cast<std::size_t>(i.immediate) + 1;
      }
    }
    return 0;
  }

  // Takes one entry. False: the table has ended. The first entry decides whether this is a table of
  // our labels at all. Later ones may lead to a .cold part that is not known to be ours; so a few
  // in a row that lead out, into code, do not end it.
  bool take(std::uint64_t target, std::size_t index, std::size_t promised) {
    constexpr std::size_t kMaxOutside = 8;
    const LinkAddr a(target);
    const bool inside = function_.contains(a);
    outside_ = inside || index == 0 ? 0 : outside_ + 1;
    if (!inside && (index == 0 || !module_.in_code(a))) return false;
    if (outside_ > kMaxOutside && index >= promised) return false;
    out_.targets.push_back(a);
    return true;
  }

  template <typename Entry, typename Decode>
  void read_table(std::uint64_t table, std::size_t promised, Decode decode_entry) {
    std::array<std::byte, 64 * sizeof(Entry)> block{};
    std::size_t index = 0;
    while (index < kMaxEntries && out_.entries_read < budget_) {
      // Near the end of a section a whole block may not be there; entry by entry then.
      std::size_t count = 64;
      const LinkAddr at(table + index * sizeof(Entry));
      if (!module_.read_data(at, block)) {
        count = 1;
        if (!module_.read_data(at, std::span(block).first(sizeof(Entry)))) return;
      }
      for (std::size_t n = 0; n < count; ++n, ++index) {
        ++out_.entries_read;
        Entry entry{};
        std::memcpy(&entry, block.data() + n * sizeof(Entry), sizeof(Entry));
        if (!take(decode_entry(entry), index, promised)) return;
      }
    }
  }

  void read_offsets(std::uint64_t table, std::uint64_t base, std::size_t promised) {
    read_table<std::int32_t>(table, promised, [base](std::int32_t entry) {
      return base + static_cast<std::uint64_t>(std::int64_t{entry});
    });
  }
  void read_addresses(std::uint64_t table, std::size_t promised) {
    read_table<std::uint64_t>(table, promised, [](std::uint64_t entry) { return entry; });
  }

  const ModuleCode& module_;
  const FunctionCode& function_;
  const std::vector<Instruction>& code_;
  const TableBases& bases_;
  std::size_t jump_;
  std::size_t budget_;
  std::size_t outside_ = 0;
  JumpTable out_;
};

}  // namespace

TableBases collect_table_bases(const FunctionCode& function) {
  TableBases out;
  for (const Instruction& i : function.instructions) {
    if (is_table_lea(i)) out.of_register[i.reg0 & 15].push_back(i.rip_target);
  }
  for (auto& addresses : out.of_register) {
    std::ranges::sort(addresses);
    const auto rest = std::ranges::unique(addresses);
    addresses.erase(rest.begin(), rest.end());
  }
  return out;
}

JumpTable resolve_jump_table(const ModuleCode& module, const FunctionCode& function,
                             const TableBases& bases, std::size_t jump, std::size_t budget) {
  return Resolver(module, function, bases, jump, budget).run();
}

}  // namespace trapline::isa
