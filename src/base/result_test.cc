#include "base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace trapline {
namespace {

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9') return Error(ErrorCode::kBadInput, "not a digit");
  return c - '0';
}

Result<int> sum_of_digits(std::string_view text) {
  int sum = 0;
  for (const char c : text) {
    TL_TRY_ASSIGN(const int digit, parse_digit(c));
    sum += digit;
  }
  return sum;
}

Result<> check_digits(std::string_view text) {
  TL_TRY(sum_of_digits(text));
  return {};
}

TEST(Result, CarriesValuesAndErrors) {
  ASSERT_TRUE(sum_of_digits("123"));
  EXPECT_EQ(*sum_of_digits("123"), 6);
  const Result<int> failed = sum_of_digits("1x3");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(failed.error().within("reading").text(), "reading: not a digit");
  EXPECT_FALSE(check_digits("x"));
  EXPECT_TRUE(check_digits("1"));
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  ASSERT_TRUE(made);
  EXPECT_EQ(**made, 7);
}

TEST(Error, OfTheSystemNamesTheCause) {
  const Error error = Error::os(ENOENT, "opening x");
  EXPECT_EQ(error.text(), "opening x: No such file or directory");
  EXPECT_EQ(error.os_errno(), ENOENT);
}

}  // namespace
}  // namespace trapline
