#include "isa/x86_64/decode.h"

#include <algorithm>

#include "isa/x86_64/zydis_decoder.h"

namespace trapline::isa {
namespace {

ZydisDecoder make_decoder() {
  ZydisDecoder decoder{};
  // Cannot fail: the mode and the stack width are valid constants.
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  return decoder;
}

ZydisDecoder make_minimal_decoder() {
  ZydisDecoder decoder = make_decoder();
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
  return decoder;
}

bool is_privileged(const ZydisDecodedInstruction& i) {
  if ((i.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0) return true;
  if (i.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return true;
  switch (i.meta.category) {
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_VTX:
    case ZYDIS_CATEGORY_SEGOP:
      return true;
    default:
      break;
  }
  switch (i.mnemonic) {
    case ZYDIS_MNEMONIC_CLI:
    case ZYDIS_MNEMONIC_STI:
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_UIRET:
    case ZYDIS_MNEMONIC_LSS:
    case ZYDIS_MNEMONIC_LFS:
    case ZYDIS_MNEMONIC_LGS:
      return true;
    default:
      return false;
  }
}

// A near branch with a relative immediate is direct (ZYDIS_ATTRIB_IS_RELATIVE is set for `jmp
// [rip+x]` too). Far ones were sorted out before.
bool has_relative(const ZydisDecodedInstruction& i) {
  return (i.raw.imm[0].size != 0 && i.raw.imm[0].is_relative != ZYAN_FALSE) ||
         (i.raw.imm[1].size != 0 && i.raw.imm[1].is_relative != ZYAN_FALSE);
}

Kind branch_kind(const ZydisDecodedInstruction& i, Kind direct, Kind indirect) {
  return has_relative(i) ? direct : indirect;
}

Kind kind_of(const ZydisDecodedInstruction& i) {
  switch (i.mnemonic) {
    case ZYDIS_MNEMONIC_NOP:
      return Kind::kNop;
    case ZYDIS_MNEMONIC_ENDBR64:
      return Kind::kEndbr;
    case ZYDIS_MNEMONIC_INT3:
      return Kind::kInt3;
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
      return Kind::kTrap;
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
      return Kind::kSyscall;
    case ZYDIS_MNEMONIC_XBEGIN:
      return Kind::kTransaction;
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_JRCXZ:
      return Kind::kLoop;
    default:
      break;
  }
  if (is_privileged(i)) return Kind::kPrivileged;
  switch (i.meta.category) {
    case ZYDIS_CATEGORY_CALL:
      return branch_kind(i, Kind::kCallDirect, Kind::kCallIndirect);
    case ZYDIS_CATEGORY_UNCOND_BR:
      return i.mnemonic == ZYDIS_MNEMONIC_JMP
                 ? branch_kind(i, Kind::kJumpDirect, Kind::kJumpIndirect)
                 : Kind::kPlain;
    case ZYDIS_CATEGORY_COND_BR:
      return has_relative(i) ? Kind::kJumpConditional : Kind::kPlain;
    case ZYDIS_CATEGORY_RET:
      return Kind::kRet;
    default:
      return Kind::kPlain;
  }
}

std::uint16_t register_bit(ZydisRegister reg) {
  const std::uint8_t number = general_number(reg);
  return number == kNoRegister ? std::uint16_t{0} : static_cast<std::uint16_t>(1u << number);
}

MemoryOperand memory_of(const ZydisDecodedOperand& operand) {
  MemoryOperand memory;
  memory.present = true;
  memory.rip_relative =
      operand.mem.base == ZYDIS_REGISTER_RIP || operand.mem.base == ZYDIS_REGISTER_EIP;
  memory.base = general_number(operand.mem.base);
  memory.index = general_number(operand.mem.index);
  memory.scale = operand.mem.scale;
  if (operand.mem.segment == ZYDIS_REGISTER_FS) memory.segment = 'f';
  if (operand.mem.segment == ZYDIS_REGISTER_GS) memory.segment = 'g';
  memory.displacement = operand.mem.disp.has_displacement ? operand.mem.disp.value : 0;
  return memory;
}

void add_registers(Instruction& out, const ZydisDecodedOperand& operand) {
  if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
    const std::uint16_t bit = register_bit(operand.reg.value);
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0) out.reads |= bit;
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0) out.writes |= bit;
  } else if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY) {
    out.reads |= register_bit(operand.mem.base);
    out.reads |= register_bit(operand.mem.index);
  }
}

