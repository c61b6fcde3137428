// A fast length decoder, for the sweep over all code of a module.
//
// The problem: node has 43 MB of text; Zydis, which decodes everything about an instruction, takes
// seconds for it. The sweep needs lengths and relative branches only. The approach: a table of one
// byte an opcode says whether a ModRM byte and which immediate follow; prefixes, REX, VEX and EVEX
// are stepped over. What the table does not know (XOP, opcodes that are invalid or rare) is given
// to Zydis. A test compares both on whole libraries. Source: Intel SDM vol. 2, appendix A (opcode
// maps), 2.1 to 2.7.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trapline::isa {

struct Scanned {
  std::uint8_t length = 0;  // 0: invalid or cut off
  std::uint8_t relative_size =
      0;                 // 1 or 4: the instruction ends in a relative branch operand of that size
  bool call = false;     // call rel32
  bool rip_lea = false;  // lea reg, [rip+disp32]: the displacement is its last 4 bytes
  bool immediate32 = false;  // mov reg/mem, imm32 or push imm32: a constant that may be an address
};

Scanned scan_instruction(std::span<const std::byte> bytes);

}  // namespace trapline::isa
