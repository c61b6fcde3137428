#include "serve/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

namespace trapline::serve {
namespace {

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    other_ = Fd(pair[0]);
    auto made = Channel::create(Fd(pair[1]), Fd());
    ASSERT_TRUE(made);
    channel_.emplace(std::move(*made));
  }
  void say(std::string_view text) {
    ASSERT_EQ(::send(other_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  // All that can be read now.
  std::string hear() {
    std::string all(std::size_t{1} << 22, '\0');
    const ssize_t n = ::recv(other_.get(), all.data(), all.size(), MSG_DONTWAIT);
    all.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return all;
  }
  std::string line() { return std::string(channel_->next_line().value_or("(none)")); }

  Fd other_;
  std::optional<Channel> channel_;
};

TEST_F(ChannelTest, LinesComeWholeAndInOrder) {
  EXPECT_EQ(channel_->read_some(), Channel::Input::kOpen) << "nothing there: no wait";
  say("one\ntw");
  EXPECT_TRUE(channel_->read_some());
  EXPECT_EQ(line(), "one");
  EXPECT_EQ(line(), "(none)");
  say("o\n\nthree");
  EXPECT_TRUE(channel_->read_some());
  EXPECT_EQ(line(), "two");
  EXPECT_EQ(line(), "");
  EXPECT_EQ(line(), "(none)");
  other_.reset();
  EXPECT_EQ(channel_->read_some(), Channel::Input::kEnded);
  EXPECT_EQ(line(), "(none)") << "a line that was not ended is none";
}

TEST_F(ChannelTest, ALineHasABound) {
  const std::string part(std::size_t{64} << 10, 'x');
  std::size_t sent = 0;
  Result<Channel::Input> read = Channel::Input::kOpen;
  while (read && sent < kMaxLine * 2) {
    say(part);
    sent += part.size();
    read = channel_->read_some();
  }
  ASSERT_FALSE(read);
  EXPECT_GT(sent, kMaxLine);
  EXPECT_LT(sent, kMaxLine + 10 * part.size());
}

TEST_F(ChannelTest, WhatIsNotReadWaits) {
  const std::string note(1000, 'n');
  for (int i = 0; i < 1000; ++i) channel_->notify(note + "\n");
  channel_->answer("answer\n");
  EXPECT_TRUE(channel_->write_some());
  EXPECT_TRUE(channel_->has_output()) << "a socket's buffer is smaller than this";
  EXPECT_GT(channel_->unread(), 0u);
  EXPECT_FALSE(channel_->full()) << "notifications do not count";
  std::string all;
  for (;;) {
    const std::string some = hear();
    if (some.empty()) break;
    all += some;
    EXPECT_TRUE(channel_->write_some());
  }
  EXPECT_EQ(all.size(), 1000u * 1001u + 7u);
  EXPECT_TRUE(all.ends_with("n\nanswer\n"));
  EXPECT_EQ(channel_->unread(), 0u);
  EXPECT_FALSE(channel_->has_output());
}

TEST_F(ChannelTest, AnswersThatNobodyReadsStopRequests) {
  channel_->answer(std::string(kMaxUnread + 1, 'a'));
  EXPECT_TRUE(channel_->full());
}

TEST_F(ChannelTest, AClientThatIsGone) {
  other_.reset();
  channel_->answer("answer\n");
  EXPECT_FALSE(channel_->write_some());
}

TEST(Channel, APipesOwnFlagsStay) {
  int in[2];
  int out[2];
  ASSERT_EQ(::pipe2(in, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const Fd from(in[1]);
  const Fd to(out[0]);
  const Fd shared(::dup(in[0]));
  auto channel = Channel::create(Fd(in[0]), Fd(out[1]));
  ASSERT_TRUE(channel);
  EXPECT_EQ(::fcntl(shared.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(channel->read_some(), Channel::Input::kOpen) << "no wait";
  ASSERT_EQ(::write(from.get(), "x\n", 2), 2);
  EXPECT_TRUE(channel->read_some());
  EXPECT_EQ(channel->next_line(), "x");
  channel->notify(std::string(std::size_t{1} << 20, 'n'));
  EXPECT_TRUE(channel->write_some()) << "no wait";
  EXPECT_TRUE(channel->has_output());
}

}  // namespace
}  // namespace trapline::serve
