#include "isa/x86_64/operand.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

namespace trapline::isa {
namespace {

constexpr std::uint8_t kRax = 0, kRsp = 4, kRbp = 5;

// -------------------------------------------------------------------------------------------
// text

struct RegisterName {
  std::uint8_t number = 0;
  std::uint8_t size = 8;
  bool high_byte = false;
};

// The names of the first eight, by size; those of r8 to r15 follow a rule.
constexpr std::array<std::array<std::string_view, 4>, 8> kOldRegisters = {{
    {"rax", "eax", "ax", "al"},
    {"rcx", "ecx", "cx", "cl"},
    {"rdx", "edx", "dx", "dl"},
    {"rbx", "ebx", "bx", "bl"},
    {"rsp", "esp", "sp", "spl"},
    {"rbp", "ebp", "bp", "bpl"},
    {"rsi", "esi", "si", "sil"},
    {"rdi", "edi", "di", "dil"},
}};
constexpr std::array<std::string_view, 4> kHighBytes = {"ah", "ch", "dh", "bh"};

template <typename T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// 12, -12, 0x1f, -0x1f, and what only fits without a sign.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  const auto value = parse_number<std::uint64_t>(text, base);
  if (!value) return std::nullopt;
  return static_cast<std::int64_t>(negative ? 0 - *value : *value);
}

// Without its "%".
std::optional<RegisterName> parse_register(std::string_view name) {
  for (std::size_t n = 0; n < kOldRegisters.size(); ++n) {
    const auto found = std::ranges::find(kOldRegisters[n], name);
    if (found == kOldRegisters[n].end()) continue;
    return RegisterName{static_cast<std::uint8_t>(n),
                        static_cast<std::uint8_t>(8 >> (found - kOldRegisters[n].begin()))};
  }
  const auto high = std::ranges::find(kHighBytes, name);
  if (high != kHighBytes.end())
    return RegisterName{static_cast<std::uint8_t>(high - kHighBytes.begin()), 1, true};
  if (!name.starts_with('r')) return std::nullopt;
  name.remove_prefix(1);
  std::uint8_t size = 8;
  constexpr std::string_view kSuffixes = "bwd";  // 1, 2, 4 bytes
  if (const auto suffix = name.empty() ? std::string_view::npos : kSuffixes.find(name.back());
      suffix != std::string_view::npos) {
    size = static_cast<std::uint8_t>(1 << suffix);
    name.remove_suffix(1);
  }
  const auto number = parse_number<std::uint8_t>(name);
  if (!number || *number < 8 || *number > 15) return std::nullopt;
  return RegisterName{*number, size};
}

std::optional<std::uint8_t> parse_vector(std::string_view name) {
  if (!name.starts_with("xmm")) return std::nullopt;
  const auto number = parse_number<std::uint8_t>(name.substr(3));
  return number && *number <= 15 ? number : std::nullopt;
}

std::uint64_t extend(std::uint64_t value, std::uint8_t size, bool is_signed) {
  if (size >= 8) return value;
  const unsigned unused = 64 - size * 8u;
  const std::uint64_t high = value << unused;
  return is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(high) >> unused)
                   : high >> unused;
}

struct Size {
  std::uint8_t size = 8;
  bool is_signed = false;
  bool is_float = false;
};

// "-4" or "8f".
std::optional<Size> parse_size(std::string_view text) {
  Size size;
  if (text.ends_with('f')) {
    size.is_float = true;
    text.remove_suffix(1);
  }
  if (text.starts_with('-')) {
    size.is_signed = !size.is_float;
    text.remove_prefix(1);
  }
  const auto number = parse_number<std::uint8_t>(text);
  if (!number || (*number != 1 && *number != 2 && *number != 4 && *number != 8))
    return std::nullopt;
  size.size = *number;
  return size;
}

class OperandParser {
 public:
  OperandParser(std::string_view text, LinkAddr at, const SymbolFinder& find_symbol)
      : text_(text), at_(at), find_symbol_(find_symbol) {}

