// Reads everything that this folder can read of an ELF file: for the tests with damaged files and
// the fuzz target.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "symbols/code_facts.h"
#include "symbols/debug_files.h"
#include "symbols/elf_image.h"
#include "symbols/ifunc.h"
#include "symbols/relocations.h"
#include "symbols/symbol_table.h"
#include "symbols/usdt_notes.h"

namespace trapline::symbols {

// A number that depends on what was read, so that nothing is optimised away.
inline std::size_t exercise_image(const ElfImage& image, const MemoryReader& memory) {
  std::size_t sum = image.sections().size() + static_cast<std::size_t>(image.kind()) +
                    (image.is_go() ? 1U : 0U) + (image.is_stripped() ? 1U : 0U) +
                    image.dynamic().needed.size() + image.interpreter().size();
  if (image.build_id()) sum += image.build_id()->hex().size();
  for (const Section& s : image.sections()) {
    if (auto bytes = image.section_bytes(s)) sum += bytes->size();
  }
  for (const AddressRange& range : image.text_ranges()) {
    if (auto bytes = image.bytes_at(range)) sum += bytes->size();
    if (auto text = image.string_at(range.begin)) sum += text->size();
  }
  const CodeFacts facts = read_code_facts(image);
  sum += facts.frames.landing_pads.size() + facts.frames.functions.size() + facts.plt.size() +
         facts.rseq.size();
  sum += got_slots(image, RelativeSlots::kInclude).size();
  for (const UsdtNote& note : read_usdt_notes(image)) {
    sum += note.provider.size() + note.name.size() + note.arguments.size() + note.site.value();
    if (find_object(image, note.name)) ++sum;
  }
  if (debug_link(image)) ++sum;
  if (const Section* data = image.find_section(".gnu_debugdata")) {
    if (read_debug_data(image, *data)) ++sum;
  }
  auto table = SymbolTable::read(image, {DebugFiles::kIgnore, {}, {}});
  if (!table) return sum;
  for (const Symbol& s : table->symbols()) {
    sum += s.name.size() + s.size + table->at(s.address).size() + table->cold_parts(s).size();
    if (const Symbol* found = table->containing(s.address + s.size / 2)) sum += found->size;
  }
  const LoadedImage loaded{&image, {}};
  for (const IfuncChoice& c : choose_ifuncs(loaded, *table, std::span(&loaded, 1), memory)) {
    sum += c.implementations.size() + c.also.size();
  }
  return sum;
}

inline std::size_t exercise_bytes(std::span<const std::byte> bytes) {
  // The file's bytes serve as the process's memory as well.
  const MemoryReader memory = [bytes](RemoteAddr from, std::span<std::byte> into) -> Result<> {
    if (from.value() > bytes.size() || into.size() > bytes.size() - from.value()) {
      return Error(ErrorCode::kOs, "not mapped");
    }
    std::ranges::copy(bytes.subspan(from.value(), into.size()), into.begin());
    return {};
  };
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());
  std::size_t sum = 0;
  if (auto image = ElfImage::from_bytes(copy, "bytes")) sum += exercise_image(*image, memory);
  if (auto image = ElfImage::debug_file_from_bytes(copy, "debug")) {
    sum += exercise_image(*image, memory);
  }
  if (auto image = ElfImage::from_memory(memory, RemoteAddr(0), "memory")) {
    sum += exercise_image(*image, memory);
  }
  return sum;
}

}  // namespace trapline::symbols
