#include "serve/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trapline::serve {
namespace {

using testing::HasSubstr;

std::expected<Call, BadCall> read(std::string_view method, std::string_view params) {
  return read_call("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"" + std::string(method) +
                   "\",\"params\":" + std::string(params) + "}");
}

template <typename M>
M good(std::string_view method, std::string_view params) {
  const auto call = read(method, params);
  EXPECT_TRUE(call) << call.error().failure.message;
  if (!call || !std::holds_alternative<M>(call->method)) return {};
  EXPECT_EQ(call->id, "7");
  return std::get<M>(call->method);
}

TEST(Request, TargetsOfOpen) {
  EXPECT_TRUE(std::holds_alternative<Self>(
      good<Open>("open", R"({"target":{"self":true},"mute_offset":-8})").target));
  EXPECT_EQ(good<Open>("open", R"({"target":{"self":true},"mute_offset":-8})").mute_offset, -8);
  EXPECT_EQ(std::get<Pid>(good<Open>("open", R"({"target":{"pid":4711}})").target).value, 4711);
  const auto open = good<Open>(
      "open", R"({"target":{"argv":["/bin/ls","-l"]},"records":"push","stdio":[3,4,2]})");
  EXPECT_THAT(std::get<Command>(open.target).argv, testing::ElementsAre("/bin/ls", "-l"));
  EXPECT_TRUE(open.records);
  EXPECT_EQ(open.stdio, (std::array<int, 3>{3, 4, 2}));
  EXPECT_EQ(std::get<Command>(good<Open>("open", R"({"target":{"command":"ls -l"}})").target).line,
            "ls -l");
}

TEST(Request, CompileTakesOptionsOfAllKinds) {
  const auto compile = good<Compile>(
      "compile",
      R"({"session":3,"text":"BEGIN","arguments":["1",""],"options":{"a":"8m","b":true,"c":false,"d":64}})");
  EXPECT_EQ(compile.session, 3);
  EXPECT_EQ(compile.name, "program");
  EXPECT_THAT(compile.arguments, testing::ElementsAre("1", ""));
  using Option = std::pair<std::string, std::optional<std::string>>;
  EXPECT_THAT(compile.options, testing::ElementsAre(Option{"a", "8m"}, Option{"b", std::nullopt},
                                                    Option{"c", "false"}, Option{"d", "64"}));
}

TEST(Request, WhatIsWrongIsNamed) {
  const struct {
    std::string_view method, params, part;
  } kCases[] = {
      {"open", "{}", "target is missing"},
      {"open", "[]", "params must be an object"},
      {"open", R"({"target":{}})", "one of self, pid, argv and command"},
      {"open", R"({"target":{"self":true,"pid":1}})", "one of self, pid, argv and command"},
      {"open", R"({"target":{"self":false}})", "target.self must be true"},
      {"open", R"({"target":{"pid":0}})", "target.pid must be an integer from 1"},
      {"open", R"({"target":{"pid":4294967297}})", "target.pid must be"},
      {"open", R"({"target":{"pid":1.5}})", "target.pid must be"},
      {"open", R"({"target":{"pid":18446744073709551615}})", "target.pid must be"},
      {"open", R"({"target":{"argv":[]}})", "target.argv must be"},
      {"open", R"({"target":{"argv":["a\u0000b"]}})", "without NUL"},
      {"open", R"({"target":{"pid":1,"x":1}})", "target.x is not known"},
      {"open", R"({"target":{"pid":1},"records":"all"})", "records must be"},
      {"open", R"({"target":{"pid":1},"mute_offset":-8})", "for the target self only"},
      {"open", R"({"target":{"self":true},"mute_offset":-7})", "a multiple of 4"},
      {"open", R"({"target":{"self":true},"mute_offset":8})", "mute_offset must be"},
      {"open", R"({"target":{"command":"ls"},"stdio":[0,1]})", "three descriptors"},
      {"open", R"({"target":{"pid":1},"stdio":[0,1,2]})", "for commands only"},
      {"start", "{}", "session is missing"},
      {"start", R"({"session":"1"})", "session must be an integer"},
      {"start", R"({"session":99999999999999999999})", "session must be an integer"},
      {"snapshot", R"({"session":1,"text":1})", "text must be true or false"},
      {"compile", R"({"session":1})", "text is missing"},
      {"compile", R"({"session":1,"text":"","options":{"a":[]}})", "options.a must be"},
      {"shutdown", R"({"x":1})", "x is not known"},
  };
  for (const auto& c : kCases) {
    const auto call = read(c.method, c.params);
    ASSERT_FALSE(call) << c.params;
    EXPECT_EQ(call.error().failure.kind, Kind::kParameters);
    EXPECT_EQ(call.error().id, "7");
    EXPECT_THAT(call.error().failure.message, HasSubstr(c.part)) << c.params;
  }
}

TEST(Request, WhatIsNoRequest) {
  const struct {
    std::string line;
    Kind kind;
    std::string id;
  } kCases[] = {
      {"", Kind::kParse, "null"},
      {"{", Kind::kParse, "null"},
      {"\"\xff\"", Kind::kParse, "null"},
      {"{\"id\":1e999}", Kind::kParse, "null"},
      {std::string(1000000, '['), Kind::kParse, "null"},
      {"[]", Kind::kRequest, "null"},
      {"7", Kind::kRequest, "null"},
      {R"({"id":1})", Kind::kRequest, "1"},
      {R"({"jsonrpc":"2.0","id":{},"method":"stop"})", Kind::kRequest, "null"},
      {R"({"jsonrpc":"2.0","id":1.5,"method":"stop"})", Kind::kRequest, "null"},
      {R"({"jsonrpc":"2.0","id":"x","method":1})", Kind::kRequest, "\"x\""},
      {R"({"jsonrpc":"2.0","id":1,"method":"shutdown","more":1})", Kind::kRequest, "1"},
      {R"({"jsonrpc":"2.0","id":1,"method":"dance"})", Kind::kMethod, "1"},
      {R"({"jsonrpc":"2.0","method":"dance"})", Kind::kMethod, ""},
  };
  for (const auto& c : kCases) {
    const auto call = read_call(c.line);
    ASSERT_FALSE(call) << c.line.substr(0, 100);
    EXPECT_EQ(call.error().failure.kind, c.kind) << c.line.substr(0, 100);
    EXPECT_EQ(call.error().id, c.id) << c.line.substr(0, 100);
  }
}

TEST(Request, WithoutAnIdNoAnswerIsWanted) {
  const auto call = read_call(R"({"jsonrpc":"2.0","method":"shutdown"})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->id, "");
  EXPECT_EQ(read_call(R"({"jsonrpc":"2.0","id":null,"method":"shutdown"})")->id, "null");
}

TEST(Answer, FailuresAreOneLineWithTheirKind) {
  EXPECT_EQ(failure_line("3", {Kind::kPermission, "not\nyours\n", "\"rule\":\"owner\""}),
            "{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":-32003,\"message\":\"not yours\","
            "\"data\":{\"kind\":\"permission\",\"rule\":\"owner\"}}}\n");
  EXPECT_EQ(answer_line("\"x\"", "{}"), "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}\n");
}

}  // namespace
}  // namespace trapline::serve
