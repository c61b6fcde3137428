#include "dlang/format.h"

#include <gtest/gtest.h>

namespace trapline::dlang {
namespace {

// One part a word: text in quotes, conversions as written back.
std::string parts(std::string_view text) {
  const auto parsed = parse_format(text);
  if (!parsed) return "error: " + parsed.error().text();
  std::string out;
  for (const FormatPart& part : *parsed) {
    if (!out.empty()) out += ' ';
    if (part.conversion == 0) {
      out += '\'' + part.text + '\'';
      continue;
    }
    out += '%';
    if (part.is_aggregation) out += '@';
    out += part.flags;
    if (part.dynamic_width) out += '*';
    if (part.width >= 0) out += std::to_string(part.width);
    if (part.dynamic_precision) out += ".*";
    if (part.precision >= 0) out += "." + std::to_string(part.precision);
    out += part.length + part.conversion;
  }
  return out;
}

TEST(Format, TakesFormatsApart) {
  EXPECT_EQ(parts("plain"), "'plain'");
  EXPECT_EQ(parts(""), "");
  EXPECT_EQ(parts("a%db"), "'a' %d 'b'");
  EXPECT_EQ(parts("100%% of %s\n"), "'100% of ' %s '\n'");
  EXPECT_EQ(parts("%%%%"), "'%%'");
  EXPECT_EQ(parts("%-10.3lld|%+ #'05x"), "%-10.3lld '|' %+ #'05x");
  EXPECT_EQ(parts("%*.*s"), "%*.*s");
  EXPECT_EQ(parts("%?p"), "%16p");
  EXPECT_EQ(parts("%@12u"), "%@12u");
  EXPECT_EQ(parts("%.0d %.d"), "%d ' ' %d");
}

TEST(Format, RefusesWhatIsNone) {
  EXPECT_EQ(parts("%d %"),
            "error: format conversion #2 ends with the format string before its name");
  EXPECT_EQ(parts("%z"), "error: format conversion #1 is not known: %z");
  EXPECT_EQ(parts("%lls"), "error: format conversion #1 is not known: %lls");
  EXPECT_EQ(parts("%5%"), "error: format conversion #1 %% cannot have flags");
  EXPECT_EQ(parts("%1$d"),
            "error: format conversion #1 is positional (%n$), which D does not have");
  EXPECT_EQ(parts("%**d"), "error: format conversion #1 has two '*' for its width");
  EXPECT_EQ(parts("%.*.d"), "error: format conversion #1 has two '.'");
  EXPECT_EQ(parts("%n"), "error: format conversion #1 is not known: %n");
}

TEST(Format, HugeWidthsAreBounded) {
  const auto parsed = parse_format("%99999999999999999999d");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->front().width, 1 << 26);
}

class Accepts : public testing::Test {
 protected:
  bool takes(std::string_view conversion, ctypes::TypeId type, HasTarget target = HasTarget::kNo) {
    const auto parsed = parse_format(conversion);
    return parsed && accepts(parsed->front(), type, types_, target);
  }
  ctypes::TypeTable types_;
};

TEST_F(Accepts, IntegersOfAnySize) {
  for (const char* conversion : {"%d", "%i", "%u", "%o", "%x", "%X"}) {
    EXPECT_TRUE(takes(conversion, ctypes::kChar)) << conversion;
    EXPECT_TRUE(takes(conversion, ctypes::kUnsignedLongLong)) << conversion;
    EXPECT_FALSE(takes(conversion, ctypes::kString)) << conversion;
    EXPECT_FALSE(takes(conversion, types_.pointer_to(ctypes::kInt))) << conversion;
  }
  EXPECT_TRUE(takes("%c", ctypes::kInt));
  EXPECT_FALSE(takes("%c", ctypes::kLong));
}

TEST_F(Accepts, SizedConversionsAskForTheirType) {
  EXPECT_TRUE(takes("%hd", ctypes::kShort));
  EXPECT_FALSE(takes("%hd", ctypes::kUnsignedShort));
  EXPECT_TRUE(takes("%hx", ctypes::kUnsignedShort));
  EXPECT_TRUE(takes("%ld", ctypes::kLong));
  EXPECT_FALSE(takes("%ld", ctypes::kInt));
  EXPECT_FALSE(takes("%lld", ctypes::kLong));
  EXPECT_TRUE(takes("%lld", ctypes::kLongLong));
  EXPECT_TRUE(takes("%llx", *types_.find_typedef("uint64_t")));
  EXPECT_FALSE(takes("%llx", ctypes::kUnsignedLong));
}

TEST_F(Accepts, StringsAddressesTimes) {
  EXPECT_TRUE(takes("%s", ctypes::kString));
  EXPECT_TRUE(takes("%S", types_.array_of(ctypes::kChar, 5)));
  EXPECT_FALSE(takes("%s", types_.pointer_to(ctypes::kChar)));
  EXPECT_FALSE(takes("%s", types_.array_of(ctypes::kInt, 5)));
  EXPECT_TRUE(takes("%p", types_.pointer_to(ctypes::kVoid)));
  EXPECT_TRUE(takes("%a", ctypes::kLong));
  EXPECT_FALSE(takes("%A", ctypes::kLong));
  EXPECT_TRUE(takes("%A", ctypes::kLong, HasTarget::kYes));
  EXPECT_TRUE(takes("%Y", ctypes::kUnsignedLong));
  EXPECT_FALSE(takes("%Y", ctypes::kInt));
  EXPECT_TRUE(takes("%k", ctypes::kStack));
  EXPECT_TRUE(takes("%f", ctypes::kDouble));
  EXPECT_FALSE(takes("%f", ctypes::kInt));
}

}  // namespace
}  // namespace trapline::dlang
