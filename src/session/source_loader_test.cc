#include "session/source_loader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace trapline::session {
namespace {

TEST(ReadScript, NamesWhatIsMissing) {
  const auto missing = read_script("/nonexistent/x.d");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().text().find("/nonexistent/x.d"), std::string::npos);
  const auto folder = read_script("/");
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().text().find("directory"), std::string::npos);
}

TEST(Preprocess, ExpandsMacrosAndKeepsLines) {
  plan::Options options;
  const auto text = preprocess("#!/usr/sbin/dtrace -Cs\nBEGIN { exit(STATUS); }\n", "x.d", options,
                               {"-DSTATUS=7"});
  ASSERT_TRUE(text) << text.error().text();
  EXPECT_NE(text->find("exit(7)"), std::string::npos);
}

TEST(Preprocess, FailsWithTheScript) {
  plan::Options options;
  const auto text = preprocess("#error no\n", "x.d", options, {});
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().text().find("x.d"), std::string::npos);
}

}  // namespace
}  // namespace trapline::session
