// A module's dynamic relocations, as far as a tracer needs them: which GOT slots hold which
// function's address.
//
// Approach: DT_RELA, DT_JMPREL, DT_RELR; for static programs the allocated SHT_RELA sections.
// Sources: x86-64 psABI 4.4; gABI for RELR.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "symbols/elf_image.h"

namespace trapline::symbols {

enum class SlotKind : std::uint8_t {
  kRelative,   // R_X86_64_RELATIVE: bias + addend
  kIrelative,  // R_X86_64_IRELATIVE: what the resolver at `addend` returned
  kGlobDat,    // the address of a symbol, bound when the module was loaded
  kJumpSlot,   // the same for PLT calls: with lazy binding, until the first call, a pointer to the
               // PLT itself
  kAbsolute,   // R_X86_64_64: the address of a symbol + addend, in data
};

struct GotSlot {
  LinkAddr address;  // of the 8 bytes in this module
  SlotKind kind;
  std::int64_t addend = 0;
  std::string_view symbol;   // empty for kRelative, kIrelative; lives as long as the image
  std::string_view version;  // the version asked for; empty: none
};

enum class RelativeSlots : std::uint8_t { kSkip, kInclude };

// Broken relocation tables end the list early: the caller sees fewer slots, never wrong ones.
std::vector<GotSlot> got_slots(const ElfImage& image,
                               RelativeSlots relative = RelativeSlots::kSkip);

}  // namespace trapline::symbols
