#include "base/cursor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace trapline {
namespace {

TEST(Cursor, ReadsUpToTheEndAndNotBeyond) {
  const std::array<std::byte, 6> bytes{std::byte{1}, std::byte{0}, std::byte{2},
                                       std::byte{0}, std::byte{3}, std::byte{4}};
  Cursor cursor(bytes);
  EXPECT_EQ(cursor.read<std::uint16_t>(), 1);
  EXPECT_EQ(cursor.read<std::uint16_t>(), 2);
  EXPECT_FALSE(cursor.failed());
  EXPECT_EQ(cursor.read<std::uint32_t>(), 0u) << "four bytes are asked for, two are left";
  EXPECT_TRUE(cursor.failed());
  EXPECT_EQ(cursor.remaining(), 0u);
}

TEST(Cursor, RefusesToSeekOutside) {
  const std::array<std::byte, 2> bytes{};
  Cursor cursor(bytes);
  cursor.seek(2);
  EXPECT_FALSE(cursor.failed());
  cursor.seek(3);
  EXPECT_TRUE(cursor.failed());
}

}  // namespace
}  // namespace trapline
