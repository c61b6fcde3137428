// See layout.h.

#include "ctypes/layout.h"

#include <algorithm>

namespace trapline::ctypes {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

std::optional<Layout> lay_out_members(const TypeTable& table, TypeKind kind,
                                      std::span<Member> members) {
  std::uint64_t next = 0;  // first free bit
  std::uint64_t end = 0;   // of the widest member of a union
  Layout out;
  for (std::size_t i = 0; i < members.size(); ++i) {
    Member& member = members[i];
    const Type& type = table.get(table.resolve(member.type));
    const std::uint64_t size = type.size;
    const bool flexible =
        type.kind == TypeKind::kArray && !type.is_complete && i + 1 == members.size();
    if (size == 0 && !flexible && !(type.kind == TypeKind::kArray && type.is_complete) &&
        !((type.kind == TypeKind::kStruct || type.kind == TypeKind::kUnion) && type.is_complete)) {
      return std::nullopt;
    }
    if (size > kMaxTypeSize) return std::nullopt;
    if (kind == TypeKind::kUnion) next = 0;

    const bool is_bit_field =
        member.bit_width != 0 || (member.name.empty() && table.is_integer(member.type));
    if (is_bit_field) {
      const std::uint64_t unit = size * 8;
      if (member.bit_width == 0 || next % unit + member.bit_width > unit)
        next = round_up(next, unit);
      if (!member.name.empty()) out.align = std::max(out.align, type.align);
      member.bit_offset = next;
      next += member.bit_width;
    } else {
      next = round_up(next, std::uint64_t{type.align} * 8);
      out.align = std::max(out.align, type.align);
      member.bit_offset = next;
      next += size * 8;
    }
    end = std::max(end, next);
    if (end > kMaxTypeSize * 8) return std::nullopt;
  }
  out.size = round_up(round_up(end, 8) / 8, out.align);
  return out;
}

}  // namespace trapline::ctypes
