#include "symbols/modules.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "symbols/test_support.h"

namespace trapline::symbols {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModuleOptions own_options() {
  ModuleOptions options;
  options.memory = own_memory();
  options.executable = std::filesystem::read_symlink("/proc/self/exe").string();
  return options;
}

const Module* find(const ModuleList& list, std::string_view name) {
  for (const Module& m : list.modules) {
    if (module_matches(name, m)) return &m;
  }
  return nullptr;
}

Module named(std::string path, ModuleRole role = ModuleRole::kLibrary) {
  Module m;
  m.name = path.substr(path.rfind('/') + 1);
  m.path = std::move(path);
  m.role = role;
  return m;
}

TEST(ModuleNames, PatternsOfThePidProvider) {
  const Module libc = named("/lib/x86_64-linux-gnu/libc.so.6");
  for (const char* pattern :
       {"", "*", "libc", "libc.so.6", "libc.so*", "lib[a-d].so.6",
        "/lib/x86_64-linux-gnu/libc.so.6", "/lib/*/libc.so.?", "LM0`libc.so.6", "LM1f`libc"}) {
    EXPECT_TRUE(module_matches(pattern, libc)) << pattern;
  }
  for (const char* pattern : {"lib", "libc.so", "a.out", "libcc", "lib?", "LMx`libc.so.6", "c"}) {
    EXPECT_FALSE(module_matches(pattern, libc)) << pattern;
  }
  EXPECT_TRUE(module_matches("libc", named("/lib/libc-2.31.so")));
  EXPECT_TRUE(module_matches("libc-2.31", named("/lib/libc-2.31.so")));
  EXPECT_TRUE(module_matches("libstdc++", named("/usr/lib/libstdc++.so.6")));
  EXPECT_TRUE(module_matches("libpython3.11", named("/usr/lib/libpython3.11.so.1.0")));
  EXPECT_FALSE(module_matches("libglib", named("/usr/lib/libglib-2.x.so")));
  EXPECT_TRUE(module_matches("a.out", named("/bin/ls", ModuleRole::kExecutable)));
  EXPECT_TRUE(module_matches("ls", named("/bin/ls", ModuleRole::kExecutable)));
  Module vdso = named("[vdso]", ModuleRole::kVdso);
  vdso.name = "linux-vdso.so.1";
  for (const char* pattern : {"[vdso]", "vdso", "linux-vdso.so.1", "linux-vdso", "linux-*"}) {
    EXPECT_TRUE(module_matches(pattern, vdso)) << pattern;
  }
}

TEST(Modules, OfThisProcess) {
  const auto list = read_modules(own_maps(), own_options());
  EXPECT_THAT(list.problems, IsEmpty());
  const Module* libc = find(list, "libc");
  ASSERT_NE(libc, nullptr);
  EXPECT_EQ(libc->bias.value, bias_of_loaded("libc.so.6"));
  EXPECT_EQ(libc->file_state, FileState::kSame);
  EXPECT_EQ(libc->name, "libc.so.6");

  const Module* self = find(list, "a.out");
  ASSERT_NE(self, nullptr);
  EXPECT_EQ(self, list.executable());
  EXPECT_EQ(self->name, "symbols_test");
  EXPECT_EQ(list.containing(RemoteAddr(reinterpret_cast<std::uint64_t>(&own_options))), self);

  const Module* vdso = find(list, "linux-vdso.so.1");
  if (vdso != nullptr) {
    EXPECT_EQ(vdso->role, ModuleRole::kVdso);
    const auto table = SymbolTable::read(*vdso->image, vdso->symbol_options);
    ASSERT_TRUE(table);
    EXPECT_FALSE(table->named("__vdso_gettimeofday").empty());
  }
  const auto is_loader = [](const Module& m) { return m.role == ModuleRole::kInterpreter; };
  ASSERT_EQ(std::ranges::count_if(list.modules, is_loader), 1);
  const auto loader = std::ranges::find_if(list.modules, is_loader);
  const auto table = SymbolTable::read(*loader->image, loader->symbol_options);
  ASSERT_TRUE(table);
  EXPECT_FALSE(table->named("__tls_get_addr").empty());
}

TEST(Modules, AFixedProgramHasNoBias) {
  const Child child(fixture("program_fixed"));
  ModuleOptions options;
  options.memory = memory_of(child.pid());
  const auto list = read_modules(read_maps(child.pid()), options);
  ASSERT_NE(list.executable(), nullptr);
  EXPECT_EQ(list.executable()->bias.value, 0U);
  EXPECT_EQ(list.executable()->name, "program_fixed");
}

// A copy of the fixture, loaded into this process, so that its file can be harmed.
class LoadedCopy {
 public:
  LoadedCopy() : path_(std::filesystem::canonical(dir_.path()).string() + "/libcopy.so.1") {
    write_file(path_, read_file(fixture("libfixture.so")));
    handle_ = ::dlopen(path_.c_str(), RTLD_NOW);
  }
  LoadedCopy(const LoadedCopy&) = delete;
  LoadedCopy& operator=(const LoadedCopy&) = delete;
  ~LoadedCopy() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  bool loaded() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }
  RemoteAddr address_of(const char* symbol) const {
    return RemoteAddr(reinterpret_cast<std::uint64_t>(::dlsym(handle_, symbol)));
  }
  void replace_by(const std::string& other) const {
    write_file(path_ + ".new", read_file(other));
    std::filesystem::rename(path_ + ".new", path_);
  }

