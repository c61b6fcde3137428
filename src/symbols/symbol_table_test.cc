#include "symbols/symbol_table.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gelf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <set>

#include "symbols/debug_files.h"
#include "symbols/test_support.h"

namespace trapline::symbols {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Opened {
  ElfImage image;
  SymbolTable table;
};

Result<Opened> open_table(const std::string& path, const SymbolOptions& options = {}) {
  TL_TRY_ASSIGN(auto image, ElfImage::open(path));
  TL_TRY_ASSIGN(auto table, SymbolTable::read(image, options));
  return Opened{std::move(image), std::move(table)};
}

std::vector<std::string> names_at(const SymbolTable& table, LinkAddr address) {
  std::vector<std::string> out;
  for (const Symbol& s : table.at(address)) out.emplace_back(s.name);
  return out;
}

TEST(SymbolTable, VersionsAreNotPartOfNames) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened) << opened.error().text();
  const auto found = opened->table.named("fixture_versioned");
  ASSERT_EQ(found.size(), 2U);
  std::set<std::string> versions;
  int defaults = 0;
  for (const Symbol* s : found) {
    versions.emplace(s->version);
    defaults += s->default_version ? 1 : 0;
    EXPECT_EQ(s->default_version, s->version == "FIXTURE_2");
  }
  EXPECT_EQ(versions, (std::set<std::string>{"FIXTURE_1", "FIXTURE_2"}));
  EXPECT_EQ(defaults, 1);
}

TEST(SymbolTable, AliasesShareAnAddressPreferredNameFirst) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened);
  const auto original = opened->table.named("fixture_original");
  ASSERT_EQ(original.size(), 1U);
  EXPECT_EQ(names_at(opened->table, original[0]->address),
            (std::vector<std::string>{"fixture_alias", "fixture_original", "__fixture_alias"}));
  EXPECT_EQ(opened->table.containing(original[0]->address)->name, "fixture_alias");
}

TEST(SymbolTable, ColdPartsBelongToTheirFunction) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened);
  const auto split = opened->table.named("fixture_split");
  ASSERT_EQ(split.size(), 1U);
  const auto cold = opened->table.cold_parts(*split[0]);
  ASSERT_EQ(cold.size(), 1U);
  const Symbol* part = opened->table.containing(cold[0].begin);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->name, "fixture_split.cold");
  EXPECT_EQ(part->clone, CloneKind::kCold);
  EXPECT_THAT(opened->table.cold_parts(*part), IsEmpty());
}

TEST(SymbolTable, StaticFunctionsOfOneNameKeepTheirOwnColdParts) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened);
  const auto twins = opened->table.named("twin");
  ASSERT_EQ(twins.size(), 2U);
  const auto first = opened->table.cold_parts(*twins[0]);
  const auto second = opened->table.cold_parts(*twins[1]);
  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_NE(first[0], second[0]);
  // The linker keeps the order of the files in every section.
  EXPECT_LT(first[0].begin, second[0].begin);
}

TEST(SymbolTable, AssemblerFunctionsWithoutTypeOrSize) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened);
  const auto untyped = opened->table.named("fixture_untyped");
  ASSERT_EQ(untyped.size(), 1U);
  EXPECT_EQ(untyped[0]->kind, SymbolKind::kUntyped);
  EXPECT_TRUE(untyped[0]->size_guessed);
  EXPECT_EQ(untyped[0]->size, 4U);
  EXPECT_THAT(opened->table.matching(Glob("fixture_unt*")), IsEmpty());
  const auto sizeless = opened->table.named("fixture_sizeless");
  ASSERT_EQ(sizeless.size(), 1U);
  EXPECT_EQ(sizeless[0]->kind, SymbolKind::kFunction);
  EXPECT_TRUE(sizeless[0]->size_guessed);
  EXPECT_GE(sizeless[0]->size, 3U);
}

TEST(SymbolTable, DemangledNames) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened);
  const auto area = opened->table.matching_demangled(Glob("fixture::Shape::area(int) const"));
  ASSERT_EQ(area.size(), 1U);
  EXPECT_EQ(area[0]->name, "_ZNK7fixture5Shape4areaEi");
  EXPECT_EQ(opened->table.matching_demangled(Glob("*fixture::twice<*>(*)")).size(), 2U);
  EXPECT_EQ(demangle("main"), "main");
  EXPECT_EQ(demangle("_Znot"), "_Znot");
}

