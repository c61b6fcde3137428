// Statically defined probes (USDT): what the notes of a file say of them.
//
// A program that has some carries a nop at each place, and in the section .note.stapsdt, which is
// not loaded, a note for it: three addresses (the nop, what .stapsdt.base was when the note was
// made, a semaphore or 0), then provider, name and arguments as NUL-terminated text. A prelinker
// that moves the file adjusts .stapsdt.base, not the notes; so do we, by the difference. Limits: a
// file whose section headers are gone, or only known from a process's memory, has none. Sources:
// SystemTap's sys/sdt.h, "UserSpaceProbeImplementation" in its wiki.

#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "symbols/elf_image.h"

namespace trapline::symbols {

struct UsdtNote {
  LinkAddr site;
  LinkAddr semaphore;  // of its 16-bit counter; 0: none
  // These live as long as the image.
  std::string_view provider;
  std::string_view name;       // "__" stands for "-"
  std::string_view arguments;  // "-4@%edi 8@-16(%rbp)"
};

inline constexpr std::size_t kMaxUsdtNotes = 1'000'000;

// In the order of the file. Never fails: what is damaged is left out.
std::vector<UsdtNote> read_usdt_notes(const ElfImage& image);

// The address of an object (data, not a function) by its linked name, as operands of arguments name
// it; nullopt: none, or several local ones of that name.
std::optional<LinkAddr> find_object(const ElfImage& image, std::string_view name);

}  // namespace trapline::symbols