 private:
  TempDir dir_;
  std::string path_;
  void* handle_ = nullptr;
};

void expect_symbols_lead_to(const Module& m, const LoadedCopy& copy) {
  const auto table = SymbolTable::read(*m.image, m.symbol_options);
  ASSERT_TRUE(table) << table.error().text();
  const auto found = table->named("fixture_checked");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(m.bias.to_remote(found[0]->address), copy.address_of("fixture_checked"));
}

TEST(Modules, ADeletedFileIsReadFromMemory) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  std::filesystem::remove(copy.path());
  const auto list = read_modules(own_maps(), own_options());
  const Module* m = find(list, "libcopy");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->file_state, FileState::kMemoryOnly);
  EXPECT_EQ(m->file_note, "deleted");
  EXPECT_EQ(m->name, "libcopy.so.1");
  expect_symbols_lead_to(*m, copy);
}

TEST(Modules, AReplacedFileIsNotBelieved) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  copy.replace_by(fixture("program_pie"));
  const auto list = read_modules(own_maps(), own_options());
  const Module* m = find(list, "libcopy");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->file_state, FileState::kMemoryOnly);
  EXPECT_THAT(m->file_note, HasSubstr("replaced"));
  expect_symbols_lead_to(*m, copy);
}

TEST(Modules, TheSameBuildInAnotherInodeIsBelieved) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  copy.replace_by(fixture("libfixture.so"));
  const auto list = read_modules(own_maps(), own_options());
  const Module* m = find(list, "libcopy");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->file_state, FileState::kSame);
  EXPECT_FALSE(m->file_note.empty());
  expect_symbols_lead_to(*m, copy);
}

TEST(Modules, ADeletedFileIsReadThroughMapFilesWhereAllowed) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  std::filesystem::remove(copy.path());
  ModuleOptions options = own_options();
  options.map_files = "/proc/self/map_files";
  const auto list = read_modules(own_maps(), options);
  const Module* m = find(list, "libcopy");
  ASSERT_NE(m, nullptr);
  if (m->file_state != FileState::kMapped) GTEST_SKIP() << "map_files is not readable here";
  const auto table = SymbolTable::read(*m->image, m->symbol_options);
  ASSERT_TRUE(table);
  EXPECT_FALSE(table->named("resolve_pick").empty());
  expect_symbols_lead_to(*m, copy);
}

