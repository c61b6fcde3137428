#include "plan/options.h"

#include <gtest/gtest.h>

namespace trapline::plan {
namespace {

TEST(Options, Defaults) {
  const Options options;
  EXPECT_EQ(options.number("strsize"), 256);
  EXPECT_EQ(options.number("bufsize"), 4 << 20);
  EXPECT_EQ(options.number("dynvarsize"), 1 << 20);
  EXPECT_EQ(options.period_ns("statusrate"), 1'000'000'000);
  EXPECT_EQ(options.period_ns("cleanrate"), 1'000'000'000 / 101);
  EXPECT_EQ(options.text("bufpolicy"), "switch");
  EXPECT_FALSE(options.flag("quiet"));
  EXPECT_FALSE(options.is_set("strsize"));
}

TEST(Options, SetReadsEachKind) {
  Options options;
  ASSERT_TRUE(options.set("quiet", std::nullopt));
  EXPECT_TRUE(options.flag("quiet"));
  ASSERT_TRUE(options.set("quiet", "off"));
  EXPECT_FALSE(options.flag("quiet"));
  ASSERT_TRUE(options.set("flowindent", "Enabled"));
  EXPECT_TRUE(options.flag("flowindent"));
  ASSERT_TRUE(options.set("bufsize", "10m"));
  EXPECT_EQ(options.number("bufsize"), 10 << 20);
  ASSERT_TRUE(options.set("switchrate", "10hz"));
  EXPECT_EQ(options.period_ns("switchrate"), 100'000'000);
  ASSERT_TRUE(options.set("switchrate", "5"));
  EXPECT_EQ(options.period_ns("switchrate"), 200'000'000);
  ASSERT_TRUE(options.set("aggrate", "3ms"));
  EXPECT_EQ(options.period_ns("aggrate"), 3'000'000);
  ASSERT_TRUE(options.set("bufpolicy", "ring"));
  EXPECT_EQ(options.text("bufpolicy"), "ring");
  ASSERT_TRUE(options.set("stackindent", "0x10"));
  EXPECT_EQ(options.number("stackindent"), 16);
  EXPECT_TRUE(options.is_set("stackindent"));
}

TEST(Options, ValuesThatMayComeTwiceAreCollected) {
  Options options;
  ASSERT_TRUE(options.set("define", "A=1"));
  ASSERT_TRUE(options.set("define", "B"));
  EXPECT_EQ(options.text("define"), "A=1\nB");
}

TEST(Options, RefusesWhatIsWrong) {
  Options options;
  EXPECT_FALSE(options.set("nosuchoption", std::nullopt));
  EXPECT_FALSE(options.set("strsize", "1"));
  EXPECT_FALSE(options.set("strsize", "-5"));
  EXPECT_FALSE(options.set("strsize", "5x"));
  EXPECT_FALSE(options.set("strsize", "99999999999999999999"));
  EXPECT_FALSE(options.set("bufsize", "9999999999t"));
  EXPECT_FALSE(options.set("bufpolicy", "later"));
  EXPECT_FALSE(options.set("switchrate", "7parsecs"));
  EXPECT_FALSE(options.set("quiet", "perhaps"));
  const auto wrong = options.set("bufpolicy", "later");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(wrong.error().text(),
            "Invalid value for specified option: bufpolicy takes one of switch, fill, ring, block, "
            "not \"later\"");
  EXPECT_EQ(options.number("strsize"), 256);
}

TEST(Options, APragmaCannotSetWhatIsNeededBefore) {
  Options options;
  EXPECT_FALSE(options.set("libdir", "x", OptionPlace::kProgram));
  EXPECT_FALSE(options.set("modpath", "x", OptionPlace::kProgram));
  EXPECT_FALSE(options.is_set("libdir"));
  EXPECT_TRUE(options.set("quiet", std::nullopt, OptionPlace::kProgram));
  EXPECT_TRUE(options.set("libdir", "x"));
}

TEST(Options, VersionsOfD) {
  Options options;
  for (const char* known : {"1.0", "1.6.3", "1.14", "2.0", "2.0.7"})
    EXPECT_TRUE(options.set("version", known)) << known;
  for (const char* unknown : {"", "2", "2.1", "99.1", "1.x", "1.0.0.1", "-1.0", "1.0 "})
    EXPECT_FALSE(options.set("version", unknown)) << unknown;
}

TEST(Options, TableSaysWhatMayChangeWhileRunning) {
  ASSERT_NE(find_option("aggsortkey"), nullptr);
  EXPECT_TRUE(find_option("aggsortkey")->while_running);
  EXPECT_FALSE(find_option("bufsize")->while_running);
  EXPECT_TRUE(find_option("engine")->extension);
  EXPECT_TRUE(find_option("linkmode")->ignored);
  EXPECT_EQ(find_option("nosuchoption"), nullptr);
}

TEST(Options, SizesAndPeriods) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("010"), 8);
  EXPECT_EQ(parse_size("2K"), 2048);
  EXPECT_EQ(parse_size("1t"), std::int64_t{1} << 40);
  EXPECT_EQ(parse_size(""), std::nullopt);
  EXPECT_EQ(parse_size("k"), std::nullopt);
  EXPECT_EQ(parse_size("1kk"), std::nullopt);
  EXPECT_EQ(parse_size("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_period("1000ns"), 1000);
  EXPECT_EQ(parse_period("2SEC"), 2'000'000'000);
  EXPECT_EQ(parse_period("1day"), 86'400'000'000'000);
  EXPECT_EQ(parse_period("0hz"), 0);
  EXPECT_EQ(parse_period("106752d"), std::nullopt);
}

}  // namespace
}  // namespace trapline::plan
