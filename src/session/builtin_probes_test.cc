#include "session/builtin_probes.h"

#include <gtest/gtest.h>

namespace trapline::session {
namespace {

plan::ProbeDescription description(std::string provider, std::string module, std::string function,
                                   std::string name) {
  plan::ProbeDescription d;
  d.provider = std::move(provider);
  d.module = std::move(module);
  d.function = std::move(function);
  d.name = std::move(name);
  return d;
}

TEST(BuiltinProbes, FixedOnesHaveFixedIds) {
  const auto begin = match_builtin(description("dtrace", "", "", "BEGIN"));
  ASSERT_TRUE(begin);
  ASSERT_EQ(begin->size(), 1u);
  EXPECT_EQ(begin->front().kind, BuiltinKind::kBegin);
  EXPECT_EQ(begin->front().name.id, 1u);
  const auto all = match_builtin(description("dtrace", "", "", ""));
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 3u);
}

TEST(BuiltinProbes, NoProviderIsNeeded) {
  const auto end = match_builtin(description("", "", "", "END"));
  ASSERT_TRUE(end);
  ASSERT_EQ(end->size(), 1u);
  EXPECT_EQ(end->front().kind, BuiltinKind::kEnd);
}

TEST(BuiltinProbes, TicksTakeAllSuffixes) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"tick-1s", 1'000'000'000},   {"tick-100ms", 100'000'000}, {"tick-10hz", 100'000'000},
      {"tick-5", 200'000'000},      {"tick-500us", 500'000},     {"tick-1m", 60'000'000'000},
      {"tick-1sec", 1'000'000'000}, {"tick-200000ns", 200'000}};
  for (const auto& [name, ns] : cases) {
    const auto tick = match_builtin(description("profile", "", "", name));
    ASSERT_TRUE(tick) << name;
    ASSERT_EQ(tick->size(), 1u) << name;
    EXPECT_EQ(tick->front().period.count(), ns) << name;
  }
}

TEST(BuiltinProbes, ProfilesAreLikeTicks) {
  const auto one = match_builtin(description("", "", "", "profile-5ms"));
  ASSERT_TRUE(one);
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().kind, BuiltinKind::kProfile);
  EXPECT_EQ(one->front().period.count(), 5'000'000);
  EXPECT_EQ(match_builtin(description("profile", "", "", "profile-*"))->size(), 7u);
  EXPECT_EQ(match_builtin(description("profile", "", "", ""))->size(), 13u);
  EXPECT_TRUE(match_builtin(description("", "", "", ""))->size() == 3u);
}

TEST(BuiltinProbes, TooShortTicksAndOtherProvidersAreRefused) {
  EXPECT_EQ(match_builtin(description("profile", "", "", "tick-100us")).error().code(),
            ErrorCode::kBadInput);
  EXPECT_EQ(match_builtin(description("profile", "", "", "tick-x")).error().code(),
            ErrorCode::kBadInput);
  EXPECT_EQ(match_builtin(description("profile", "", "", "profile-199us")).error().code(),
            ErrorCode::kBadInput);
  EXPECT_EQ(match_builtin(description("profile", "", "", "profile-n")).error().code(),
            ErrorCode::kBadInput);
  EXPECT_EQ(match_builtin(description("syscall", "", "read", "entry")).error().code(),
            ErrorCode::kUnsupported);
  EXPECT_TRUE(match_builtin(description("nosuch", "", "", "x"))->empty());
}

TEST(BuiltinProbes, PidsOfProviders) {
  EXPECT_EQ(pid_of_provider("pid12"), 12);
  EXPECT_EQ(pid_of_provider("pid"), std::nullopt);
  EXPECT_EQ(pid_of_provider("pid12x"), std::nullopt);
  EXPECT_EQ(pid_of_provider("pid0"), std::nullopt);
  EXPECT_EQ(pid_of_provider("pid99999999999"), std::nullopt);
  EXPECT_EQ(pid_of_provider("profile"), std::nullopt);
}

}  // namespace
}  // namespace trapline::session
