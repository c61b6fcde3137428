#include "symbols/usdt_notes.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "symbols/symbol_table.h"
#include "symbols/test_support.h"

namespace trapline::symbols {
namespace {

LinkAddr function_at(const ElfImage& image, const char* name) {
  const auto table = SymbolTable::read(image);
  const auto found = table->named(name);
  return found.empty() ? LinkAddr() : found.front()->address;
}

// Moves the section as a prelinker would: all but the notes learn of it.
std::vector<std::byte> with_base_moved(std::vector<std::byte> bytes, std::uint64_t by) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto section_at = [&](std::size_t n) { return header.e_shoff + n * sizeof(Elf64_Shdr); };
  const auto read = [&](std::size_t n) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + section_at(n), sizeof(section));
    return section;
  };
  const Elf64_Shdr names = read(header.e_shstrndx);
  for (std::size_t n = 0; n < header.e_shnum; ++n) {
    Elf64_Shdr section = read(n);
    const auto* name =
        reinterpret_cast<const char*>(bytes.data()) + names.sh_offset + section.sh_name;
    if (std::string_view(name) != ".stapsdt.base") continue;
    section.sh_addr += by;
    std::memcpy(bytes.data() + section_at(n), &section, sizeof(section));
  }
  return bytes;
}

TEST(UsdtNotes, AreThoseOfTheRightOwnerAndType) {
  const auto image = ElfImage::open(fixture("libprobes.so"));
  ASSERT_TRUE(image) << image.error().text();
  const std::vector<UsdtNote> notes = read_usdt_notes(*image);
  ASSERT_EQ(notes.size(), 2u);
  const LinkAddr probed = function_at(*image, "probed");
  EXPECT_EQ(notes[0].provider, "fixture");
  EXPECT_EQ(notes[0].name, "request__start");
  EXPECT_EQ(notes[0].arguments, "-4@%edi 8@shared_object(%rip)");
  EXPECT_EQ(notes[0].site, probed);
  EXPECT_EQ(notes[0].semaphore, find_object(*image, "semaphore"));
  EXPECT_EQ(notes[1].name, "done");
  EXPECT_EQ(notes[1].site, probed + 3);
  EXPECT_EQ(notes[1].semaphore, LinkAddr());
  EXPECT_EQ(notes[1].arguments, "");
}

TEST(UsdtNotes, MoveWithTheirBase) {
  const std::string path = fixture("libprobes.so");
  const auto image = ElfImage::open(path);
  const auto moved = ElfImage::from_bytes(with_base_moved(read_file(path), 0x5000), "moved");
  ASSERT_TRUE(moved) << moved.error().text();
  const auto before = read_usdt_notes(*image);
  const auto after = read_usdt_notes(*moved);
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after[0].site, before[0].site + 0x5000);
  EXPECT_EQ(after[0].semaphore, before[0].semaphore + 0x5000);
  EXPECT_EQ(after[1].semaphore, LinkAddr());
}

TEST(UsdtNotes, NoneInAFileWithoutAny) {
  const auto image = ElfImage::open(fixture("libcaller.so"));
  ASSERT_TRUE(image);
  EXPECT_TRUE(read_usdt_notes(*image).empty());
}

TEST(FindObject, ByItsWholeName) {
  const auto image = ElfImage::open(fixture("libprobes.so"));
  const auto shared = find_object(*image, "shared_object");
  ASSERT_TRUE(shared);
  EXPECT_EQ(find_object(*image, "lone"), *shared + 8);
  EXPECT_EQ(find_object(*image, "shared"), std::nullopt);
  EXPECT_EQ(find_object(*image, "probed"), std::nullopt);
  EXPECT_EQ(find_object(*image, ""), std::nullopt);
}

}  // namespace
}  // namespace trapline::symbols
