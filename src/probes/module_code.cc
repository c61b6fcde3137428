#include "probes/module_code.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "symbols/relocations.h"

namespace trapline::probes {

namespace {

isa::CodeRange to_code_range(symbols::AddressRange range) { return {range.begin, range.end}; }

std::vector<isa::CodeSection> code_sections(const symbols::ElfImage& image) {
  std::vector<isa::CodeSection> sections;
  for (const symbols::AddressRange range : image.code_ranges()) {
    if (const auto bytes = image.bytes_at(range)) sections.push_back({range.begin, *bytes});
  }
  return sections;
}

// What relative relocations put into data: slot address -> value, both link addresses. Sorted.
using RelativeValues = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

RelativeValues relative_values(const symbols::ElfImage& image) {
  RelativeValues values;
  for (const symbols::GotSlot& slot : symbols::got_slots(image, symbols::RelativeSlots::kInclude)) {
    if (slot.kind != symbols::SlotKind::kRelative) continue;
    values.emplace_back(slot.address.value(), static_cast<std::uint64_t>(slot.addend));
  }
  std::ranges::sort(values);
  return values;
}

std::vector<LinkAddr> pointers_in_data(const symbols::ElfImage& image,
                                       const std::vector<isa::CodeSection>& sections,
                                       const RelativeValues& values) {
  std::vector<LinkAddr> pointers;
  const auto add_if_code = [&](std::uint64_t value) {
    for (const isa::CodeSection& section : sections) {
      if (value >= section.address.value() &&
          value - section.address.value() < section.bytes.size()) {
        pointers.emplace_back(value);
      }
    }
  };
  if (image.kind() != symbols::ImageKind::kFixedExecutable) {
    for (const auto& [slot, value] : values) add_if_code(value);
    return pointers;
  }
  for (const symbols::Segment& segment : image.segments()) {
    if (segment.executable || segment.file_size == 0) continue;
    const auto bytes =
        image.bytes_at({segment.memory.begin, segment.memory.begin + segment.file_size});
    if (!bytes) continue;
    const auto found = isa::scan_code_pointers(sections, *bytes);
    pointers.insert(pointers.end(), found.begin(), found.end());
  }
  return pointers;
}

// Reads data as it is after relative relocation.
isa::ReadData data_reader(const symbols::ElfImage& image, RelativeValues values) {
  return [&image, values = std::move(values)](LinkAddr at, std::span<std::byte> out) {
    const auto bytes = image.bytes_at({at, at + out.size()});
    if (!bytes) return false;
    std::memcpy(out.data(), bytes->data(), out.size());
    auto slot = std::ranges::lower_bound(values, std::make_pair(at.value(), std::uint64_t{0}));
    for (; slot != values.end() && slot->first + 8 <= at.value() + out.size(); ++slot) {
      std::memcpy(out.data() + (slot->first - at.value()), &slot->second, 8);
    }
    return true;
  };
}

}  // namespace

std::unique_ptr<isa::ModuleCode> read_module_code(const symbols::Module& module,
                                                  const symbols::SymbolTable& symbols,
                                                  const symbols::CodeFacts& facts) {
  const symbols::ElfImage& image = *module.image;
  isa::ModuleInput input;
  input.sections = code_sections(image);
  for (const symbols::Symbol& symbol : symbols.symbols()) {
    input.functions.push_back(to_code_range(symbol.range()));
    if (symbol.clone == symbols::CloneKind::kCold) input.cold.push_back(input.functions.back());
  }
  for (const symbols::AddressRange range : facts.frames.functions)
    input.frames.push_back(to_code_range(range));
  input.landing_pads = facts.frames.landing_pads;
  RelativeValues values = relative_values(image);
  input.code_pointers = pointers_in_data(image, input.sections, values);
  // Of an image that was read from memory we do not see the relocations of data that the program
  // has changed since.
  input.pointers = image.source() == symbols::ImageSource::kProcessMemory
                       ? isa::CodePointers::kUnknown
                       : isa::CodePointers::kComplete;
  input.model = image.kind() == symbols::ImageKind::kFixedExecutable ? isa::AddressModel::kFixed
                                                                     : isa::AddressModel::kRelative;
  for (const symbols::RseqSection& section : facts.rseq) {
    input.excluded.push_back(to_code_range(section.code));
    input.excluded.push_back({section.abort_handler - 4, section.abort_handler});
  }
  input.read_data = data_reader(image, std::move(values));
  return std::make_unique<isa::ModuleCode>(std::move(input));
}

}  // namespace trapline::probes
