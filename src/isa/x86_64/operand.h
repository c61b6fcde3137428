// Operands as assembler text has them ("-4@%edi", "8@-16(%rbp,%rax,4)"): parsed, evaluated for a
// stopped thread, and turned into code that evaluates them.
//
// The notes of statically defined probes say in this form where the arguments are: a size in bytes,
// negative for a signed one, and an operand in AT&T's syntax. The value is extended to 64 bits. Of
// a floating-point argument ("8f@%xmm0") the value is its bits.
// Limits: no segments (thread-local variables), no x87, AVX or mask registers, sizes 1, 2, 4, 8.
// Such an operand is an error, which names it.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "isa/x86_64/assembler.h"

namespace trapline::isa {

enum class OperandKind : std::uint8_t { kConstant, kRegister, kVector, kMemory };

struct Operand {
  OperandKind kind = OperandKind::kConstant;
  std::uint8_t size = 8;  // 1, 2, 4 or 8: of the value before it is extended
  bool is_signed = false;
  bool is_float = false;
  std::uint64_t constant = 0;  // kConstant: extended
  std::uint8_t number = 0;     // kRegister, kVector: of the register, as decode.h numbers them
  bool high_byte = false;      // kRegister: %ah and its like
  // kMemory: base + index * scale + displacement, or, where `in_module`, the link address
  // `displacement` and nothing else.
  std::optional<std::uint8_t> base;
  std::optional<std::uint8_t> index;
  std::uint8_t scale = 1;
  std::int64_t displacement = 0;
  bool in_module = false;
};

// How symbols get their addresses; nullopt: unknown.
using SymbolFinder = std::function<std::optional<LinkAddr>(std::string_view name)>;

// "N@OPERAND"; without "N@" 8 bytes are meant. `at`: of the instruction, for n(%rip).
// Error: kUnsupported, naming the operand.
Result<Operand> parse_operand(std::string_view text, LinkAddr at, const SymbolFinder& find_symbol);
// "N@OPERAND N@OPERAND ...": split at the blanks between them.
std::vector<std::string_view> split_operands(std::string_view text);

// The C type of that size: "int32_t"; of a floating-point one "float" or "double".
std::string_view type_of_operand(const Operand& operand);
// Only the size part is looked at; nullopt: it says nothing simple.
std::optional<std::string_view> type_of_operand(std::string_view text);

// Registers and memory as the instruction finds them; nullopt: memory that cannot be read, and
// vector registers.
std::optional<std::uint64_t> evaluate(
    const Operand& operand, const std::array<std::uint64_t, 16>& general, LoadBias bias,
    const std::function<bool(RemoteAddr from, std::span<std::byte> to)>& read);

// Where code that loads operands finds the registers: all but rax and rsp have their values.
struct OperandFrame {
  std::uint32_t pushed = 0;  // bytes between rsp and where it was
  std::uint32_t rax_at = 0;  // where the value of rax lies, from rsp
  LoadBias bias;             // of the module
};
inline constexpr std::size_t kMaxOperandCode = 32;
// rax = the operand. Changes no other register, but flags.
void load_operand_rax(Assembler& out, const Operand& operand, const OperandFrame& frame);

}  // namespace trapline::isa
