#include "wire/text.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/speculation.h"

namespace trapline::wire {
namespace {

constexpr std::uint64_t kSize = 64;

const TextByte* bytes(const std::string& text) {
  return reinterpret_cast<const TextByte*>(text.c_str());
}

template <typename F>
std::string made(F f, std::uint64_t size = kSize) {
  TextByte out[kSize] = {};
  f(out, size);
  return reinterpret_cast<const char*>(out);
}

std::string clean(const std::string& path) {
  return made([&](TextByte* out, std::uint64_t size) { text_cleanpath(out, bytes(path), size); });
}
std::string base(const std::string& path) {
  return made([&](TextByte* out, std::uint64_t size) { text_basename(out, bytes(path), size); });
}
std::string directory(const std::string& path) {
  return made([&](TextByte* out, std::uint64_t size) { text_dirname(out, bytes(path), size); });
}
std::string part(const std::string& text, std::int64_t start, std::int64_t count) {
  return made([&](TextByte* out, std::uint64_t size) {
    text_substr(out, bytes(text), start, count, true, size);
  });
}

TEST(Text, Paths) {
  EXPECT_EQ(clean("/foo/bar/../../baz/.//"), "/baz");
  EXPECT_EQ(clean("/../../"), "/");
  EXPECT_EQ(clean("../.."), "../..");
  EXPECT_EQ(clean("a/../.."), "..");
  EXPECT_EQ(clean("a/.."), ".");
  EXPECT_EQ(clean(""), "");
  EXPECT_EQ(base("/foo/bar///baz/"), "baz");
  EXPECT_EQ(base("//"), "/");
  EXPECT_EQ(base(""), ".");
  EXPECT_EQ(directory("/foo/bar///baz/"), "/foo/bar");
  EXPECT_EQ(directory("foo"), ".");
  EXPECT_EQ(directory("/"), "/");
}

TEST(Text, Substrings) {
  EXPECT_EQ(part("abcdefgh", 2, 3), "cde");
  EXPECT_EQ(part("abcdefgh", -3, 2), "fg");
  EXPECT_EQ(part("abcde", -7, 3), "a");  // a start before the text takes its share
  EXPECT_EQ(part("abcdefgh", 3, -2), "def");
  EXPECT_EQ(part("abc", 300, 1), "");
  EXPECT_EQ(part("abc", INT64_MIN, INT64_MAX), "abc");
}

TEST(Text, Searches) {
  EXPECT_EQ(text_index(bytes("foofoofoo"), bytes("foo"), 1, kSize), 3);
  EXPECT_EQ(text_index(bytes("foobar"), bytes(""), 10, kSize), 6);
  EXPECT_EQ(text_index(bytes("foo"), bytes("x"), 0, kSize), -1);
  EXPECT_EQ(text_rindex(bytes("foofoofoo"), bytes("foo"), 400, kSize), 6);
  EXPECT_EQ(text_rindex(bytes("foofoofoo"), bytes("foo"), -1, kSize), -1);
  EXPECT_EQ(text_find_byte(bytes("a/b/c"), '/', true, kSize), 3);
}

TEST(Text, NumbersAndAddresses) {
  const auto number = [](std::int64_t value, std::uint64_t radix, std::uint64_t size = kSize) {
    return made(
        [&](TextByte* out, std::uint64_t room) { text_from_number(out, value, radix, room); },
        size);
  };
  EXPECT_EQ(number(INT64_MIN, 10), "-9223372036854775808");
  EXPECT_EQ(number(255, 16), "0xff");
  EXPECT_EQ(number(-1234567890, 10, 8), "-123456");
  EXPECT_EQ(text_to_number(bytes(" -0x1fz"), 16, kSize), -31);
  EXPECT_EQ(text_to_number(bytes("9223372036854775808"), 10, kSize), INT64_MIN);
  const TextByte mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  const auto ipv6 = [](const TextByte* address, bool strict) {
    return made([&](TextByte* out, std::uint64_t size) { text_ipv6(out, address, strict, size); });
  };
  EXPECT_EQ(ipv6(mapped, false), "127.0.0.1");
  EXPECT_EQ(ipv6(mapped, true), "::ffff:127.0.0.1");
  const TextByte link_local[16] = {0xfe, 0x80, 0,    0,    0,    0,   0, 0,
                                   2,    0x14, 0x4f, 0xff, 0xfe, 0xb, 0, 1};
  EXPECT_EQ(ipv6(link_local, false), "fe80::214:4fff:fe0b:1");
}

TEST(Text, TokensGoOnWhereTheyWere) {
  alignas(8) unsigned char room[sizeof(TokenState) + kSize] = {};
  auto* state = reinterpret_cast<TokenState*>(room);
  TextByte out[kSize] = {};
  const std::string text = ",,one,two,";
  EXPECT_TRUE(text_token(out, bytes(text), bytes(","), state, kSize));
  EXPECT_STREQ(reinterpret_cast<char*>(out), "one");
  EXPECT_TRUE(text_token(out, nullptr, bytes(","), state, kSize));
  EXPECT_STREQ(reinterpret_cast<char*>(out), "two");
  EXPECT_FALSE(text_token(out, nullptr, bytes(","), state, kSize));
  EXPECT_FALSE(text_token(out, nullptr, bytes(","), state, kSize));
}

// A late record of an earlier use is told from those of the next by its token.
TEST(Speculation, TokensChangeWithEachUse) {
  std::uint32_t words[2] = {};
  EXPECT_EQ(speculation_begin(words, 2), 1u);
  EXPECT_EQ(speculation_begin(words, 2), 2u);
  EXPECT_EQ(speculation_begin(words, 2), 0u);
  const std::uint32_t token = speculation_active(words, 2, 1);
  EXPECT_NE(token, 0u);
  EXPECT_EQ(speculation_end(words, 2, 1), token);
  EXPECT_EQ(speculation_end(words, 2, 1), 0u);
  EXPECT_EQ(speculation_active(words, 2, 1), 0u);
  speculation_free(words, 2, token);
  EXPECT_EQ(speculation_begin(words, 2), 1u);
  EXPECT_NE(speculation_active(words, 2, 1), token);
  speculation_free(words, 2, token);  // of the past: nothing happens
  EXPECT_NE(speculation_active(words, 2, 1), 0u);
}

}  // namespace
}  // namespace trapline::wire