  Result<Operand> run() {
    std::string_view operand = text_;
    if (const std::size_t separator = text_.find('@');
        separator != std::string_view::npos && separator != 0) {
      // A symbol may hold an @, too: then what is in front of it is no size.
      if (const auto size = parse_size(text_.substr(0, separator))) {
        operand_.size = size->size;
        operand_.is_signed = size->is_signed;
        operand_.is_float = size->is_float;
        operand.remove_prefix(separator + 1);
      }
    } else {
      operand_.is_signed = true;
    }
    const bool understood = operand.starts_with('$')   ? constant(operand.substr(1))
                            : operand.starts_with('%') ? register_named(operand.substr(1))
                                                       : memory(operand);
    if (understood) return operand_;
    return Error(ErrorCode::kUnsupported,
                 "the operand " + std::string(text_) + " is not understood");
  }

 private:
  bool constant(std::string_view text) {
    const auto value = parse_integer(text);
    if (!value) return false;
    operand_.kind = OperandKind::kConstant;
    operand_.constant =
        extend(static_cast<std::uint64_t>(*value), operand_.size, operand_.is_signed);
    return true;
  }

  bool register_named(std::string_view name) {
    if (const auto vector = parse_vector(name)) {
      operand_.kind = OperandKind::kVector;
      operand_.number = *vector;
      return operand_.size >= 4;
    }
    const auto found = parse_register(name);
    if (!found) return false;
    operand_.kind = OperandKind::kRegister;
    operand_.number = found->number;
    operand_.high_byte = found->high_byte;
    operand_.size = std::min(operand_.size, found->size);
    return true;
  }

  // [SYMBOL][+-]NUMBER[(%BASE,%INDEX,SCALE)], or with (%rip).
  bool memory(std::string_view text) {
    operand_.kind = OperandKind::kMemory;
    const std::size_t open = text.find('(');
    if (open != std::string_view::npos) {
      if (!text.ends_with(')')) return false;
      const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
      if (inside == "%rip") return module_address(text.substr(0, open), Relative::kToInstruction);
      return registers(inside) && displacement(text.substr(0, open));
    }
    return module_address(text, Relative::kToNothing);
  }

  enum class Relative : std::uint8_t { kToInstruction, kToNothing };

  bool module_address(std::string_view text, Relative relative) {
    if (const auto number = parse_integer(text)) {
      operand_.displacement = *number;
      if (relative == Relative::kToNothing) return is_displacement(*number);
      operand_.in_module = true;
      operand_.displacement =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(*number) + at_.value());
      return true;
    }
    operand_.in_module = true;
    return symbol(text);
  }

  // SYMBOL, SYMBOL+NUMBER, SYMBOL-NUMBER, NUMBER+SYMBOL.
  bool symbol(std::string_view text) {
    std::int64_t offset = 0;
    std::string_view name = text;
    const std::size_t sign = text.find_last_of("+-");
    if (sign != std::string_view::npos && sign != 0) {
      if (const auto after = parse_integer(text.substr(sign))) {
        offset = *after;
        name = text.substr(0, sign);
      } else if (const auto before = parse_integer(text.substr(0, sign));
                 before && text[sign] == '+') {
        offset = *before;
        name = text.substr(sign + 1);
      }
    }
    const std::optional<LinkAddr> address = find_symbol_(name);
    if (!address) return false;
    operand_.displacement =
        static_cast<std::int64_t>(address->value() + static_cast<std::uint64_t>(offset));
    return true;
  }

  bool displacement(std::string_view text) {
    if (text.empty()) return true;
    const auto number = parse_integer(text);
    if (!number || !is_displacement(*number)) return false;
    operand_.displacement = *number;
    return true;
  }

  static bool is_displacement(std::int64_t number) {
    // A trampoline has moved rsp by a little.
    constexpr std::int64_t kRoom = 4096;
    return number >= std::numeric_limits<std::int32_t>::min() &&
           number <= std::numeric_limits<std::int32_t>::max() - kRoom;
  }

  // "%rax", "%rax,%rcx", "%rax,%rcx,4", ",%rcx,4".
  bool registers(std::string_view text) {
    std::array<std::string_view, 3> parts{};
    std::size_t count = 0;
    for (;;) {
      if (count == parts.size()) return false;
      const std::size_t comma = text.find(',');
      std::string_view part = text.substr(0, comma);
      while (part.starts_with(' ')) part.remove_prefix(1);
      while (part.ends_with(' ')) part.remove_suffix(1);
      parts[count++] = part;
      if (comma == std::string_view::npos) break;
      text.remove_prefix(comma + 1);
    }
    if (!parts[0].empty() && !address_register(parts[0], operand_.base)) return false;
    if (count > 1 && !parts[1].empty() && !address_register(parts[1], operand_.index)) return false;
    if (operand_.index == kRsp || (!operand_.base && !operand_.index)) return false;
    if (count < 3) return true;
    const auto scale = parse_number<std::uint8_t>(parts[2]);
    if (!scale || (*scale != 1 && *scale != 2 && *scale != 4 && *scale != 8)) return false;
    operand_.scale = *scale;
    return true;
  }

  static bool address_register(std::string_view text, std::optional<std::uint8_t>& to) {
    if (!text.starts_with('%')) return false;
    const auto found = parse_register(text.substr(1));
    if (!found || found->size != 8) return false;
    to = found->number;
    return true;
  }

  std::string_view text_;
  LinkAddr at_;
  const SymbolFinder& find_symbol_;
  Operand operand_;
};

