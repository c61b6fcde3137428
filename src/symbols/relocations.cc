#include "symbols/relocations.h"

#include <elf.h>

#include "base/cursor.h"
#include "symbols/dynamic_symbols.h"

namespace trapline::symbols {
namespace {

constexpr std::size_t kMaxSlots = 1 << 24;

class SlotReader {
 public:
  SlotReader(const ElfImage& image, RelativeSlots relative) : image_(image), relative_(relative) {
    if (auto symbols = DynamicSymbols::read(image)) symbols_ = std::move(*symbols);
  }

  std::vector<GotSlot> run() {
    const DynamicInfo& d = image_.dynamic();
    if (d.present) {
      table(d.rela, d.rela_size);
      // Some linkers let DT_RELA's range include DT_JMPREL's.
      const bool included = d.rela <= d.jmprel && d.jmprel < d.rela + d.rela_size;
      if (!included) table(d.jmprel, d.jmprel_size);
      if (relative_ == RelativeSlots::kInclude) compact_table(d.relr, d.relr_size);
    } else {
      for (const Section& s : image_.sections()) {
        if (s.type == SHT_RELA && (s.flags & SHF_ALLOC) != 0) table(s.address, s.size);
      }
    }
    return std::move(slots_);
  }

 private:
  void table(LinkAddr begin, std::uint64_t size) {
    if (size == 0 || begin.value() + size < begin.value()) return;
    auto bytes = image_.bytes_at({begin, begin + size});
    if (!bytes) return;
    Cursor cursor(*bytes);
    while (cursor.remaining() >= sizeof(Elf64_Rela) && slots_.size() < kMaxSlots) {
      add(cursor.read<Elf64_Rela>());
    }
  }

  void add(const Elf64_Rela& r) {
    const auto type = ELF64_R_TYPE(r.r_info);
    GotSlot slot{LinkAddr(r.r_offset), SlotKind::kRelative, r.r_addend, {}, {}};
    switch (type) {
      case R_X86_64_RELATIVE:
        if (relative_ == RelativeSlots::kInclude) slots_.push_back(slot);
        return;
      case R_X86_64_IRELATIVE:
        slot.kind = SlotKind::kIrelative;
        slots_.push_back(slot);
        return;
      case R_X86_64_GLOB_DAT:
        slot.kind = SlotKind::kGlobDat;
        break;
      case R_X86_64_JUMP_SLOT:
        slot.kind = SlotKind::kJumpSlot;
        break;
      case R_X86_64_64:
        slot.kind = SlotKind::kAbsolute;
        break;
      default:
        return;
    }
    const std::size_t index = ELF64_R_SYM(r.r_info);
    if (index == 0 || index >= symbols_.size()) return;
    slot.symbol = symbols_.name(symbols_.symbol(index));
    slot.version = symbols_.version(index).name;
    slots_.push_back(slot);
  }

  // RELR: an even word is an address; an odd one a bitmap of the 63 words that follow the last.
  void compact_table(LinkAddr begin, std::uint64_t size) {
    if (size == 0 || begin.value() + size < begin.value()) return;
    auto bytes = image_.bytes_at({begin, begin + size});
    if (!bytes) return;
    Cursor cursor(*bytes);
    std::uint64_t where = 0;
    while (cursor.remaining() >= 8 && slots_.size() < kMaxSlots) {
      const auto word = cursor.read<std::uint64_t>();
      if ((word & 1) == 0) {
        add_compact(LinkAddr(word));
        where = word + 8;
        continue;
      }
      for (unsigned bit = 1; bit < 64; ++bit) {
        if ((word >> bit & 1) != 0) add_compact(LinkAddr(where + (bit - 1) * 8));
      }
      where += 63 * 8;
    }
  }

  // The addend is in the slot itself; in a process's memory it has been relocated already.
  void add_compact(LinkAddr at) {
    if (at.value() + 8 < at.value()) return;
    auto bytes = image_.bytes_at({at, at + 8});
    if (!bytes) return;
    std::uint64_t addend = Cursor(*bytes).read<std::uint64_t>();
    if (image_.source() == ImageSource::kProcessMemory) addend -= image_.memory_bias().value;
    slots_.push_back({at, SlotKind::kRelative, static_cast<std::int64_t>(addend), {}, {}});
  }

  const ElfImage& image_;
  RelativeSlots relative_;
  DynamicSymbols symbols_;
  std::vector<GotSlot> slots_;
};

}  // namespace

std::vector<GotSlot> got_slots(const ElfImage& image, RelativeSlots relative) {
  return SlotReader(image, relative).run();
}

}  // namespace trapline::symbols
