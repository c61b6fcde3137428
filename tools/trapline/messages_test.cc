#include "messages.h"

#include <gtest/gtest.h>

namespace trapline::tool {
namespace {

TEST(Messages, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(for_terminal("plain \t text\n"), "plain \t text\n");
  EXPECT_EQ(for_terminal("\x1b[31mred\r\x7f"), "\\x1b[31mred\\x0d\\x7f");
  EXPECT_EQ(for_terminal(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(for_terminal("na\xc3\xafve"), "na\xc3\xafve");
}

}  // namespace
}  // namespace trapline::tool