// -------------------------------------------------------------------------------------------
// code

std::uint8_t bits(unsigned value) { return static_cast<std::uint8_t>(value); }

// The opcode that loads rax, extended, from a ModRM operand; `rex` has the bits of its registers.
void load_opcode(Assembler& out, std::uint8_t size, bool is_signed, unsigned rex) {
  constexpr unsigned kWide = 0x48, kNarrow = 0x40;
  switch (size) {
    case 8:
      out.bytes({bits(kWide | rex), 0x8b});
      return;
    case 4:
      if (is_signed) {
        out.bytes({bits(kWide | rex), 0x63});
      } else {
        out.bytes({bits(kNarrow | rex), 0x8b});
      }
      return;
    case 2:
      out.bytes({bits((is_signed ? kWide : kNarrow) | rex), 0x0f, bits(is_signed ? 0xbf : 0xb7)});
      return;
    default:
      out.bytes({bits((is_signed ? kWide : kNarrow) | rex), 0x0f, bits(is_signed ? 0xbe : 0xb6)});
  }
}

struct MemoryOperand {
  std::optional<std::uint8_t> base;
  std::optional<std::uint8_t> index;
  std::uint8_t scale = 1;
  std::int64_t displacement = 0;
};

void load_memory(Assembler& out, std::uint8_t size, bool is_signed, const MemoryOperand& from) {
  const unsigned base = from.base.value_or(kRbp);    // mod 0 and rbp: no base
  const unsigned index = from.index.value_or(kRsp);  // rsp: no index
  load_opcode(out, size, is_signed, (index >> 3) << 1 | (from.base ? base >> 3 : 0));
  const unsigned scale = from.scale == 8 ? 3 : from.scale == 4 ? 2 : from.scale == 2 ? 1 : 0;
  out.bytes({bits(from.base ? 0x84 : 0x04), bits(scale << 6 | (index & 7) << 3 | (base & 7))});
  out.u32(static_cast<std::uint32_t>(from.displacement));
}

void load_constant(Assembler& out, std::uint64_t value) {
  if (value <= std::numeric_limits<std::uint32_t>::max()) {
    out.bytes({0xb8});  // mov eax, imm32
    out.u32(static_cast<std::uint32_t>(value));
    return;
  }
  out.bytes({0x48, 0xb8});  // movabs rax, imm64
  out.u64(value);
}

void load_saved_rax(Assembler& out, const OperandFrame& frame) {
  load_memory(out, 8, false, {kRsp, {}, 1, frame.rax_at});
}

void load_register(Assembler& out, const Operand& operand, const OperandFrame& frame) {
  if (operand.number == kRax) {
    const std::int64_t at = std::int64_t{frame.rax_at} + (operand.high_byte ? 1 : 0);
    load_memory(out, operand.size, operand.is_signed, {kRsp, {}, 1, at});
    return;
  }
  if (operand.number == kRsp) {
    out.bytes({0x48, 0x8d, 0x84, 0x24});  // lea rax, [rsp+n]
    out.u32(frame.pushed);
    load_opcode(out, operand.size, operand.is_signed, 0);
    out.bytes({0xc0});
    return;
  }
  if (operand.high_byte) {  // movzx or movsx eax, ch; which no REX prefix may precede
    out.bytes({0x0f, bits(operand.is_signed ? 0xbe : 0xb6), bits(0xc0 | (operand.number + 4u))});
    if (operand.is_signed) out.bytes({0x48, 0x63, 0xc0});  // movsxd rax, eax
    return;
  }
  load_opcode(out, operand.size, operand.is_signed, operand.number >> 3u);
  out.bytes({bits(0xc0 | (operand.number & 7u))});
}

}  // namespace