void add_operands(Instruction& out, const ZydisInstruction& z) {
  for (std::size_t n = 0; n < z.instruction.operand_count; ++n) {
    const ZydisDecodedOperand& operand = z.operands[n];
    add_registers(out, operand);
    if (operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN) continue;
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && n < 2) {
      (n == 0 ? out.reg0 : out.reg1) = general_number(operand.reg.value);
    } else if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && !out.memory.present) {
      out.memory = memory_of(operand);
    } else if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE && !operand.imm.is_relative &&
               !out.has_immediate) {
      out.has_immediate = true;
      out.immediate = operand.imm.value.s;
    }
  }
}

void add_relative(Instruction& out, const ZydisDecodedInstruction& i) {
  for (const auto& imm : i.raw.imm) {
    if (imm.size == 0 || imm.is_relative == ZYAN_FALSE) continue;
    out.relative_size = static_cast<std::uint8_t>(imm.size / 8);
    out.relative_offset = imm.offset;
    out.target = out.end() + static_cast<std::uint64_t>(imm.value.s);
    return;
  }
}

constexpr std::uint8_t kRsp = 4;
constexpr std::uint8_t kRbp = 5;

// For instructions whose first operand is a 64-bit register, what they do to rsp and rbp.
void add_stack_of_move(Instruction& out, const ZydisInstruction& z) {
  const auto set = [&out](StackOp op, std::int64_t value) {
    out.stack = op;
    out.stack_value = value;
  };
  const bool wide = z.instruction.operand_width == 64;
  const bool simple_memory = out.memory.present && out.memory.index == kNoRegister &&
                             !out.memory.rip_relative && out.memory.segment == 0;
  switch (z.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_ADD:
      if (wide && out.reg0 == kRsp && out.has_immediate) set(StackOp::kAdjust, out.immediate);
      break;
    case ZYDIS_MNEMONIC_SUB:
      // The negation of INT64_MIN cannot arise: the immediate has 32 bits.
      if (wide && out.reg0 == kRsp && out.has_immediate) set(StackOp::kAdjust, -out.immediate);
      break;
    case ZYDIS_MNEMONIC_AND:
      if (wide && out.reg0 == kRsp && out.has_immediate) set(StackOp::kAlign, out.immediate);
      break;
    case ZYDIS_MNEMONIC_LEA:
      if (!wide || !simple_memory) break;
      if (out.reg0 == kRsp && out.memory.base == kRsp) {
        set(StackOp::kAdjust, out.memory.displacement);
      } else if (out.reg0 == kRsp && out.memory.base == kRbp) {
        set(StackOp::kLoadFrame, out.memory.displacement);
      } else if (out.reg0 == kRbp && out.memory.base == kRsp) {
        set(StackOp::kSaveFrame, out.memory.displacement);
      }
      break;
    case ZYDIS_MNEMONIC_MOV:
      if (!wide) break;
      if (out.reg0 == kRbp && out.reg1 == kRsp) set(StackOp::kSaveFrame, 0);
      if (out.reg0 == kRsp && out.reg1 == kRbp) set(StackOp::kLoadFrame, 0);
      break;
    case ZYDIS_MNEMONIC_LEAVE:
      set(StackOp::kLeave, 0);
      break;
    default:
      break;
  }
}

