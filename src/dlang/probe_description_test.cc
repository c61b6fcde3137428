#include "dlang/probe_description.h"

#include <gtest/gtest.h>

#include <string>

#include "dlang/ast_print.h"

namespace trapline::dlang {
namespace {

bool lookup(std::string_view name, std::string& value) {
  if (name == "target") value = "31411";
  if (name == "1") value = "a:b";
  return name == "target" || name == "1";
}

std::string parse(std::string_view text, DescriptionKind kind = DescriptionKind::kName) {
  const DescriptionResult result = parse_description(text, kind, lookup);
  return result.problem.empty() ? to_text(result.probe) : result.problem;
}

TEST(ProbeDescription, PartsAreFilledFromTheRight) {
  EXPECT_EQ(parse("BEGIN"), ":::BEGIN");
  EXPECT_EQ(parse("malloc:entry"), "::malloc:entry");
  EXPECT_EQ(parse("libc:malloc:entry"), ":libc:malloc:entry");
  EXPECT_EQ(parse("pid1:libc:malloc:entry"), "pid1:libc:malloc:entry");
  EXPECT_EQ(parse("pid1::f:entry"), "pid1::f:entry");
  EXPECT_EQ(parse("pid1:::"), "pid1:::");
  EXPECT_EQ(parse(":::entry"), ":::entry");
  EXPECT_EQ(parse("f:"), "::f:");
  EXPECT_EQ(parse(":f:"), "::f:");
}

TEST(ProbeDescription, ShorterFormsEndEarlier) {
  EXPECT_EQ(parse("pid1", DescriptionKind::kProvider), "pid1:::");
  EXPECT_EQ(parse("libc", DescriptionKind::kModule), ":libc::");
  EXPECT_EQ(parse("pid1:libc", DescriptionKind::kModule), "pid1:libc::");
  EXPECT_EQ(parse("libc:f", DescriptionKind::kFunction), ":libc:f:");
  EXPECT_EQ(parse("pid1:", DescriptionKind::kModule), "pid1:::");
}

TEST(ProbeDescription, TooManyParts) {
  const std::string problem = "Overspecified probe description";
  EXPECT_EQ(parse("a:b:c:d:e"), problem);
  EXPECT_EQ(parse("profile::::tick-1sec"), problem);
  EXPECT_EQ(parse(":a:b:c:d"), "a:b:c:d");
  EXPECT_EQ(parse(":a:b:c:d:e"), problem);
  EXPECT_EQ(parse("a:b", DescriptionKind::kProvider), problem);
  EXPECT_EQ(parse(":a::", DescriptionKind::kModule), problem);
  EXPECT_EQ(parse("a:b:c:d", DescriptionKind::kFunction), problem);
  EXPECT_NE(parse_description("pid1::ns::f:entry", DescriptionKind::kName, lookup).hint, "");
}

TEST(ProbeDescription, MacrosAreExpandedAndNotSplit) {
  EXPECT_EQ(parse("pid$target::f:entry"), "pid31411::f:entry");
  EXPECT_EQ(parse("pid$$target:::"), "pid31411:::");
  EXPECT_EQ(parse("x$1y"), ":::xa:by");
  EXPECT_EQ(parse("$1$1"), ":::a:ba:b");
  EXPECT_EQ(parse("pid$nosuch:::"), "Undefined macro variable in probe description");
  EXPECT_EQ(parse("pid$:::"), "Undefined macro variable in probe description");
}

TEST(ProbeDescription, QuotesKeepColonsTogether) {
  const auto result = parse_description(R"D(pid$target::"ns::Foo::bar(int, $1)":entry)D",
                                        DescriptionKind::kName, lookup);
  EXPECT_EQ(result.problem, "");
  EXPECT_EQ(result.probe.provider, "pid31411");
  EXPECT_EQ(result.probe.function, "ns::Foo::bar(int, $1)");
  EXPECT_TRUE(result.probe.quoted);
  EXPECT_EQ(result.probe.name, "entry");
  EXPECT_EQ(result.probe.text, R"D(pid$target::"ns::Foo::bar(int, $1)":entry)D");
  const auto escaped = parse_description(R"("a\"b\\c\d":entry)", DescriptionKind::kName, lookup);
  EXPECT_EQ(escaped.probe.function, R"(a"b\c\d)");
  EXPECT_FALSE(parse_description("f:entry", DescriptionKind::kName, lookup).probe.quoted);
}

}  // namespace
}  // namespace trapline::dlang
