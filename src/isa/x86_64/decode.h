// Decoding: one x86-64 instruction as the rest of Trapline needs to see it.
//
// A thin typed layer over Zydis, which only this and verify.cc use. Bytes may be hostile: an
// instruction that does not decode within the bytes given is simply nullopt. Source: Intel SDM vol.
// 2; the AMD/Intel difference for branches with a 0x66 prefix is met by refusing those.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace trapline::isa {

inline constexpr std::size_t kMaxInstruction = 15;

enum class Kind : std::uint8_t {
  kPlain,
  kNop,    // nop of any length, pause excluded
  kEndbr,  // endbr64
  kCallDirect,
  kCallIndirect,
  kJumpDirect,
  kJumpConditional,  // jcc
  kLoop,             // loop, loope, loopne, jrcxz, jecxz: rel8 only
  kJumpIndirect,
  kRet,      // near, with or without imm16
  kSyscall,  // syscall, sysenter
  kInt3,
  kTrap,         // ud0-2, int n, int1: ends or leaves the flow by an exception
  kPrivileged,   // hlt, in, out, wrmsr, far transfers, segment and control register writes...
  kTransaction,  // xbegin: has a relative operand that is a second way out
};

// Numbers of general registers as in machine code: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6,
// rdi 7, r8 8 ...
inline constexpr std::uint8_t kNoRegister = 0xff;

struct MemoryOperand {
  bool present = false;
  bool rip_relative = false;
  std::uint8_t base = kNoRegister;
  std::uint8_t index = kNoRegister;
  std::uint8_t scale = 0;
  std::uint8_t segment = 0;       // 0: default; else 'f' or 'g' for fs, gs
  std::int64_t displacement = 0;  // as encoded
};

// What an instruction does to rsp, and to rbp as a frame pointer.
enum class StackOp : std::uint8_t {
  kNone,
  kAdjust,     // rsp += stack_value: push, pop, add, sub, inc, lea rsp,[rsp+v]; call counts as none
  kSaveFrame,  // rbp = rsp + stack_value
  kLoadFrame,  // rsp = rbp + stack_value
  kLeave,      // rsp = rbp, pop rbp
  kAlign,      // rsp &= stack_value
  kUnknown,    // rsp is written in some other way
};

struct Instruction {
  std::uint64_t address = 0;
  std::uint8_t length = 0;
  Kind kind = Kind::kPlain;
  std::uint16_t mnemonic = 0;      // ZydisMnemonic
  std::uint64_t target = 0;        // direct branches and xbegin
  std::uint8_t relative_size = 0;  // bytes of the relative operand: 0, 1, 2, 4
  std::uint8_t relative_offset = 0;
  bool operand_prefix = false;  // 0x66: a branch with it means different things on Intel and AMD
  std::uint8_t condition = 0;   // kJumpConditional: low 4 bits of the opcode
  std::uint8_t disp_offset =
      0;  // rip-relative: offset of the 4-byte displacement in the instruction; 0: none
  std::uint64_t rip_target = 0;  // rip-relative: the address referred to
  bool eip_relative = false;     // rip-relative with a 0x67 prefix: never relocated
  bool notrack = false;          // kJumpIndirect with 0x3e: by its compiler's word a jump table
  std::uint16_t reads = 0;       // general registers, one bit each, implicit ones included
  std::uint16_t writes = 0;
  bool reads_flags = false;
  bool writes_flags = false;
  MemoryOperand memory;  // the first explicit memory operand
  std::uint8_t reg0 =
      kNoRegister;  // the first and second explicit operand, if general registers of any width
  std::uint8_t reg1 = kNoRegister;
  bool has_immediate = false;
  std::int64_t immediate = 0;  // the first explicit one
  StackOp stack = StackOp::kNone;
  std::int64_t stack_value = 0;

  std::uint64_t end() const { return address + length; }
  bool is_direct_branch() const { return relative_size != 0 && kind != Kind::kTransaction; }
  // Nothing is executed after it in line.
  bool ends_flow() const {
    return kind == Kind::kJumpDirect || kind == Kind::kJumpIndirect || kind == Kind::kRet ||
           kind == Kind::kTrap;
  }
};

// The instruction at the start of `bytes`, which lie at `address`. nullopt: invalid or cut off.
std::optional<Instruction> decode(std::span<const std::byte> bytes, std::uint64_t address);

// Only the length; 0: invalid or cut off. Faster than decode().
std::size_t decode_length(std::span<const std::byte> bytes);

}  // namespace trapline::isa
