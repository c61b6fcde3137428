#include "isa/x86_64/length.h"

#include <array>

#include "isa/x86_64/decode.h"

namespace trapline::isa {
namespace {

// What follows an opcode byte.
enum Form : std::uint8_t {
  kNone = 0,
  kModrm = 1,
  kImm8 = 2,
  kImm32 = 4,     // 2 bytes with a 0x66 prefix
  kImm16 = 8,     // always
  kRel8 = 16,     // always last
  kRel32 = 32,    // always last
  kOther = 64,    // not for this decoder
  kGroup3 = 128,  // f6, f7: an immediate only for /0 and /1
};
using Map = std::array<std::uint8_t, 256>;

constexpr void fill(Map& map, int first, int last, std::uint8_t form) {
  for (int i = first; i <= last; ++i) map[static_cast<std::size_t>(i)] = form;
}

constexpr Map make_one_byte() {
  Map map{};
  for (int row = 0; row < 0x40; row += 8) {  // add or adc sbb and sub xor cmp
    fill(map, row, row + 3, kModrm);
    map[static_cast<std::size_t>(row + 4)] = kImm8;
    map[static_cast<std::size_t>(row + 5)] = kImm32;
    fill(map, row + 6, row + 7, kOther);  // push/pop es..., daa..., and prefixes
  }
  map[0x0f] = kOther;             // the escape, handled before
  fill(map, 0x40, 0x4f, kOther);  // REX, handled before
  fill(map, 0x50, 0x5f, kNone);
  fill(map, 0x60, 0x62, kOther);  // 62: EVEX, handled before
  map[0x63] = kModrm;
  fill(map, 0x64, 0x67, kOther);  // prefixes
  map[0x68] = kImm32;
  map[0x69] = kModrm | kImm32;
  map[0x6a] = kImm8;
  map[0x6b] = kModrm | kImm8;
  fill(map, 0x6c, 0x6f, kNone);
  fill(map, 0x70, 0x7f, kRel8);
  map[0x80] = kModrm | kImm8;
  map[0x81] = kModrm | kImm32;
  map[0x82] = kOther;
  map[0x83] = kModrm | kImm8;
  fill(map, 0x84, 0x8e, kModrm);
  map[0x8f] = kOther;  // pop or XOP
  fill(map, 0x90, 0x99, kNone);
  map[0x9a] = kOther;
  fill(map, 0x9b, 0x9f, kNone);
  fill(map, 0xa0, 0xa3, kOther);  // moffs
  fill(map, 0xa4, 0xa7, kNone);
  map[0xa8] = kImm8;
  map[0xa9] = kImm32;
  fill(map, 0xaa, 0xaf, kNone);
  fill(map, 0xb0, 0xb7, kImm8);
  fill(map, 0xb8, 0xbf, kImm32);  // imm64 with REX.W, handled
  fill(map, 0xc0, 0xc1, kModrm | kImm8);
  map[0xc2] = kImm16;
  map[0xc3] = kNone;
  fill(map, 0xc4, 0xc5, kOther);  // VEX, handled before
  map[0xc6] = kModrm | kImm8;     // mov; xabort and xbegin are sorted out in modrm()
  map[0xc7] = kModrm | kImm32;
  fill(map, 0xc8, 0xca, kOther);
  map[0xc9] = kNone;
  map[0xcb] = kNone;
  map[0xcc] = kNone;
  map[0xcd] = kImm8;
  map[0xce] = kOther;
  map[0xcf] = kNone;
  fill(map, 0xd0, 0xd3, kModrm);
  fill(map, 0xd4, 0xd6, kOther);
  map[0xd7] = kNone;
  fill(map, 0xd8, 0xdf, kModrm);
  fill(map, 0xe0, 0xe3, kRel8);
  fill(map, 0xe4, 0xe7, kImm8);
  map[0xe8] = kRel32;
  map[0xe9] = kRel32;
  map[0xea] = kOther;
  map[0xeb] = kRel8;
  fill(map, 0xec, 0xef, kNone);
  map[0xf0] = kOther;
  map[0xf1] = kNone;
  fill(map, 0xf2, 0xf3, kOther);
  fill(map, 0xf4, 0xf5, kNone);
  fill(map, 0xf6, 0xf7, kModrm | kGroup3);
  fill(map, 0xf8, 0xfd, kNone);
  fill(map, 0xfe, 0xff, kModrm);
  return map;
}

constexpr Map make_two_byte() {
  Map map{};
  fill(map, 0x00, 0xff, kModrm);
  fill(map, 0x00, 0x0f, kOther);
  map[0x05] = kNone;   // syscall
  map[0x0b] = kNone;   // ud2
  map[0x0d] = kModrm;  // prefetchw
  fill(map, 0x20, 0x27, kOther);
  fill(map, 0x30, 0x37, kOther);
  map[0x31] = kNone;              // rdtsc
  fill(map, 0x38, 0x3f, kOther);  // three-byte maps, handled before
  fill(map, 0x70, 0x73, kModrm | kImm8);
  map[0x77] = kNone;
  fill(map, 0x78, 0x79, kOther);
  fill(map, 0x80, 0x8f, kRel32);
  fill(map, 0xa0, 0xa2, kNone);
  map[0xa4] = kModrm | kImm8;
  fill(map, 0xa6, 0xa7, kOther);
  fill(map, 0xa8, 0xaa, kNone);
  map[0xac] = kModrm | kImm8;
  map[0xba] = kModrm | kImm8;
  map[0xc2] = kModrm | kImm8;
  fill(map, 0xc4, 0xc6, kModrm | kImm8);
  fill(map, 0xc8, 0xcf, kNone);
  return map;
}

// VEX and EVEX map 1 and map 5: as 0f, but nothing is a branch or lacks a ModRM.
constexpr Map make_vector() {
  Map map{};
  fill(map, 0x00, 0xff, kModrm);
  fill(map, 0x70, 0x73, kModrm | kImm8);
  map[0xc2] = kModrm | kImm8;
  fill(map, 0xc4, 0xc6, kModrm | kImm8);
  return map;
}

constexpr Map kOneByte = make_one_byte();
constexpr Map kTwoByte = make_two_byte();
constexpr Map kVectorMap1 = make_vector();

// Positions are indices: a hostile tail may lead past the end, which run() checks last.
class Scanner {
 public:
  explicit Scanner(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // False: not for this decoder (or cut off); Zydis decides.
  bool run(Scanned& out) {
    if (!prefixes() || !opcode() || (form_ & kOther) != 0) return false;
    if ((form_ & kModrm) != 0 && !modrm(out)) return false;
    at_ += immediate_size();
    if (at_ > bytes_.size()) return false;
    out.length = static_cast<std::uint8_t>(at_);
    if ((form_ & kRel8) != 0) out.relative_size = 1;
    if ((form_ & kRel32) != 0) out.relative_size = 4;
    out.call = opcode_ == 0xe8;
    const bool imm32 = (form_ & kImm32) != 0 && immediate_size() == 4;
    out.immediate32 = imm32 && ((opcode_ & 0xf8) == 0xb8 || opcode_ == 0xc7 || opcode_ == 0x68);
    return true;
  }

 private:
  bool left(std::size_t n) const { return bytes_.size() - at_ >= n; }
  std::uint8_t next() { return std::to_integer<std::uint8_t>(bytes_[at_++]); }

  // Leaves at_ at the opcode, VEX, EVEX or escape byte.
  bool prefixes() {
    for (;; ++at_) {
      if (!left(1)) return false;
      const auto byte = std::to_integer<std::uint8_t>(bytes_[at_]);
      switch (byte) {
        case 0x66:
          operand_size_ = true;
          continue;
        case 0x67:
          return false;  // changes the size of moffs; rare
        case 0x26:
        case 0x2e:
        case 0x36:
        case 0x3e:
        case 0x64:
        case 0x65:
        case 0xf0:
        case 0xf2:
        case 0xf3:
          continue;
        default:
          break;
      }
      if ((byte & 0xf0) == 0x40) {
        wide_ = (byte & 8) != 0;
        ++at_;
        return left(1);
      }
      return true;
    }
  }

  bool opcode() {
    const std::uint8_t first = next();
    if (first == 0x0f) return escape();
    if (first == 0xc5) return left(2) && vector_map(1, 1);
    if (first == 0xc4)
      return left(3) && vector_map(std::to_integer<unsigned>(bytes_[at_]) & 0x1f, 2);
    if (first == 0x62) {
      evex_ = true;
      return left(4) && vector_map(std::to_integer<unsigned>(bytes_[at_]) & 7, 3);
    }
    form_ = kOneByte[first];
    opcode_ = first;
    // A 0x66 prefix before a near branch: AMD takes 16-bit operands.
    return !(operand_size_ && (form_ & kRel32) != 0);
  }

  bool escape() {
    if (!left(1)) return false;
    const std::uint8_t second = next();
    if (second == 0x38 || second == 0x3a) {
      if (!left(1)) return false;
      ++at_;
      form_ = second == 0x38 ? kModrm : kModrm | kImm8;
      return true;
    }
    form_ = kTwoByte[second];
    return !(operand_size_ && (form_ & kRel32) != 0);
  }

  bool vector_map(unsigned map, std::size_t payload) {
    at_ += payload;
    const std::uint8_t op = next();
    switch (map) {
      case 1:
        form_ = op == 0x77 && !evex_ ? std::uint8_t{kNone} : kVectorMap1[op];
        return true;
      case 2:
        form_ = kModrm;
        return true;
      case 3:
        form_ = kModrm | kImm8;
        return true;
      default:
        return false;
    }
  }

  bool modrm(Scanned& out) {
    if (!left(1)) return false;
    const unsigned byte = next();
    const unsigned mod = byte >> 6;
    const unsigned rm = byte & 7;
    const unsigned reg = (byte >> 3) & 7;
    if ((form_ & kGroup3) != 0 && reg < 2) form_ |= opcode_ == 0xf6 ? kImm8 : kImm32;
    if ((opcode_ & 0xfe) == 0xc6 && reg != 0) return false;
    if (mod == 3) return true;
    out.rip_lea = opcode_ == 0x8d && mod == 0 && rm == 5;
    unsigned base = rm;
    if (rm == 4) {
      if (!left(1)) return false;
      base = next() & 7u;
    }
    if (mod == 1) at_ += 1;
    if (mod == 2 || (mod == 0 && base == 5)) at_ += 4;
    return true;
  }

  std::size_t immediate_size() const {
    std::size_t size = 0;
    if ((form_ & kImm8) != 0) size += 1;
    if ((form_ & kImm16) != 0) size += 2;
    if ((form_ & kRel8) != 0) size += 1;
    if ((form_ & kRel32) != 0) size += 4;
    if ((form_ & kImm32) != 0) {
      const bool imm64 = wide_ && (opcode_ & 0xf8) == 0xb8;
      size += imm64 ? 8 : (operand_size_ && !wide_) ? 2 : 4;
    }
    return size;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint8_t form_ = kOther;
  std::uint8_t opcode_ = 0;  // of the one-byte map; else 0
  bool operand_size_ = false;
  bool wide_ = false;
  bool evex_ = false;
};

}  // namespace

Scanned scan_instruction(std::span<const std::byte> bytes) {
  Scanned out;
  if (bytes.size() > kMaxInstruction) bytes = bytes.first(kMaxInstruction);
  if (Scanner(bytes).run(out)) return out;
  out = {};
  const auto full = decode(bytes, 0);
  if (!full) return out;
  out.length = full->length;
  // The operand of a branch is its last; a 2-byte one belongs to no branch that a compiler makes.
  if (full->relative_size == 1 || full->relative_size == 4) {
    out.relative_size = full->relative_size;
    out.call = full->kind == Kind::kCallDirect;
  }
  return out;
}

}  // namespace trapline::isa
