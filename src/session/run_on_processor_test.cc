#include "session/run_on_processor.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace trapline::session {
namespace {

TEST(RunOnProcessor, MovesThereAndBack) {
  const std::vector<std::uint32_t> allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  for (const std::uint32_t processor : allowed) {
    const RunOnProcessor there(processor);
    ASSERT_TRUE(there.moved());
    EXPECT_EQ(sched_getcpu(), static_cast<int>(processor));
    EXPECT_EQ(allowed_processors(), std::vector{processor});
  }
  EXPECT_EQ(allowed_processors(), allowed);
}

TEST(RunOnProcessor, StaysWhereThereIsNone) {
  const std::vector<std::uint32_t> allowed = allowed_processors();
  for (const std::uint32_t processor : {60'000U, ~0U}) {
    const RunOnProcessor there(processor);
    EXPECT_FALSE(there.moved());
    EXPECT_EQ(allowed_processors(), allowed);
  }
}

}  // namespace
}  // namespace trapline::session
