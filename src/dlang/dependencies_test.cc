#include "dlang/dependencies.h"

#include <gtest/gtest.h>

namespace trapline::dlang {
namespace {

TEST(Dependencies, AreReadFromAnywhereInALibrary) {
  const auto found = read_dependencies(
      "/* #pragma D depends_on library no.d */\n"
      "#pragma D depends_on library a.d\n"
      "inline int x = 1;\n"
      "#pragma D depends_on provider io\n"
      "#pragma D option quiet\n"
      "\"a string $ that does not end\n"
      "#pragma D depends_on module unix\n"
      "#pragma D depends_on nonsense x\n");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kind, DependencyKind::kLibrary);
  EXPECT_EQ(found[0].name, "a.d");
  EXPECT_EQ(found[1].kind, DependencyKind::kProvider);
  EXPECT_EQ(found[1].name, "io");
  EXPECT_EQ(found[2].kind, DependencyKind::kModule);
  EXPECT_EQ(found[2].name, "unix");
  EXPECT_TRUE(read_dependencies("").empty());
}

}  // namespace
}  // namespace trapline::dlang
