// Private to isa: what an indirect jump goes through.
//
// Forms of gcc and clang, in any order of registers and with instructions of others in between:
//   lea T(%rip),%rB; movslq (%rB,%rI,4),%rX; add %rB,%rX; jmp *%rX        PIC: 4-byte offsets from
//   T jmp *T(,%rI,8)        mov T(,%rI,8),%rX; jmp *%rX                     fixed address: 8-byte
//   addresses lea T(%rip),%rB; jmp *(%rB,%rI,8)                                     computed goto
//   in PIC
// The end of a table is not marked. Entries are taken as long as they lead into the function (but
// for a few), and at least as many as a bounds check (cmp $N,%rI) names; too many are harmless, as
// they only forbid windows.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isa/x86_64/control_flow.h"

namespace trapline::isa {

enum class JumpSource : std::uint8_t {
  kLoadedPointer,  // an 8-byte pointer read from memory as a whole
  kOther,          // computed, or its origin is not seen
};

struct JumpTable {
  std::vector<LinkAddr> targets;  // empty: no table was recognised
  JumpSource source = JumpSource::kOther;
  std::size_t entries_read = 0;
};

// The addresses that `lea reg, [rip+x]` puts into each register anywhere in a function.
struct TableBases {
  std::array<std::vector<std::uint64_t>, 16> of_register;
};
TableBases collect_table_bases(const FunctionCode& function);

// Reads at most `budget` entries; where that does not suffice, nothing is resolved. For hostile
// code may name a large table at every jump.
JumpTable resolve_jump_table(const ModuleCode& module, const FunctionCode& function,
                             const TableBases& bases, std::size_t jump, std::size_t budget);

}  // namespace trapline::isa
