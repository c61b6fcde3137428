#include "symbols/glob.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace trapline::symbols {
namespace {

bool match(std::string_view pattern, std::string_view text) { return Glob(pattern).matches(text); }

TEST(Glob, EmptyPatternAndStarsMatchAll) {
  EXPECT_TRUE(match("", "malloc"));
  EXPECT_TRUE(match("*", ""));
  EXPECT_TRUE(match("***", "x"));
  EXPECT_TRUE(Glob("").matches_all());
}

TEST(Glob, LiteralsAreComparedWhole) {
  EXPECT_TRUE(match("malloc", "malloc"));
  EXPECT_FALSE(match("malloc", "malloc2"));
  EXPECT_TRUE(Glob("a\\*b").is_literal());
  EXPECT_EQ(Glob("a\\*b").literal(), "a*b");
  EXPECT_TRUE(match("a\\*b", "a*b"));
  EXPECT_FALSE(match("a\\*b", "axb"));
}

TEST(Glob, FastFormsAgreeWithTheirMeaning) {
  EXPECT_TRUE(match("mem*", "memcpy"));
  EXPECT_FALSE(match("mem*", "wmemcpy"));
  EXPECT_TRUE(match("*cpy", "memcpy"));
  EXPECT_FALSE(match("*cpy", "memcpy2"));
  EXPECT_TRUE(match("*mc*", "memcpy"));
  EXPECT_TRUE(match("a\\**", "a*b"));
  EXPECT_FALSE(match("a\\**", "ab"));
}

TEST(Glob, Sets) {
  EXPECT_TRUE(match("str[a-z]*", "strlen"));
  EXPECT_FALSE(match("str[!a-z]*", "strlen"));
  EXPECT_TRUE(match("[]x]", "]"));
  EXPECT_TRUE(match("[a-]", "-"));
  EXPECT_TRUE(match("a[", "a["));
  EXPECT_TRUE(match("[[:digit:]]x", "7x"));
}

TEST(Glob, LongPatternsDoNotExplode) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a?";
  EXPECT_FALSE(match(pattern + "b", std::string(5000, 'a')));
}

// fnmatch(3) is the reference, except for [=a=] and [.a.], which we do not have.
TEST(Glob, AgreesWithFnmatch) {
  constexpr std::string_view kPattern = "ab-]*?[!^\\:";
  constexpr std::string_view kText = "ab-]!^\\[*";
  std::mt19937 random(20240611);
  const auto pick = [&](std::string_view from, std::size_t most) {
    std::string out;
    for (auto n = random() % (most + 1); n > 0; --n) out += from[random() % from.size()];
    return out;
  };
  int matched = 0;
  for (int i = 0; i < 300'000; ++i) {
    const std::string pattern = pick(kPattern, 7);
    const std::string text = pick(kText, 5);
    if (pattern.empty() || pattern.find("[:") != std::string::npos) continue;
    const bool expected = fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
    matched += expected ? 1 : 0;
    ASSERT_EQ(match(pattern, text), expected) << "pattern " << pattern << " text " << text;
  }
  EXPECT_GT(matched, 1000);
}

}  // namespace
}  // namespace trapline::symbols
