#include "isa/x86_64/assembler.h"

#include <cstring>
#include <limits>

#include "base/check.h"

namespace trapline::isa {
namespace {

std::int64_t distance(RemoteAddr from, RemoteAddr to) {
  return static_cast<std::int64_t>(to - from);
}

bool fits32(std::int64_t value) {
  return value >= std::numeric_limits<std::int32_t>::min() &&
         value <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

void Assembler::bytes(std::initializer_list<std::uint8_t> values) {
  for (const std::uint8_t value : values) code_.push_back(std::byte{value});
}

void Assembler::bytes(std::span<const std::byte> values) {
  code_.insert(code_.end(), values.begin(), values.end());
}

void Assembler::u32(std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) {
    code_.push_back(static_cast<std::byte>(value >> shift & 0xff));
  }
}

void Assembler::u64(std::uint64_t value) {
  u32(static_cast<std::uint32_t>(value));
  u32(static_cast<std::uint32_t>(value >> 32));
}

bool Assembler::reaches(RemoteAddr target, std::size_t length) const {
  return fits32(distance(here() + length, target));
}

void Assembler::jump(RemoteAddr target) {
  if (reaches(target, 5)) {
    const auto rel = static_cast<std::uint32_t>(distance(here() + 5, target));
    bytes({0xe9});
    u32(rel);
  } else {
    bytes({0xff, 0x25, 0, 0, 0, 0});
    u64(target.value());
  }
}

void Assembler::jump_if(std::uint8_t condition, RemoteAddr target) {
  if (reaches(target, 6)) {
    const auto rel = static_cast<std::uint32_t>(distance(here() + 6, target));
    bytes({0x0f, static_cast<std::uint8_t>(0x80 | condition)});
    u32(rel);
  } else {
    bytes({static_cast<std::uint8_t>(0x70 | (condition ^ 1)), 14});
    jump(target);
  }
}

void Assembler::call_clobbering_r11(RemoteAddr target) {
  if (reaches(target, 5)) {
    const auto rel = static_cast<std::uint32_t>(distance(here() + 5, target));
    bytes({0xe8});
    u32(rel);
  } else {
    bytes({0x49, 0xbb});
    u64(target.value());
    bytes({0x41, 0xff, 0xd3});
  }
}

void Assembler::load_address_r10(RemoteAddr value) {
  if (reaches(value, 7)) {
    const auto rel = static_cast<std::uint32_t>(distance(here() + 7, value));
    bytes({0x4c, 0x8d, 0x15});
    u32(rel);
  } else {
    bytes({0x49, 0xba});
    u64(value.value());
  }
}

void Assembler::patch_rel32(std::size_t at, std::size_t target) {
  TL_CHECK(at + 4 <= code_.size());
  const auto rel = static_cast<std::int32_t>(static_cast<std::int64_t>(target) -
                                             static_cast<std::int64_t>(at + 4));
  std::memcpy(code_.data() + at, &rel, sizeof(rel));
}

}  // namespace trapline::isa