TEST(SymbolTable, IfuncsAreMarked) {
  const auto opened = open_table(fixture("libfixture.so"));
  ASSERT_TRUE(opened);
  const auto pick = opened->table.named("fixture_pick");
  ASSERT_EQ(pick.size(), 1U);
  EXPECT_EQ(pick[0]->kind, SymbolKind::kIfunc);
}

// libelf is the reference: each of its defined functions is there, and nothing else.
TEST(SymbolTable, HasExactlyTheFunctionsThatLibelfSees) {
  for (const std::string name : {"libfixture.so", "program_fixed", "program_static"}) {
    const auto opened = open_table(fixture(name));
    ASSERT_TRUE(opened);
    std::set<std::pair<std::uint64_t, std::string>> expected;
    ::elf_version(EV_CURRENT);
    const int fd = ::open(fixture(name).c_str(), O_RDONLY | O_CLOEXEC);
    Elf* elf = ::elf_begin(fd, ELF_C_READ, nullptr);
    Elf_Scn* scn = nullptr;
    while ((scn = ::elf_nextscn(elf, scn)) != nullptr) {
      GElf_Shdr header;
      ::gelf_getshdr(scn, &header);
      if (header.sh_type != SHT_SYMTAB) continue;
      Elf_Data* data = ::elf_getdata(scn, nullptr);
      GElf_Sym sym;
      for (int i = 0; ::gelf_getsym(data, i, &sym) != nullptr; ++i) {
        const auto type = GELF_ST_TYPE(sym.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || sym.st_shndx == SHN_UNDEF) continue;
        std::string text = ::elf_strptr(elf, header.sh_link, sym.st_name);
        expected.emplace(sym.st_value, text.substr(0, text.find('@')));
      }
    }
    ::elf_end(elf);
    ::close(fd);
    std::set<std::pair<std::uint64_t, std::string>> actual;
    for (const Symbol& s : opened->table.symbols()) {
      if (s.kind != SymbolKind::kUntyped) actual.emplace(s.address.value(), s.name);
    }
    EXPECT_EQ(actual, expected) << name;
    EXPECT_GT(actual.size(), 5U);
  }
}

TEST(SymbolTable, LibcNamesLeadWhereDlsymLeads) {
  const auto opened = open_table(path_of_loaded("libc.so.6"), {DebugFiles::kIgnore, {}, {}});
  ASSERT_TRUE(opened);
  const std::uint64_t bias = bias_of_loaded("libc.so.6");
  void* libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  int compared = 0;
  for (const Symbol& s : opened->table.symbols()) {
    if (s.kind != SymbolKind::kFunction || s.version.empty() || s.version == "GLIBC_PRIVATE")
      continue;
    const void* found = ::dlvsym(libc, std::string(s.name).c_str(), std::string(s.version).c_str());
    if (found == nullptr) continue;
    EXPECT_EQ(reinterpret_cast<std::uint64_t>(found), s.address.value() + bias) << s.name;
    ++compared;
  }
  EXPECT_GT(compared, 1500);
  ::dlclose(libc);
}

TEST(SymbolTable, MemoryGivesTheDynamicSymbolsOfTheFile) {
  const auto file = open_table(path_of_loaded("libc.so.6"), {DebugFiles::kIgnore, {}, {}});
  const auto memory = ElfImage::from_memory(own_memory(), RemoteAddr(bias_of_loaded("libc.so.6")),
                                            "libc in memory");
  ASSERT_TRUE(file && memory);
  const auto table = SymbolTable::read(*memory, {DebugFiles::kIgnore, {}, {}});
  ASSERT_TRUE(table);
  EXPECT_EQ(table->sources().dynsym, file->table.sources().dynsym);
  EXPECT_GT(table->symbols().size(), 1500U);
}

TEST(DebugFiles, ByLinkAndCrcInDotDebug) {
  const auto opened = open_table(fixture("linked/libcrc.so"));
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->table.sources().debug_path, fixture("linked/.debug/libcrc.debug"));
  EXPECT_FALSE(opened->table.sources().stripped());
  const auto local = opened->table.named("resolve_pick");
  ASSERT_EQ(local.size(), 1U);
  EXPECT_EQ(local[0]->origin, SymbolOrigin::kDebugFile);
}

