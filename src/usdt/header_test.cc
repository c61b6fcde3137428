#include "usdt/header.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "usdt/semaphore_object.h"

namespace trapline::usdt {
namespace {

using Kind = plan::ProbeArgumentKind;

plan::Provider provider_of(std::vector<plan::ProviderProbe> probes) {
  return {"my_app", 0, std::move(probes)};
}

std::string header_of(std::vector<plan::ProviderProbe> probes) {
  const plan::Provider providers[] = {provider_of(std::move(probes))};
  const auto text = header_text(providers, "my-prov.h");
  EXPECT_TRUE(text) << text.error().text();
  return text ? *text : "";
}

std::string mistake_of(std::vector<plan::ProviderProbe> probes) {
  const plan::Provider providers[] = {provider_of(std::move(probes))};
  const auto text = header_text(providers, "my-prov.h");
  EXPECT_FALSE(text);
  return text ? "" : text.error().text();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Header, NamesMacrosAsDTraceDoes) {
  const std::string text = header_of({{"request__start", {}}, {"u_nder", {}}});
  EXPECT_TRUE(has(text, "#define MY_APP_REQUEST_START() \\\n"));
  EXPECT_TRUE(has(text, "#define MY_APP_REQUEST_START_ENABLED() \\\n"));
  EXPECT_TRUE(has(text, "#define MY_APP_U_NDER() \\\n"));
  EXPECT_TRUE(has(text, "#ifndef _MY_PROV_H\n#define _MY_PROV_H\n"));
  EXPECT_TRUE(has(text,
                  "TRAPLINE_USDT_SITE(\"my_app\", \"request__start\", "
                  "\"my_app_request__start_semaphore\", "));
  EXPECT_TRUE(has(text, "#define MY_APP_U_NDER() ((void)0)\n#define MY_APP_U_NDER_ENABLED() (0)"));
}

TEST(Header, SaysTheSizeAndSignOfEachArgument) {
  const std::string text = header_of({{"go",
                                       {{"int", Kind::kInteger, 4, true},
                                        {"uint8_t", Kind::kInteger, 1, false},
                                        {"int64_t", Kind::kInteger, 8, true},
                                        {"_Bool", Kind::kBool, 1, false},
                                        {"string", Kind::kString, 8, false},
                                        {"struct s *", Kind::kPointer, 8, false},
                                        {"double", Kind::kFloat, 8, false}}}});
  EXPECT_TRUE(has(text, "\"-4@%[a0] 1@%[a1] -8@%[a2] 1@%[a3] 8@%[a4] 8@%[a5] 8@%[a6]\""));
  EXPECT_TRUE(has(text,
                  "/* my_app:::go(int, uint8_t, int64_t, _Bool, string, struct s *, "
                  "double) */\n"));
  EXPECT_TRUE(has(text, "signed int trapline_arg0 = (arg0);"));
  EXPECT_TRUE(has(text, "unsigned char trapline_arg1 = (arg1);"));
  EXPECT_TRUE(has(text, "signed long trapline_arg2 = (arg2);"));
  EXPECT_TRUE(has(text, "unsigned char trapline_arg3 = (arg3) ? 1 : 0;"));
  EXPECT_TRUE(has(text, "const char *trapline_arg4 = (arg4);"));
  EXPECT_TRUE(has(text, "const volatile void *trapline_arg5 = (arg5);"));
  EXPECT_TRUE(has(text, "double trapline_arg6_value = (arg6);"));
}

TEST(Header, RefusesWhatCannotBePassed) {
  EXPECT_EQ(mistake_of({{"go", {{"struct s", Kind::kOther, 0, false}}}}),
            "argument 1 of probe my_app:::go is of type struct s: only numbers and pointers can be "
            "passed");
  EXPECT_EQ(mistake_of({{"go", {{"long double", Kind::kFloat, 16, false}}}}),
            "argument 1 of probe my_app:::go is of type long double: only numbers and pointers can "
            "be passed");
  const std::vector<plan::ProbeArgument> eleven(11, {"int", Kind::kInteger, 4, true});
  EXPECT_EQ(mistake_of({{"go", eleven}}), "probe my_app:::go has 11 arguments; 10 can be passed");
}

TEST(Header, RefusesTwoProbesOfOneMacro) {
  EXPECT_EQ(mistake_of({{"a__b", {}}, {"a_b", {}}}),
            "probes my_app:::a__b and my_app:::a_b would both be the macro MY_APP_A_B");
  EXPECT_EQ(mistake_of({{"go", {}}, {"go_enabled", {}}}),
            "probes my_app:::go and my_app:::go_enabled would both be the macro "
            "MY_APP_GO_ENABLED");
}

TEST(SemaphoreObject, DefinesAWeakHiddenSymbolForEachProbe) {
  const plan::Provider providers[] = {provider_of({{"go", {}}, {"request__start", {}}})};
  const std::vector<std::byte> bytes = semaphore_object(providers);
  Elf64_Ehdr header;
  ASSERT_GT(bytes.size(), sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header.e_type, ET_REL);
  ASSERT_EQ(header.e_shoff + std::size_t{header.e_shnum} * sizeof(Elf64_Shdr), bytes.size());
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), bytes.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  std::vector<std::string> names;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* const strings =
        reinterpret_cast<const char*>(bytes.data()) + sections[section.sh_link].sh_offset;
    for (std::uint64_t at = sizeof(Elf64_Sym); at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, bytes.data() + section.sh_offset + at, sizeof symbol);
      EXPECT_EQ(symbol.st_info, ELF64_ST_INFO(STB_WEAK, STT_OBJECT));
      EXPECT_EQ(symbol.st_other, STV_HIDDEN);
      EXPECT_EQ(symbol.st_value, names.size() * 2);
      EXPECT_LE(symbol.st_value + 2, sections[symbol.st_shndx].sh_size);
      names.emplace_back(strings + symbol.st_name);
    }
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"my_app_go_semaphore", "my_app_request__start_semaphore"}));
}

}  // namespace
}  // namespace trapline::usdt