Result<Operand> parse_operand(std::string_view text, LinkAddr at, const SymbolFinder& find_symbol) {
  return OperandParser(text, at, find_symbol).run();
}

std::vector<std::string_view> split_operands(std::string_view text) {
  std::vector<std::string_view> operands;
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    if (c == '(') ++depth;
    if (c == ')' && depth > 0) --depth;
    if (i < text.size() && (c != ' ' || depth > 0)) continue;
    if (i > start) operands.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  return operands;
}

std::string_view type_of_operand(const Operand& operand) {
  if (operand.is_float && operand.size >= 4) return operand.size == 4 ? "float" : "double";
  switch (operand.size) {
    case 1:
      return operand.is_signed ? "int8_t" : "uint8_t";
    case 2:
      return operand.is_signed ? "int16_t" : "uint16_t";
    case 4:
      return operand.is_signed ? "int32_t" : "uint32_t";
    default:
      return operand.is_signed ? "int64_t" : "uint64_t";
  }
}

std::optional<std::string_view> type_of_operand(std::string_view text) {
  const auto size = parse_size(text.substr(0, text.find('@')));
  if (!size) return std::nullopt;
  Operand operand;
  operand.size = size->size;
  operand.is_signed = size->is_signed;
  operand.is_float = size->is_float;
  return type_of_operand(operand);
}

std::optional<std::uint64_t> evaluate(
    const Operand& operand, const std::array<std::uint64_t, 16>& general, LoadBias bias,
    const std::function<bool(RemoteAddr from, std::span<std::byte> to)>& read) {
  switch (operand.kind) {
    case OperandKind::kConstant:
      return operand.constant;
    case OperandKind::kVector:
      return std::nullopt;
    case OperandKind::kRegister: {
      const std::uint64_t value = general[operand.number & 15u] >> (operand.high_byte ? 8 : 0);
      return extend(value, operand.size, operand.is_signed);
    }
    case OperandKind::kMemory:
      break;
  }
  auto address = static_cast<std::uint64_t>(operand.displacement);
  if (operand.in_module) address = bias.to_remote(LinkAddr(address)).value();
  if (operand.base) address += general[*operand.base & 15u];
  if (operand.index) address += general[*operand.index & 15u] * operand.scale;
  std::uint64_t value = 0;
  const auto bytes = std::as_writable_bytes(std::span(&value, 1));
  if (!read(RemoteAddr(address), bytes.first(std::min<std::size_t>(operand.size, 8))))
    return std::nullopt;
  return extend(value, operand.size, operand.is_signed);
}

void load_operand_rax(Assembler& out, const Operand& operand, const OperandFrame& frame) {
  switch (operand.kind) {
    case OperandKind::kConstant:
      load_constant(out, operand.constant);
      return;
    case OperandKind::kRegister:
      load_register(out, operand, frame);
      return;
    case OperandKind::kVector:  // movd eax, xmm; movq rax, xmm
      out.bytes({0x66, bits((operand.size == 8 ? 0x48u : 0x40u) | (operand.number >= 8 ? 4u : 0u)),
                 0x0f, 0x7e, bits(0xc0 | (operand.number & 7u) << 3)});
      return;
    case OperandKind::kMemory:
      break;
  }
  if (operand.in_module) {
    const auto address = static_cast<std::uint64_t>(operand.displacement);
    load_constant(out, frame.bias.to_remote(LinkAddr(address)).value());
    load_memory(out, operand.size, operand.is_signed, {kRax, {}, 1, 0});
    return;
  }
  if (operand.base == kRax || operand.index == kRax) load_saved_rax(out, frame);
  const std::int64_t moved = operand.base == kRsp ? frame.pushed : 0;
  load_memory(out, operand.size, operand.is_signed,
              {operand.base, operand.index, operand.scale, operand.displacement + moved});
}

}  // namespace trapline::isa