void add_stack(Instruction& out, const ZydisInstruction& z) {
  const std::int64_t width = z.instruction.operand_width / 8;
  switch (z.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_PUSH:
    case ZYDIS_MNEMONIC_PUSHF:
    case ZYDIS_MNEMONIC_PUSHFQ:
      out.stack = StackOp::kAdjust;
      out.stack_value = -width;
      return;
    case ZYDIS_MNEMONIC_POP:
      // pop rsp, and pop into memory addressed by rsp, are kUnknown.
      if (out.reg0 == kRsp) break;
      out.stack = StackOp::kAdjust;
      out.stack_value = width;
      return;
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFQ:
      out.stack = StackOp::kAdjust;
      out.stack_value = width;
      return;
    default:
      break;
  }
  add_stack_of_move(out, z);
  const bool flow =
      out.kind == Kind::kCallDirect || out.kind == Kind::kCallIndirect || out.kind == Kind::kRet;
  if (out.stack == StackOp::kNone && (out.writes & (1u << kRsp)) != 0 && !flow) {
    out.stack = StackOp::kUnknown;
  }
}

void add_flags(Instruction& out, const ZydisDecodedInstruction& i) {
  if (i.cpu_flags == nullptr) return;
  out.reads_flags = i.cpu_flags->tested != 0;
  out.writes_flags = (i.cpu_flags->modified | i.cpu_flags->set_0 | i.cpu_flags->set_1 |
                      i.cpu_flags->undefined) != 0;
}

}  // namespace

bool zydis_decode(std::span<const std::byte> bytes, ZydisInstruction& out) {
  static const ZydisDecoder decoder = make_decoder();
  return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes.data(),
                                             std::min(bytes.size(), kMaxInstruction),
                                             &out.instruction, out.operands));
}

std::uint8_t general_number(ZydisRegister reg) {
  switch (ZydisRegisterGetClass(reg)) {
    case ZYDIS_REGCLASS_GPR8: {
      // al cl dl bl, then ah ch dh bh, then spl bpl sil dil, r8b ...
      if (reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH) {
        return static_cast<std::uint8_t>(reg - ZYDIS_REGISTER_AH);
      }
      if (reg >= ZYDIS_REGISTER_SPL) {
        return static_cast<std::uint8_t>(reg - ZYDIS_REGISTER_SPL + 4);
      }
      return static_cast<std::uint8_t>(reg - ZYDIS_REGISTER_AL);
    }
    case ZYDIS_REGCLASS_GPR16:
    case ZYDIS_REGCLASS_GPR32:
    case ZYDIS_REGCLASS_GPR64:
      return static_cast<std::uint8_t>(ZydisRegisterGetId(reg));
    default:
      return kNoRegister;
  }
}

std::optional<Instruction> decode(std::span<const std::byte> bytes, std::uint64_t address) {
  ZydisInstruction z;
  if (!zydis_decode(bytes, z)) return std::nullopt;
  const ZydisDecodedInstruction& i = z.instruction;
  Instruction out;
  out.address = address;
  out.length = i.length;
  out.mnemonic = static_cast<std::uint16_t>(i.mnemonic);
  out.kind = kind_of(i);
  add_relative(out, i);
  out.condition = i.opcode & 0xf;
  out.operand_prefix = (i.attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE) != 0;
  add_operands(out, z);
  if (out.memory.rip_relative) {
    out.disp_offset = i.raw.disp.offset;
    out.rip_target = out.end() + static_cast<std::uint64_t>(i.raw.disp.value);
    out.eip_relative = (i.attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE) != 0;
  }
  out.notrack = out.kind == Kind::kJumpIndirect && (i.attributes & ZYDIS_ATTRIB_HAS_NOTRACK) != 0;
  add_stack(out, z);
  add_flags(out, i);
  return out;
}

std::size_t decode_length(std::span<const std::byte> bytes) {
  static const ZydisDecoder decoder = make_minimal_decoder();
  ZydisDecodedInstruction instruction;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, bytes.data(),
                                                  std::min(bytes.size(), kMaxInstruction),
                                                  &instruction))) {
    return 0;
  }
  return instruction.length;
}

}  // namespace trapline::isa
