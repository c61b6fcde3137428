#include "symbols/code_facts.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "symbols/symbol_table.h"
#include "symbols/test_support.h"

namespace trapline::symbols {
namespace {

TEST(CodeFacts, LandingPadsLieInTheirFunction) {
  const auto image = ElfImage::open(fixture("libfixture.so"));
  ASSERT_TRUE(image);
  const auto symbols = SymbolTable::read(*image);
  ASSERT_TRUE(symbols);
  const auto catching = symbols->named("fixture_catching");
  ASSERT_EQ(catching.size(), 1U);
  auto homes = symbols->cold_parts(*catching[0]);
  homes.push_back(catching[0]->range());

  const ExceptionFrames frames = read_exception_frames(*image);
  EXPECT_EQ(frames.undecoded, 0U);
  ASSERT_GE(frames.landing_pads.size(), 2U);
  for (const LinkAddr pad : frames.landing_pads) {
    EXPECT_TRUE(std::ranges::any_of(homes, [&](const AddressRange& r) { return r.contains(pad); }))
        << std::hex << pad.value();
  }
  EXPECT_TRUE(std::ranges::is_sorted(frames.landing_pads));
}

TEST(CodeFacts, FramesAreThoseThatLibdwSees) {
  const std::string path = path_of_loaded("libstdc++.so.6");
  const auto image = ElfImage::open(path);
  ASSERT_TRUE(image);
  const ExceptionFrames frames = read_exception_frames(*image);
  EXPECT_EQ(frames.undecoded, 0U);
  EXPECT_GT(frames.landing_pads.size(), 500U);
  const auto code = image->code_ranges();
  for (const LinkAddr pad : frames.landing_pads) {
    ASSERT_TRUE(std::ranges::any_of(code, [&](const AddressRange& r) { return r.contains(pad); }));
  }

  ::elf_version(EV_CURRENT);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Elf* elf = ::elf_begin(fd, ELF_C_READ, nullptr);
  const Section* section = image->find_section(".eh_frame");
  ASSERT_NE(section, nullptr);
  Elf_Data* data = ::elf_getdata_rawchunk(elf, static_cast<std::int64_t>(section->offset),
                                          section->size, ELF_T_BYTE);
  std::size_t count = 0;
  Dwarf_Off at = 0;
  Dwarf_Off next = 0;
  Dwarf_CFI_Entry entry;
  const auto* ident = reinterpret_cast<const unsigned char*>(::elf_getident(elf, nullptr));
  while (::dwarf_next_cfi(ident, data, true, at, &next, &entry) == 0) {
    if (!dwarf_cfi_cie_p(&entry)) ++count;
    at = next;
  }
  EXPECT_EQ(frames.functions.size(), count);
  ::elf_end(elf);
  ::close(fd);
}

TEST(CodeFacts, FramesAreFoundWithoutSections) {
  const auto file = ElfImage::open(path_of_loaded("libc.so.6"));
  const auto memory = ElfImage::from_memory(own_memory(), RemoteAddr(bias_of_loaded("libc.so.6")),
                                            "libc in memory");
  ASSERT_TRUE(file && memory);
  const auto from_file = read_exception_frames(*file);
  const auto from_memory = read_exception_frames(*memory);
  EXPECT_EQ(from_file.functions, from_memory.functions);
  EXPECT_EQ(from_file.landing_pads, from_memory.landing_pads);
  EXPECT_GT(from_file.functions.size(), 1000U);
}

TEST(CodeFacts, RestartableSequences) {
  const auto image = ElfImage::open(fixture("libfixture.so"));
  ASSERT_TRUE(image);
  const auto symbols = SymbolTable::read(*image);
  ASSERT_TRUE(symbols);
  const auto function = symbols->named("fixture_rseq");
  ASSERT_EQ(function.size(), 1U);
  const auto found = rseq_sections(*image);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code.begin, function[0]->address);
  EXPECT_EQ(found[0].code.size(), 3U);
  EXPECT_EQ(found[0].abort_handler, function[0]->address + 8);
}

TEST(CodeFacts, PltsAreFound) {
  const auto image = ElfImage::open(fixture("program_fixed"));
  ASSERT_TRUE(image);
  const auto plt = plt_ranges(*image);
  ASSERT_FALSE(plt.empty());
  for (const AddressRange& range : plt) EXPECT_TRUE(image->segment_of(range.begin)->executable);
}

}  // namespace
}  // namespace trapline::symbols
