#include "symbols/elf_image.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstring>
#include <random>

#include "symbols/code_facts.h"
#include "symbols/exercise.h"
#include "symbols/test_support.h"

namespace trapline::symbols {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

ErrorCode code_of(const Result<ElfImage>& r) { return r ? ErrorCode::kInternal : r.error().code(); }

TEST(ElfImage, KindsOfPrograms) {
  const auto pie = ElfImage::open(fixture("program_pie"));
  ASSERT_TRUE(pie) << pie.error().text();
  EXPECT_EQ(pie->kind(), ImageKind::kPie);
  EXPECT_FALSE(pie->is_static());
  EXPECT_THAT(std::string(pie->interpreter()), HasSubstr("ld-linux-x86-64.so.2"));
  EXPECT_THAT(pie->dynamic().needed, Contains("libc.so.6"));
  EXPECT_NE(pie->entry(), LinkAddr());

  const auto fixed = ElfImage::open(fixture("program_fixed"));
  ASSERT_TRUE(fixed);
  EXPECT_EQ(fixed->kind(), ImageKind::kFixedExecutable);
  EXPECT_FALSE(fixed->is_static());

  const auto fixed_static = ElfImage::open(fixture("program_static"));
  ASSERT_TRUE(fixed_static);
  EXPECT_EQ(fixed_static->kind(), ImageKind::kFixedExecutable);
  EXPECT_TRUE(fixed_static->is_static());

  const auto static_pie = ElfImage::open(fixture("program_static_pie"));
  ASSERT_TRUE(static_pie);
  EXPECT_EQ(static_pie->kind(), ImageKind::kPie);
  EXPECT_TRUE(static_pie->is_static());
}

TEST(ElfImage, Libraries) {
  const auto image = ElfImage::open(fixture("libfixture.so"));
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_EQ(image->kind(), ImageKind::kSharedObject);
  EXPECT_EQ(image->dynamic().soname, "libfixture.so.3");
  ASSERT_TRUE(image->build_id());
  EXPECT_EQ(image->build_id()->hex().size(), 40U);
  EXPECT_FALSE(image->is_stripped());
  EXPECT_FALSE(image->is_go());

  const auto stripped = ElfImage::open(fixture("libstripped.so"));
  ASSERT_TRUE(stripped);
  EXPECT_TRUE(stripped->is_stripped());
  EXPECT_EQ(stripped->build_id()->bytes, image->build_id()->bytes);
}

TEST(ElfImage, LibcIsALibraryThoughItCanBeRun) {
  const auto image = ElfImage::open(path_of_loaded("libc.so.6"));
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_EQ(image->kind(), ImageKind::kSharedObject);
}

TEST(ElfImage, BytesAtLinkAddressesAreThoseInMemory) {
  const auto image = ElfImage::open(path_of_loaded("libc.so.6"));
  ASSERT_TRUE(image);
  const std::uint64_t bias = bias_of_loaded("libc.so.6");
  const auto ranges = image->text_ranges();
  ASSERT_EQ(ranges.size(), 1U);
  const auto bytes = image->bytes_at(ranges[0]);
  ASSERT_TRUE(bytes) << bytes.error().text();
  EXPECT_EQ(std::memcmp(bytes->data(), reinterpret_cast<void*>(bias + ranges[0].begin.value()),
                        bytes->size()),
            0);
  // Out of it: an error, whichever way.
  EXPECT_FALSE(image->bytes_at({ranges[0].begin, ranges[0].end + 1}));
  EXPECT_FALSE(image->bytes_at({ranges[0].end, ranges[0].begin}));
  EXPECT_FALSE(image->bytes_at({LinkAddr(~0ULL), LinkAddr(~0ULL)}));
}

TEST(ElfImage, ReadsTheVdso) {
  const RemoteAddr header(::getauxval(AT_SYSINFO_EHDR));
  if (header == RemoteAddr()) GTEST_SKIP() << "no vDSO on this system";
  const auto image = ElfImage::from_memory(own_memory(), header, "vdso");
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_EQ(image->dynamic().soname, "linux-vdso.so.1");
}

TEST(ElfImage, AnObjectInMemoryIsThatOfItsFile) {
  const std::string path = path_of_loaded("libc.so.6");
  const auto file = ElfImage::open(path);
  const std::uint64_t bias = bias_of_loaded("libc.so.6");
  const auto memory = ElfImage::from_memory(own_memory(), RemoteAddr(bias), "libc in memory");
  ASSERT_TRUE(file);
  ASSERT_TRUE(memory) << memory.error().text();
  EXPECT_EQ(memory->memory_bias().value, bias);
  EXPECT_EQ(memory->build_id(), file->build_id());
  EXPECT_EQ(memory->dynamic().soname, "libc.so.6");
  EXPECT_EQ(memory->dynamic().symtab, file->dynamic().symtab);
  EXPECT_EQ(memory->kind(), ImageKind::kSharedObject);
}

TEST(ElfImage, GoProgramsAreKnownByTheirSections) {
  const auto image = ElfImage::open(fixture("program_go"));
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_TRUE(image->is_go());
}

TEST(ElfImage, RefusesWithAReason) {
  EXPECT_EQ(code_of(ElfImage::open("/nonexistent/x")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(ElfImage::open("/dev/zero")), ErrorCode::kBadInput);
  EXPECT_EQ(code_of(ElfImage::from_bytes({}, "empty")), ErrorCode::kBadInput);

  const auto good = read_file(fixture("libfixture.so"));
  const auto with = [&](std::size_t offset, unsigned char value) {
    auto bytes = good;
    bytes[offset] = std::byte{value};
    return ElfImage::from_bytes(std::move(bytes), "changed.so");
  };
  auto thirty_two = with(EI_CLASS, ELFCLASS32);
  EXPECT_EQ(code_of(thirty_two), ErrorCode::kUnsupported);
  EXPECT_THAT(thirty_two.error().text(), HasSubstr("changed.so: a 32-bit ELF file"));
  auto other = with(18, EM_AARCH64);
  EXPECT_EQ(code_of(other), ErrorCode::kUnsupported);
  EXPECT_THAT(other.error().text(), HasSubstr("machine 183"));
  EXPECT_EQ(code_of(with(EI_DATA, ELFDATA2MSB)), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(with(0, 'X')), ErrorCode::kBadInput);
  EXPECT_EQ(code_of(with(16, ET_REL)), ErrorCode::kUnsupported);

  auto half = good;
  half.resize(good.size() / 4);
  const auto truncated = ElfImage::from_bytes(std::move(half), "half.so");
  EXPECT_EQ(code_of(truncated), ErrorCode::kBadInput);
  EXPECT_THAT(truncated.error().text(), HasSubstr("truncated"));
}

TEST(ElfImage, AFileThatShrinksGivesAnError) {
  const TempDir dir;
  const std::string path = dir.path() + "/libshrink.so";
  write_file(path, read_file(path_of_loaded("libc.so.6")));
  const auto image = ElfImage::open(path);
  ASSERT_TRUE(image);
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  const auto bytes = image->bytes_at(image->text_ranges()[0]);
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().text(), HasSubstr("truncated"));
}

TEST(ElfImage, NoCutMakesItCrash) {
  auto bytes = read_file(fixture("libfixture.so"));
  std::size_t sum = 0;
  for (std::size_t size = 0; size < bytes.size(); size += size < 1024 ? 7 : 211) {
    sum += exercise_bytes(std::span(bytes).first(size));
  }
  EXPECT_GT(sum, 0U);
}

TEST(ElfImage, NoFlippedBitsMakeItCrash) {
  const auto good = read_file(fixture("libfixture.so"));
  std::mt19937 random(7);
  const auto image = ElfImage::from_bytes(good, "good");
  ASSERT_TRUE(image);
  // Where structure is: headers, the section table, and the tables themselves.
  std::vector<std::pair<std::size_t, std::size_t>> places{{0, 1024}};
  places.emplace_back(good.size() - 64 * image->sections().size(), good.size());
  for (const Section& s : image->sections()) {
    if (s.type != SHT_NOBITS && s.type != SHT_PROGBITS && s.size > 0) {
      places.emplace_back(s.offset, s.offset + s.size);
    }
    if (s.name == ".eh_frame" || s.name == ".gcc_except_table" || s.name == ".eh_frame_hdr") {
      places.emplace_back(s.offset, s.offset + s.size);
    }
  }
  std::size_t sum = 0;
  for (int round = 0; round < 1500; ++round) {
    auto bytes = good;
    for (int k = 0; k < 6; ++k) {
      const auto& [begin, end] = places[random() % places.size()];
      bytes[begin + random() % (end - begin)] ^=
          std::byte{static_cast<unsigned char>(1U << random() % 8)};
    }
    sum += exercise_bytes(bytes);
  }
  EXPECT_GT(sum, 0U);
}

}  // namespace
}  // namespace trapline::symbols
