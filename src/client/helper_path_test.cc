#include "client/helper_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace trapline::client {
namespace {

class HelperPathTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/helper_path.XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(name));
    root_ = std::filesystem::canonical(name).string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string make(const std::string& path, int mode = 0755) {
    const std::string full = root_ + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full) << "#!/bin/sh\n";
    ::chmod(full.c_str(), static_cast<mode_t>(mode));
    return full;
  }
  std::string found(const HelperSearch& search) {
    const auto path = find_helper(search);
    return path ? std::filesystem::weakly_canonical(*path).string() : path.error().text;
  }

  std::string root_;
};

TEST_F(HelperPathTest, BesideTheLibrary) {
  const std::string library = make("/usr/lib/x86_64-linux-gnu/libtrapline.so.0");
  HelperSearch search;
  search.library = library;
  EXPECT_THAT(found(search), testing::HasSubstr("was not found")) << "nothing there yet";
  const std::string installed = make("/usr/bin/trapline");
  EXPECT_EQ(installed, found(search));
  const std::string nearer = make("/usr/lib/bin/trapline");
  EXPECT_EQ(nearer, found(search));
}

TEST_F(HelperPathTest, AFileThatCannotBeExecutedIsPassedOver) {
  const std::string library = make("/opt/lib/libtrapline.so.0");
  make("/opt/bin/trapline", 0644);
  std::filesystem::create_directories(root_ + "/path1/trapline");
  const std::string wanted = make("/path2/trapline");
  const std::string path = root_ + "/path1:relative::" + root_ + "/path2";
  HelperSearch search;
  search.library = library;
  search.path = path.c_str();
  EXPECT_EQ(wanted, found(search));
}

TEST_F(HelperPathTest, TheVariableAlone) {
  const std::string library = make("/opt/lib/libtrapline.so.0");
  make("/opt/bin/trapline");
  const std::string named = make("/elsewhere/other_name");
  HelperSearch search;
  search.library = library;
  search.command = named.c_str();
  EXPECT_EQ(named, found(search));
  search.command = "/nowhere/trapline";
  const auto missing = find_helper(search);
  ASSERT_FALSE(missing);
  EXPECT_EQ(TRAPLINE_ERROR_NO_HELPER, missing.error().code);
  EXPECT_THAT(missing.error().text, testing::HasSubstr("/nowhere/trapline"));
  search.command = "";
  EXPECT_EQ(root_ + "/opt/bin/trapline", found(search));
}

TEST_F(HelperPathTest, TheTextListsWhereItLooked) {
  HelperSearch search;
  const std::string path = root_ + "/a";
  search.path = path.c_str();
  const auto missing = find_helper(search);
  ASSERT_FALSE(missing);
  EXPECT_EQ(TRAPLINE_ERROR_NO_HELPER, missing.error().code);
  EXPECT_THAT(missing.error().text, testing::HasSubstr(root_ + "/a/trapline"));
  EXPECT_THAT(missing.error().text, testing::HasSubstr("TRAPLINE_COMMAND"));
}

TEST(HelperEnvironmentTest, WithoutThePreloadedLibraries) {
  char a[] = "A=1", preload[] = "LD_PRELOAD=/x.so", audit[] = "LD_AUDIT=/y.so",
       path[] = "LD_LIBRARY_PATH=/z", b[] = "LD_PRELOADED=2";
  char* environment[] = {a, preload, audit, path, b, nullptr};
  const auto kept = helper_environment(environment);
  EXPECT_EQ((std::vector<char*>{a, path, b, nullptr}), kept);
}

}  // namespace
}  // namespace trapline::client
