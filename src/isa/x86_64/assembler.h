// A small assembler: bytes appended at a known address, for trampolines and tests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/address.h"

namespace trapline::isa {

class Assembler {
 public:
  explicit Assembler(RemoteAddr address) : address_(address) {}

  void bytes(std::initializer_list<std::uint8_t> values);
  void bytes(std::span<const std::byte> values);
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);

  std::size_t offset() const { return code_.size(); }
  RemoteAddr here() const { return address_ + code_.size(); }
  // Whether a rel32 that ends `length` bytes from here reaches the target.
  bool reaches(RemoteAddr target, std::size_t length) const;

  void jump(RemoteAddr target);                             // e9, or ff 25 imm64
  void jump_if(std::uint8_t condition, RemoteAddr target);  // 0f 8x, or around a far jump
  void call_clobbering_r11(RemoteAddr target);              // e8, or through r11
  void load_address_r10(RemoteAddr value);                  // lea r10,[rip+x], or movabs

  // Overwrites 4 bytes at `at` so that a rel32 there leads to offset `target`.
  void patch_rel32(std::size_t at, std::size_t target);

  void replace(std::size_t at, std::byte value) { code_.at(at) = value; }

  std::span<const std::byte> code() const { return code_; }
  std::vector<std::byte> take() { return std::move(code_); }

 private:
  RemoteAddr address_;
  std::vector<std::byte> code_;
};

}  // namespace trapline::isa
