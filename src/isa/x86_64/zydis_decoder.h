// Private to isa: Zydis's decoder for 64-bit code, set up once.

#pragma once

#include <Zydis/Zydis.h>

#include <cstddef>
#include <span>

namespace trapline::isa {

struct ZydisInstruction {
  ZydisDecodedInstruction instruction;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

// False: invalid or cut off.
bool zydis_decode(std::span<const std::byte> bytes, ZydisInstruction& out);

// rax 0 ... r15 15 for a general register of any width (ah counts as rax); kNoRegister for others.
std::uint8_t general_number(ZydisRegister reg);

}  // namespace trapline::isa
