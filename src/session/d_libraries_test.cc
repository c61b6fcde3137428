#include "session/d_libraries.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace trapline::session {
namespace {

namespace fs = std::filesystem;

class DLibrariesTest : public testing::Test {
 protected:
  DLibrariesTest() {
    std::string name = (fs::temp_directory_path() / "libraries-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~DLibrariesTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  // The names in their order, or the error.
  std::string names(const std::vector<std::string>& folders = {"."}) {
    plan::Options options;
    for (const std::string& folder : folders) {
      const auto set = options.set("libdir", (folder_ / folder).lexically_normal().string());
      EXPECT_TRUE(set);
    }
    const auto libraries = read_libraries(options);
    if (!libraries) return libraries.error().text();
    std::string all;
    for (const DLibrary& library : *libraries)
      all += fs::path(library.path).lexically_proximate(folder_).string() + " ";
    return all;
  }

  fs::path folder_;
};

TEST_F(DLibrariesTest, ComeAfterThoseTheyDependOn) {
  write("a.d", "#pragma D depends_on library d.d\n");
  write("b.d", "");
  write("c.d", "#pragma D depends_on library e.d\n");
  write("d.d", "#pragma D depends_on library b.d\n");
  write("e.d", "#pragma D depends_on library a.d\n#pragma D depends_on library b.d\n");
  write("readme.txt", "none");
  EXPECT_EQ(names(), "b.d d.d a.d e.d c.d ");
}

TEST_F(DLibrariesTest, AreLeftOutWithWhatTheyNeed) {
  write("a.d", "#pragma D depends_on library b.d\n");
  write("b.d", "#pragma D depends_on module there_is_none\n");
  write("c.d", "#pragma D depends_on provider profile\n");
  write("d.d", "#pragma D depends_on provider io\n");
  write("e.d", "#pragma D depends_on library a.d\n");
  EXPECT_EQ(names(), "c.d ");
}

TEST_F(DLibrariesTest, MeanThatOfTheirOwnFolderFirst) {
  write("one/x.d", "");
  write("two/x.d", "");
  write("two/y.d", "#pragma D depends_on library x.d\n");
  EXPECT_EQ(names({"two", "one"}), "two/x.d two/y.d one/x.d ");
}

TEST_F(DLibrariesTest, WhatIsWrongIsNamed) {
  write("circle/a.d", "#pragma D depends_on library b.d\n");
  write("circle/b.d", "#pragma D depends_on library a.d\n");
  EXPECT_NE(names({"circle"}).find("in a circle"), std::string::npos) << names({"circle"});
  write("missing/a.d", "#pragma D depends_on library not_there.d\n");
  EXPECT_NE(names({"missing"}).find("depends on not_there.d"), std::string::npos);
  EXPECT_NE(names({"nowhere"}).find("failed to read the folder"), std::string::npos);
}

}  // namespace
}  // namespace trapline::session
