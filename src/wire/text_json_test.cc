#include "wire/text_json.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace trapline::wire {
namespace {

constexpr std::uint64_t kSize = 256;

const TextByte* bytes(const std::string& text) {
  return reinterpret_cast<const TextByte*>(text.c_str());
}

std::optional<std::string> json(const std::string& text, const std::string& path,
                                std::uint64_t size = kSize) {
  TextByte out[kSize] = {};
  if (!text_json(out, bytes(text), bytes(path), size)) return std::nullopt;
  return reinterpret_cast<const char*>(out);
}

const std::string kText =
    R"( { "name" : "x\"y", "n":-1.5e3,"list":[10, {"k":true} ,[1,2], "s"], "none":null,)"
    R"("deep":{"er":{"est":"here"}}, "a.b":1, "empty":[ ], "o":{} } )";

TEST(TextJson, NamesAndIndices) {
  EXPECT_EQ(json(kText, "name"), "x\\\"y") << "an escape as it is written";
  EXPECT_EQ(json(kText, "n"), "-1.5e3");
  EXPECT_EQ(json(kText, "none"), "null");
  EXPECT_EQ(json(kText, "list[0]"), "10");
  EXPECT_EQ(json(kText, "list.3"), "s");
  EXPECT_EQ(json(kText, "list[1].k"), "true");
  EXPECT_EQ(json(kText, "list[2][1]"), "2");
  EXPECT_EQ(json(kText, "deep.er.est"), "here");
  EXPECT_EQ(json("[[7]]", "[0][0]"), "7");
}

TEST(TextJson, ContainersComeWhole) {
  EXPECT_EQ(json(kText, "list"), R"([10, {"k":true} ,[1,2], "s"])");
  EXPECT_EQ(json(kText, "deep.er"), R"({"est":"here"})");
  EXPECT_EQ(json(kText, "o"), "{}");
  EXPECT_EQ(json(R"({"a":["]","}\"]"]})", "a"), R"(["]","}\"]"])") << "brackets in strings";
}

TEST(TextJson, WhatIsNotThere) {
  for (const char* path : {"", "x", "nam", "names", "list[4]", "list[x]", "list[", "list[]",
                           "list[0", "name.x", "n[0]", "deep.", "deep..er", ".deep", "empty[0]",
                           "o.x", "a.b", "list[99999999999999999999]"}) {
    EXPECT_EQ(json(kText, path), std::nullopt) << path;
  }
}

TEST(TextJson, WhatIsNoJson) {
  for (const char* text : {"", "{", "[", "x", "{a:1}", R"({"a")", R"({"a":)", R"({"a":"b)",
                           R"({"a":"b\)", R"({"a":[1,{"x":2})", R"({"b":1 "a":2})", R"({"a":,})"}) {
    EXPECT_EQ(json(text, "a"), std::nullopt) << text;
  }
  EXPECT_EQ(json(R"({"a":1, and then anything)", "a"), "1") << "what comes later is not read";
}

TEST(TextJson, TheEndOfTheStringIsTheEnd) {
  EXPECT_EQ(json(R"({"a":"0123456789"})", "a", 12), std::nullopt);
  EXPECT_EQ(json(R"({"a":12345})", "a", 9), "123") << "all that is left of it";
}

}  // namespace
}  // namespace trapline::wire
