#include "isa/x86_64/emulate.h"

#include <bit>
#include <cstring>
#include <optional>

#include "isa/x86_64/decode.h"
#include "isa/x86_64/zydis_decoder.h"

namespace trapline::isa {
namespace {

constexpr std::uint64_t kCarry = 1u << 0;
constexpr std::uint64_t kParity = 1u << 2;
constexpr std::uint64_t kAdjust = 1u << 4;
constexpr std::uint64_t kZero = 1u << 6;
constexpr std::uint64_t kSign = 1u << 7;
constexpr std::uint64_t kOverflow = 1u << 11;
constexpr std::uint64_t kArithmetic = kCarry | kParity | kAdjust | kZero | kSign | kOverflow;
constexpr std::uint64_t kNeverPushed = (1u << 16) | (1u << 17);  // RF, VM
constexpr unsigned kRsp = 4;
constexpr unsigned kRbp = 5;
constexpr unsigned kRcx = 1;

std::uint64_t mask_of(unsigned bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

std::uint64_t extend_sign(std::uint64_t value, unsigned bits) {
  const std::uint64_t sign = 1ull << (bits - 1);
  return ((value & mask_of(bits)) ^ sign) - sign;
}

// The condition in the low 4 bits of jcc's opcode.
bool holds(unsigned condition, std::uint64_t flags) {
  const auto set = [flags](std::uint64_t flag) { return (flags & flag) != 0; };
  bool result = false;
  switch (condition >> 1) {
    case 0:
      result = set(kOverflow);
      break;
    case 1:
      result = set(kCarry);
      break;
    case 2:
      result = set(kZero);
      break;
    case 3:
      result = set(kCarry) || set(kZero);
      break;
    case 4:
      result = set(kSign);
      break;
    case 5:
      result = set(kParity);
      break;
    case 6:
      result = set(kSign) != set(kOverflow);
      break;
    default:
      result = set(kZero) || set(kSign) != set(kOverflow);
      break;
  }
  return result != ((condition & 1) != 0);
}

class Emulator {
 public:
  Emulator(const ZydisInstruction& z, MachineState& state, MachineStack& stack)
      : z_(z), i_(z.instruction), out_(state), next_(state), stack_(stack) {
    next_.pc = state.pc + i_.length;
  }

  Emulated run() {
    constexpr ZydisInstructionAttributes kNotHere =
        ZYDIS_ATTRIB_HAS_LOCK | ZYDIS_ATTRIB_HAS_ADDRESSSIZE | ZYDIS_ATTRIB_HAS_SEGMENT_FS |
        ZYDIS_ATTRIB_HAS_SEGMENT_GS | ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPNE;
    if ((i_.attributes & kNotHere) != 0) return Emulated::kUnknown;
    Emulated done = flow();
    if (done == Emulated::kUnknown) done = stack_use();
    if (done == Emulated::kUnknown) done = move();
    if (done == Emulated::kUnknown) done = arithmetic();
    if (done == Emulated::kDone) out_ = next_;
    return done;
  }

 private:
  const ZydisDecodedOperand& operand(unsigned n) const { return z_.operands[n]; }
  std::uint64_t& general(unsigned number) { return next_.general[number]; }

  static bool is_high_byte(ZydisRegister reg) {
    return reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH;
  }

  static bool is_general(const ZydisDecodedOperand& o) {
    return o.type == ZYDIS_OPERAND_TYPE_REGISTER && general_number(o.reg.value) != kNoRegister &&
           !is_high_byte(o.reg.value);
  }

  bool is_on_stack(const ZydisDecodedOperand& o) const {
    return o.type == ZYDIS_OPERAND_TYPE_MEMORY && o.mem.base == ZYDIS_REGISTER_RSP &&
           o.mem.index == ZYDIS_REGISTER_NONE && o.mem.type == ZYDIS_MEMOP_TYPE_MEM;
  }

  // With the registers as they were. nullopt: of a register that is none of the general ones.
  std::optional<std::uint64_t> address_of(const ZydisDecodedOperand& o) const {
    std::uint64_t address =
        o.mem.disp.has_displacement != 0 ? static_cast<std::uint64_t>(o.mem.disp.value) : 0;
    if (o.mem.base == ZYDIS_REGISTER_RIP) {
      address += out_.pc + i_.length;
    } else if (o.mem.base != ZYDIS_REGISTER_NONE) {
      const std::uint8_t base = general_number(o.mem.base);
      if (base == kNoRegister) return std::nullopt;
      address += out_.general[base];
    }
    if (o.mem.index != ZYDIS_REGISTER_NONE) {
      const std::uint8_t index = general_number(o.mem.index);
      if (index == kNoRegister) return std::nullopt;
      address += out_.general[index] * o.mem.scale;
    }
    return address;
  }

  // What an operand holds, its size's bits of it. nullopt: see `missing_`.
  std::optional<std::uint64_t> read(const ZydisDecodedOperand& o) {
    missing_ = Emulated::kUnknown;
    if (is_general(o)) return out_.general[general_number(o.reg.value)] & mask_of(o.size);
    if (o.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return o.imm.value.u;
    if (!is_on_stack(o) || o.size > 64) return std::nullopt;
    return load(*address_of(o), o.size / 8);
  }

  std::optional<std::uint64_t> load(std::uint64_t address, std::size_t size) {
    std::uint64_t value = 0;
    missing_ = Emulated::kNoStack;
    if (!stack_.read(address, std::as_writable_bytes(std::span(&value, 1)).first(size)))
      return std::nullopt;
    return value;
  }

  // A 32-bit result clears the upper half, a smaller one leaves the rest alone.
  void write(const ZydisDecodedOperand& o, std::uint64_t value) {
    std::uint64_t& reg = general(general_number(o.reg.value));
    const std::uint64_t mask = mask_of(o.size);
    reg = o.size >= 32 ? value & mask : (reg & ~mask) | (value & mask);
  }

  // Last of all that an instruction does.
  Emulated push(std::uint64_t value) {
    general(kRsp) -= sizeof(value);
    return stack_.write(general(kRsp), std::as_bytes(std::span(&value, 1))) ? Emulated::kDone
                                                                            : Emulated::kNoStack;
  }

  std::optional<std::uint64_t> target() {
    if (operand(0).type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
      return out_.pc + i_.length + static_cast<std::uint64_t>(operand(0).imm.value.s);
    if (operand(0).size != 64) return std::nullopt;
    return read(operand(0));
  }

  Emulated flow() {
    if ((i_.attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE) != 0 && i_.mnemonic != ZYDIS_MNEMONIC_NOP)
      return Emulated::kUnknown;
    switch (i_.mnemonic) {
      case ZYDIS_MNEMONIC_NOP:
      case ZYDIS_MNEMONIC_ENDBR64:
        return Emulated::kDone;
      case ZYDIS_MNEMONIC_RET: {
        const auto to = load(out_.general[kRsp], sizeof(std::uint64_t));
        if (!to || i_.meta.branch_type != ZYDIS_BRANCH_TYPE_NEAR)
          return to ? Emulated::kUnknown : missing_;
        general(kRsp) +=
            sizeof(std::uint64_t) +
            (operand(0).type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? operand(0).imm.value.u : 0);
        next_.pc = *to;
        return Emulated::kDone;
      }
      case ZYDIS_MNEMONIC_CALL:
      case ZYDIS_MNEMONIC_JMP: {
        if (i_.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return Emulated::kUnknown;
        const auto to = target();
        if (!to) return missing_;
        const std::uint64_t back = next_.pc;
        next_.pc = *to;
        return i_.mnemonic == ZYDIS_MNEMONIC_CALL ? push(back) : Emulated::kDone;
      }
      default:
        return conditional();
    }
  }

  Emulated conditional() {
    bool taken = false;
    switch (i_.mnemonic) {
      case ZYDIS_MNEMONIC_JRCXZ:
        taken = out_.general[kRcx] == 0;
        break;
      case ZYDIS_MNEMONIC_LOOP:
      case ZYDIS_MNEMONIC_LOOPE:
      case ZYDIS_MNEMONIC_LOOPNE:
        taken = --general(kRcx) != 0;
        if (i_.mnemonic == ZYDIS_MNEMONIC_LOOPE) taken = taken && (out_.flags & kZero) != 0;
        if (i_.mnemonic == ZYDIS_MNEMONIC_LOOPNE) taken = taken && (out_.flags & kZero) == 0;
        break;
      default:
        if (i_.meta.category != ZYDIS_CATEGORY_COND_BR ||
            operand(0).type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
          return Emulated::kUnknown;
        taken = holds(i_.opcode & 0xf, out_.flags);
    }
    if (taken) next_.pc += static_cast<std::uint64_t>(operand(0).imm.value.s);
    return Emulated::kDone;
  }

  Emulated stack_use() {
    if (i_.operand_width != 64) return Emulated::kUnknown;
    switch (i_.mnemonic) {
      case ZYDIS_MNEMONIC_PUSH: {
        if (!is_general(operand(0)) && operand(0).type != ZYDIS_OPERAND_TYPE_IMMEDIATE &&
            !is_on_stack(operand(0)))
          return Emulated::kUnknown;
        const auto value = read(operand(0));
        return value ? push(*value) : missing_;
      }
      case ZYDIS_MNEMONIC_PUSHFQ:
        return push(out_.flags & ~kNeverPushed);
      case ZYDIS_MNEMONIC_POP: {
        if (!is_general(operand(0))) return Emulated::kUnknown;
        const auto value = load(out_.general[kRsp], sizeof(std::uint64_t));
        if (!value) return missing_;
        general(kRsp) += sizeof(std::uint64_t);
        write(operand(0), *value);
        return Emulated::kDone;
      }
      case ZYDIS_MNEMONIC_LEAVE: {
        const auto value = load(out_.general[kRbp], sizeof(std::uint64_t));
        if (!value) return missing_;
        general(kRsp) = out_.general[kRbp] + sizeof(std::uint64_t);
        general(kRbp) = *value;
        return Emulated::kDone;
      }
      default:
        return Emulated::kUnknown;
    }
  }

  Emulated move() {
    if (!is_general(operand(0))) return Emulated::kUnknown;
    if (i_.mnemonic == ZYDIS_MNEMONIC_LEA) {
      const auto address = address_of(operand(1));
      if (!address) return Emulated::kUnknown;
      write(operand(0), *address);
      return Emulated::kDone;
    }
    const bool widens_sign =
        i_.mnemonic == ZYDIS_MNEMONIC_MOVSX || i_.mnemonic == ZYDIS_MNEMONIC_MOVSXD;
    if (i_.mnemonic != ZYDIS_MNEMONIC_MOV && i_.mnemonic != ZYDIS_MNEMONIC_MOVZX && !widens_sign)
      return Emulated::kUnknown;
    const auto value = read(operand(1));
    if (!value) return missing_;
    write(operand(0), widens_sign ? extend_sign(*value, operand(1).size) : *value);
    return Emulated::kDone;
  }

  Emulated arithmetic() {
    const bool only_flags = i_.mnemonic == ZYDIS_MNEMONIC_CMP || i_.mnemonic == ZYDIS_MNEMONIC_TEST;
    switch (i_.mnemonic) {
      case ZYDIS_MNEMONIC_ADD:
      case ZYDIS_MNEMONIC_SUB:
      case ZYDIS_MNEMONIC_CMP:
      case ZYDIS_MNEMONIC_AND:
      case ZYDIS_MNEMONIC_OR:
      case ZYDIS_MNEMONIC_XOR:
      case ZYDIS_MNEMONIC_TEST:
        break;
      default:
        return Emulated::kUnknown;
    }
    if (!is_general(operand(0)) && !(only_flags && is_on_stack(operand(0))))
      return Emulated::kUnknown;
    const auto a = read(operand(0));
    if (!a) return missing_;
    const auto b = read(operand(1));
    if (!b) return missing_;
    const unsigned bits = operand(0).size;
    const std::uint64_t result = compute(*a & mask_of(bits), *b & mask_of(bits), bits);
    if (!only_flags) write(operand(0), result);
    return Emulated::kDone;
  }

  std::uint64_t compute(std::uint64_t a, std::uint64_t b, unsigned bits) {
    const std::uint64_t mask = mask_of(bits);
    const std::uint64_t sign = 1ull << (bits - 1);
    std::uint64_t result = 0;
    std::uint64_t flags = 0;
    switch (i_.mnemonic) {
      case ZYDIS_MNEMONIC_ADD:
        result = (a + b) & mask;
        if (result < a) flags |= kCarry;
        if (((a ^ result) & (b ^ result) & sign) != 0) flags |= kOverflow;
        flags |= (a ^ b ^ result) & kAdjust;
        break;
      case ZYDIS_MNEMONIC_SUB:
      case ZYDIS_MNEMONIC_CMP:
        result = (a - b) & mask;
        if (a < b) flags |= kCarry;
        if (((a ^ b) & (a ^ result) & sign) != 0) flags |= kOverflow;
        flags |= (a ^ b ^ result) & kAdjust;
        break;
      case ZYDIS_MNEMONIC_OR:
        result = a | b;
        break;
      case ZYDIS_MNEMONIC_XOR:
        result = a ^ b;
        break;
      default:
        result = a & b;
        break;
    }
    if (result == 0) flags |= kZero;
    if ((result & sign) != 0) flags |= kSign;
    if (std::popcount(result & 0xff) % 2 == 0) flags |= kParity;
    next_.flags = (next_.flags & ~kArithmetic) | flags;
    return result;
  }

  const ZydisInstruction& z_;
  const ZydisDecodedInstruction& i_;
  MachineState& out_;
  MachineState next_;
  MachineStack& stack_;
  Emulated missing_ = Emulated::kUnknown;
};

class NoStack final : public MachineStack {
  bool read(std::uint64_t, std::span<std::byte>) override { return false; }
  bool write(std::uint64_t, std::span<const std::byte>) override { return false; }
};

}  // namespace

Emulated emulate(std::span<const std::byte> bytes, MachineState& state, MachineStack& stack) {
  ZydisInstruction z{};
  if (!zydis_decode(bytes, z)) return Emulated::kUnknown;
  return Emulator(z, state, stack).run();
}

bool is_taken(std::span<const std::byte> bytes, const MachineState& state) {
  const auto instruction = decode(bytes, state.pc);
  if (!instruction || !instruction->is_direct_branch()) return true;
  MachineState after = state;
  NoStack none;
  if (emulate(bytes, after, none) != Emulated::kDone) return true;
  return after.pc == instruction->target;
}

}  // namespace trapline::isa
