#include "symbols/code_facts.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "base/cursor.h"
#include "symbols/relocations.h"

namespace trapline::symbols {
namespace {

constexpr std::size_t kRseqEntrySize = 32;
constexpr std::size_t kMaxRseqEntries = 1 << 16;

}  // namespace

std::vector<AddressRange> plt_ranges(const ElfImage& image) {
  constexpr std::array<std::string_view, 6> kNames = {".plt",  ".plt.sec", ".plt.got",
                                                      ".iplt", ".plt.bnd", ".got.iplt"};
  std::vector<AddressRange> out;
  for (const Section& s : image.sections()) {
    const bool code = (s.flags & SHF_EXECINSTR) != 0;
    if (code && s.size > 0 && std::ranges::find(kNames, s.name) != kNames.end()) {
      out.push_back(s.range());
    }
  }
  std::ranges::sort(out);
  return out;
}

// struct rseq_cs { u32 version, flags; u64 start_ip, post_commit_offset, abort_ip; }. In
// position-independent code the two addresses are relocated, and the file may hold zero where the
// relocation has the addend.
std::vector<RseqSection> rseq_sections(const ElfImage& image) {
  std::vector<RseqSection> out;
  const Section* section = image.find_section("__rseq_cs");
  if (section == nullptr || section->size == 0) return out;
  auto bytes = image.section_bytes(*section);
  if (!bytes) return out;
  std::unordered_map<std::uint64_t, std::uint64_t> relocated;
  for (const GotSlot& slot : got_slots(image, RelativeSlots::kInclude)) {
    if (slot.kind == SlotKind::kRelative && section->range().contains(slot.address)) {
      relocated[slot.address.value()] = static_cast<std::uint64_t>(slot.addend);
    }
  }
  const auto address_at = [&](std::uint64_t at, std::uint64_t in_file) {
    const auto it = relocated.find(at);
    return LinkAddr(it == relocated.end() ? in_file : it->second);
  };
  Cursor cursor(*bytes);
  while (cursor.remaining() >= kRseqEntrySize && out.size() < kMaxRseqEntries) {
    const std::uint64_t at = section->address.value() + cursor.offset();
    cursor.skip(8);
    const LinkAddr start = address_at(at + 8, cursor.read<std::uint64_t>());
    const auto length = cursor.read<std::uint64_t>();
    const LinkAddr abort = address_at(at + 24, cursor.read<std::uint64_t>());
    if (start == LinkAddr() || start.value() + length < start.value()) continue;
    out.push_back({{start, start + length}, abort});
  }
  return out;
}

CodeFacts read_code_facts(const ElfImage& image) {
  return {read_exception_frames(image), plt_ranges(image), rseq_sections(image)};
}

bool is_go(const ElfImage& image) {
  return image.find_section(".gopclntab") != nullptr ||
         image.find_section(".data.rel.ro.gopclntab") != nullptr;
}

}  // namespace trapline::symbols