TEST(Modules, ACorruptFileIsNamedAndTheOthersGoOn) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  auto bytes = read_file(fixture("libfixture.so"));
  bytes[54] = std::byte{1};  // e_phentsize
  write_file(copy.path() + ".bad", bytes);
  std::filesystem::rename(copy.path() + ".bad", copy.path());
  const auto list = read_modules(own_maps(), own_options());
  ASSERT_EQ(list.problems.size(), 1U);
  EXPECT_EQ(list.problems[0].path, copy.path());
  EXPECT_THAT(list.problems[0].error.text(), HasSubstr("libcopy.so.1"));
  EXPECT_THAT(list.problems[0].error.text(), HasSubstr("corrupt"));
  EXPECT_NE(find(list, "libc"), nullptr);
  const Module* m = find(list, "libcopy");
  ASSERT_NE(m, nullptr);
  expect_symbols_lead_to(*m, copy);
}

TEST(Modules, WithoutMemoryADeletedFileIsAProblem) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  std::filesystem::remove(copy.path());
  const auto list = read_modules(own_maps(), {});
  EXPECT_EQ(find(list, "libcopy"), nullptr);
  ASSERT_EQ(list.problems.size(), 1U);
  EXPECT_EQ(list.problems[0].path, copy.path());
  EXPECT_NE(find(list, "libc"), nullptr);
}

TEST(Modules, CodeThatAProgramMadeIsNoModule) {
  const int fd = ::memfd_create("jit", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  void* code = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  ASSERT_NE(code, MAP_FAILED);
  const auto list = read_modules(own_maps(), own_options());
  EXPECT_THAT(list.problems, IsEmpty());
  EXPECT_EQ(list.containing(RemoteAddr(reinterpret_cast<std::uint64_t>(code))), nullptr);
  ::munmap(code, 4096);
  ::close(fd);
}

// dlmopen() maps a library again: two modules of one file.
TEST(Modules, APartThatIsMappedASecondTime) {
  // As node's engine does it: a piece of the executable's text, file and all, far from the rest.
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::vector<MapEntry> maps = own_maps();
  const auto text =
      std::ranges::find_if(maps, [&](const MapEntry& e) { return e.path == path && e.executable; });
  ASSERT_NE(text, maps.end());
  const std::uint64_t size = 2 * 4096;
  ASSERT_GE(text->end - text->start, size);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* const copy = ::mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(),
                            static_cast<off_t>(text->offset));
  ASSERT_NE(copy, MAP_FAILED);
  const auto list = read_modules(own_maps(), own_options());
  ::munmap(copy, size);
  const RemoteAddr at(reinterpret_cast<std::uint64_t>(copy));
  const Module* part = list.containing(at);
  ASSERT_NE(part, nullptr);
  EXPECT_TRUE(part->is_part);
  EXPECT_EQ(part->text, (std::vector<RemoteRange>{{at, at + size}}));
  EXPECT_TRUE(module_matches("a.out", *part));
  const Module* whole = list.executable();
  ASSERT_NE(whole, nullptr);
  EXPECT_FALSE(whole->is_part);
  EXPECT_NE(whole, part);
  EXPECT_TRUE(whole->text.front().contains(text->start));
}

TEST(Modules, TwoCopiesOfOneFile) {
  const LoadedCopy copy;
  ASSERT_TRUE(copy.loaded());
  void* second = ::dlmopen(LM_ID_NEWLM, copy.path().c_str(), RTLD_NOW);
  if (second == nullptr) GTEST_SKIP() << "dlmopen: " << ::dlerror();
  const auto list = read_modules(own_maps(), own_options());
  int copies = 0;
  for (const Module& m : list.modules) copies += m.path == copy.path() ? 1 : 0;
  EXPECT_EQ(copies, 2);
  ::dlclose(second);
}

}  // namespace
}  // namespace trapline::symbols