TEST(DebugFiles, AWrongCrcIsRefusedAndSaid) {
  const auto opened = open_table(fixture("wrong/libcrc.so"));
  ASSERT_TRUE(opened);
  EXPECT_TRUE(opened->table.sources().stripped());
  EXPECT_THAT(opened->table.sources().notes, Contains(HasSubstr("CRC differs")));
  EXPECT_THAT(opened->table.named("resolve_pick"), IsEmpty());
  EXPECT_THAT(opened->table.named("fixture_original"), Not(IsEmpty()));
}

TEST(DebugFiles, ByBuildIdUnderARootPrefix) {
  const TempDir root;
  const auto image = ElfImage::open(fixture("libstripped.so"));
  ASSERT_TRUE(image);
  const std::string hex = image->build_id()->hex();
  const std::string dir = root.path() + "/usr/lib/debug/.build-id/" + hex.substr(0, 2);
  make_directories(dir);
  write_file(dir + "/" + hex.substr(2) + ".debug", read_file(fixture("libfixture.debug")));

  const auto without = SymbolTable::read(*image);
  ASSERT_TRUE(without);
  EXPECT_TRUE(without->sources().stripped());
  const auto with = SymbolTable::read(*image, {DebugFiles::kSearch, {}, root.path()});
  ASSERT_TRUE(with);
  EXPECT_FALSE(with->sources().stripped());
  EXPECT_EQ(with->named("resolve_pick").size(), 1U);
  EXPECT_EQ(with->cold_parts(*with->named("fixture_split")[0]).size(), 1U);

  // One of another build in its place.
  write_file(dir + "/" + hex.substr(2) + ".debug", read_file(fixture("program_pie")));
  const auto other = SymbolTable::read(*image, {DebugFiles::kSearch, {}, root.path()});
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->sources().stripped());
  EXPECT_THAT(other->sources().notes, Contains(HasSubstr("of another build")));
}

TEST(DebugFiles, MiniDebugInfo) {
  if (!TRAPLINE_HAVE_MINI_FIXTURE)
    GTEST_SKIP() << "xz or liblzma was not there when this was built";
  const auto opened = open_table(fixture("libmini.so"));
  ASSERT_TRUE(opened);
  EXPECT_FALSE(opened->image.is_stripped());
  EXPECT_GT(opened->table.sources().debug_data, 0U);
  ASSERT_EQ(opened->table.named("resolve_pick").size(), 1U);
  EXPECT_EQ(opened->table.named("resolve_pick")[0]->origin, SymbolOrigin::kDebugData);
}

TEST(DebugFiles, MiniDebugInfoThatUnpacksToMuchMoreThanSymbolsDo) {
  if (!TRAPLINE_HAVE_MINI_FIXTURE)
    GTEST_SKIP() << "xz or liblzma was not there when this was built";
  const auto opened = open_table(fixture("libbomb.so"));
  ASSERT_TRUE(opened);
  EXPECT_TRUE(opened->table.sources().stripped());
  EXPECT_THAT(opened->table.sources().notes, Contains(HasSubstr("too large when unpacked")));
}

TEST(DebugFiles, Crc32) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(0, std::as_bytes(std::span(text))), 0xcbf43926U);
  const std::string longer = "The quick brown fox jumps over the lazy dog";
  const auto bytes = std::as_bytes(std::span(longer));
  EXPECT_EQ(crc32(0, bytes), 0x414fa339U);
  EXPECT_EQ(crc32(crc32(0, bytes.first(5)), bytes.subspan(5)), 0x414fa339U);
}

TEST(CloneName, Suffixes) {
  const auto parsed = [](std::string_view name) {
    const CloneName c = parse_clone_name(name);
    return std::pair(std::string(c.base), c.kind);
  };
  EXPECT_EQ(parsed("f"), std::pair(std::string("f"), CloneKind::kNone));
  EXPECT_EQ(parsed("f.cold"), std::pair(std::string("f"), CloneKind::kCold));
  EXPECT_EQ(parsed("f.cold.12"), std::pair(std::string("f"), CloneKind::kCold));
  EXPECT_EQ(parsed("f.part.0"), std::pair(std::string("f"), CloneKind::kPart));
  EXPECT_EQ(parsed("f.constprop.0.isra.1"), std::pair(std::string("f"), CloneKind::kSpecialised));
  EXPECT_EQ(parsed("f.part.0.cold"), std::pair(std::string("f"), CloneKind::kCold));
  EXPECT_EQ(parsed("runtime.main"), std::pair(std::string("runtime.main"), CloneKind::kNone));
  EXPECT_EQ(parsed(".cold"), std::pair(std::string(".cold"), CloneKind::kNone));
}

}  // namespace
}  // namespace trapline::symbols
