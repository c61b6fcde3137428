// Where the members of a structure or union lie.
//
// The rules of the System V ABI for x86-64: a member starts at a multiple of its alignment; a
// bit-field of type T and w bits lies within one aligned T, else it starts the next; a bit-field of
// width 0 closes the unit; unnamed bit-fields do not raise the alignment of the whole. As GCC and
// clang do it.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ctypes/type.h"

namespace trapline::ctypes {

struct Layout {
  std::uint64_t size = 0;
  std::uint32_t align = 1;
};

// Fills in each member's bit_offset. nullopt: larger than kMaxTypeSize, or a member's type has no
// size (a last array without a count excepted). Precondition: `kind` is kStruct or kUnion.
std::optional<Layout> lay_out_members(const TypeTable& table, TypeKind kind,
                                      std::span<Member> members);

}  // namespace trapline::ctypes
