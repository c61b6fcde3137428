#include "symbols/ifunc.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "symbols/test_support.h"

namespace trapline::symbols {
namespace {

using ::testing::Contains;

// All modules of a process, as choose_ifuncs() wants them.
struct Loaded {
  ModuleList list;
  std::vector<LoadedImage> images;

  Loaded(std::span<const MapEntry> maps, const MemoryReader& memory) {
    ModuleOptions options;
    options.memory = memory;
    list = read_modules(maps, options);
    for (const Module& m : list.modules) images.push_back({m.image.get(), m.bias});
  }
  const Module* find(std::string_view name) const {
    for (const Module& m : list.modules) {
      if (module_matches(name, m)) return &m;
    }
    return nullptr;
  }
};

const IfuncChoice* find_choice(const std::vector<IfuncChoice>& choices, std::string_view name) {
  for (const IfuncChoice& c : choices) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

// What the dynamic linker says the name and version mean is the truth.
TEST(Ifunc, LibcsChoicesAreThoseOfTheDynamicLinker) {
  const Loaded loaded(own_maps(), own_memory());
  const Module* libc = loaded.find("libc.so.6");
  ASSERT_NE(libc, nullptr);
  const auto table = SymbolTable::read(*libc->image, {DebugFiles::kIgnore, {}, {}});
  ASSERT_TRUE(table);
  const auto choices =
      choose_ifuncs({libc->image.get(), libc->bias}, *table, loaded.images, own_memory());
  void* handle = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  int bound = 0;
  int candidates = 0;
  for (const IfuncChoice& c : choices) {
    const std::string name(c.name);
    const void* truth = c.version.empty()
                            ? ::dlsym(handle, name.c_str())
                            : ::dlvsym(handle, name.c_str(), std::string(c.version).c_str());
    if (truth == nullptr) continue;
    const RemoteAddr expected(reinterpret_cast<std::uint64_t>(truth));
    if (c.certainty == IfuncCertainty::kBound) {
      EXPECT_EQ(c.implementations, std::vector<RemoteAddr>{expected}) << name;
      ++bound;
    } else {
      EXPECT_EQ(c.certainty, IfuncCertainty::kCandidates) << name << ": " << c.note;
      EXPECT_THAT(c.implementations, Contains(expected)) << name << ": " << c.note;
      ++candidates;
    }
  }
  RecordProperty("bound", bound);
  RecordProperty("candidates", candidates);
  EXPECT_GT(bound, 20);
  // memcpy and memmove are one code in glibc, and that is said.
  const IfuncChoice* copy = find_choice(choices, "memcpy");
  ASSERT_NE(copy, nullptr);
  EXPECT_THAT(copy->also, Contains(std::string_view("memmove")));
  ::dlclose(handle);
}

TEST(Ifunc, OneThatTheLibraryItselfCalls) {
  void* handle = ::dlopen(fixture("libfixture.so").c_str(), RTLD_NOW);
  ASSERT_NE(handle, nullptr) << ::dlerror();
  const Loaded loaded(own_maps(), own_memory());
  const Module* module = loaded.find("libfixture");
  ASSERT_NE(module, nullptr);
  const auto table = SymbolTable::read(*module->image);
  ASSERT_TRUE(table);
  const auto choices =
      choose_ifuncs({module->image.get(), module->bias}, *table, loaded.images, own_memory());

  const IfuncChoice* pick = find_choice(choices, "fixture_pick");
  ASSERT_NE(pick, nullptr);
  EXPECT_EQ(pick->certainty, IfuncCertainty::kBound);
  ASSERT_EQ(pick->implementations.size(), 1U);
  const auto address_of = [&](std::string_view name) {
    return module->bias.to_remote(table->named(name).at(0)->address);
  };
  EXPECT_EQ(pick->implementations[0], address_of("fixture_pick_second"));

  // Nobody refers to this one: what its resolver can return, and said so.
  const IfuncChoice* outside = find_choice(choices, "fixture_outside");
  ASSERT_NE(outside, nullptr);
  EXPECT_EQ(outside->certainty, IfuncCertainty::kCandidates);
  EXPECT_THAT(outside->implementations, Contains(address_of("outside_first")));
  EXPECT_THAT(outside->implementations, Contains(address_of("outside_second")));
  EXPECT_FALSE(outside->note.empty());
  ::dlclose(handle);
}

// With lazy binding a slot tells nothing before the first call, and the truth after it.
TEST(Ifunc, LazyBinding) {
  void* handle = ::dlopen(fixture("libcaller.so").c_str(), RTLD_LAZY);
  ASSERT_NE(handle, nullptr) << ::dlerror();
  const auto choose = [] {
    const Loaded loaded(own_maps(), own_memory());
    const Module* module = loaded.find("libfixture");
    const auto table = SymbolTable::read(*module->image);
    const auto choices =
        choose_ifuncs({module->image.get(), module->bias}, *table, loaded.images, own_memory());
    const IfuncChoice* outside = find_choice(choices, "fixture_outside");
    return std::tuple(outside->certainty, outside->implementations,
                      module->bias.to_remote(table->named("outside_second").at(0)->address));
  };
  const auto [before, candidates, second] = choose();
  EXPECT_EQ(before, IfuncCertainty::kCandidates);
  EXPECT_THAT(candidates, Contains(second));

  auto* call = reinterpret_cast<int (*)(int)>(::dlsym(handle, "caller_call"));
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call(3), 15);
  const auto [after, chosen, again] = choose();
  EXPECT_EQ(after, IfuncCertainty::kBound);
  EXPECT_EQ(chosen, std::vector<RemoteAddr>{again});
  ::dlclose(handle);
}

// The program prints the address that its own code has for strlen.
void expect_program_tells_the_same(const std::string& name) {
  const Child child(fixture(name));
  ASSERT_FALSE(child.first_line().empty()) << name;
  const auto printed = RemoteAddr(std::strtoull(child.first_line().c_str(), nullptr, 16));
  const auto memory = memory_of(child.pid());
  const Loaded loaded(read_maps(child.pid()), memory);
  const Module* program = loaded.list.executable();
  ASSERT_NE(program, nullptr) << name;
  const auto table = SymbolTable::read(*program->image);
  ASSERT_TRUE(table);
  const auto choices =
      choose_ifuncs({program->image.get(), program->bias}, *table, loaded.images, memory);
  const IfuncChoice* length = find_choice(choices, "strlen");
  ASSERT_NE(length, nullptr) << name;
  EXPECT_EQ(length->certainty, IfuncCertainty::kBound) << name << ": " << length->note;
  ASSERT_EQ(length->implementations.size(), 1U) << name;
  // In a program at a fixed address, the function's address is that of its PLT entry.
  const LinkAddr link = program->bias.to_link(printed);
  if (table->containing(link) != nullptr) {
    EXPECT_EQ(length->implementations[0], printed) << name;
  }
  const Symbol* implementation =
      table->containing(program->bias.to_link(length->implementations[0]));
  ASSERT_NE(implementation, nullptr);
  EXPECT_THAT(std::string(implementation->name), ::testing::HasSubstr("strlen")) << name;
}

TEST(Ifunc, StaticPrograms) {
  expect_program_tells_the_same("program_static");
  expect_program_tells_the_same("program_static_pie");
}

TEST(Ifunc, UnreadableMemoryIsNoEvidence) {
  const auto image = ElfImage::open(fixture("libfixture.so"));
  ASSERT_TRUE(image);
  const auto table = SymbolTable::read(*image);
  ASSERT_TRUE(table);
  const LoadedImage loaded{&*image, {}};
  const MemoryReader nothing = [](RemoteAddr, std::span<std::byte>) -> Result<> {
    return Error(ErrorCode::kTargetGone, "gone");
  };
  for (const IfuncChoice& c : choose_ifuncs(loaded, *table, std::span(&loaded, 1), nothing)) {
    EXPECT_EQ(c.certainty, IfuncCertainty::kCandidates) << c.name;
  }
}

}  // namespace
}  // namespace trapline::symbols
