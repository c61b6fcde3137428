#include "client/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace trapline::client {
namespace {

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() : channel_(make(), "the helper") {}

  Fd make() {
    int pair[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    peer_ = Fd(pair[1]);
    return Fd(pair[0]);
  }
  void peer_sends(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(peer_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  static std::string text(std::span<char> line) { return {line.data(), line.size()}; }

  const Inside inside_;
  Fd peer_;
  Channel channel_;
};

TEST_F(ChannelTest, LinesInAnyPieces) {
  peer_sends("one\ntwo");
  auto line = channel_.receive(std::nullopt, inside_);
  ASSERT_TRUE(line);
  EXPECT_EQ("one", text(*line));
  EXPECT_EQ('\0', line->data()[line->size()]);
  auto nothing = channel_.try_receive();
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(*nothing);
  peer_sends(" halves\n\nthree\n");
  EXPECT_EQ("two halves", text(*channel_.receive(std::nullopt, inside_)));
  EXPECT_EQ("", text(*channel_.receive(std::nullopt, inside_)));
  EXPECT_EQ("three", text(**channel_.try_receive()));
}

TEST_F(ChannelTest, ALongLine) {
  std::string line(3 << 20, 'x');
  line[12345] = 'y';
  std::thread sender([&] { peer_sends(line + "\nnext\n"); });
  const auto received = channel_.receive(std::nullopt, inside_);
  ASSERT_TRUE(received);
  EXPECT_TRUE(line == text(*received));
  EXPECT_EQ("next", text(*channel_.receive(std::nullopt, inside_)));
  sender.join();
}

TEST_F(ChannelTest, ALineThatDoesNotEnd) {
  std::thread sender([&] { peer_sends(std::string(kMaxLine + (1 << 20), 'x')); });
  const auto received = channel_.receive(std::nullopt, inside_);
  ASSERT_FALSE(received);
  EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL, received.error().code);
  EXPECT_TRUE(channel_.failed());
  sender.join();
}

TEST_F(ChannelTest, AfterTheEndEverythingFails) {
  peer_sends("last\nhalf");
  peer_.reset();
  EXPECT_EQ("last", text(*channel_.receive(std::nullopt, inside_)));
  for (int i = 0; i < 2; ++i) {
    const auto received = channel_.receive(std::nullopt, inside_);
    ASSERT_FALSE(received);
    EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, received.error().code);
    EXPECT_EQ("the helper has ended; the session is of no more use", received.error().text);
    const auto sent = channel_.send("x\n", std::nullopt, inside_);
    ASSERT_FALSE(sent);
    EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, sent.error().code);
  }
}

TEST_F(ChannelTest, SendingToOneThatHasGoneRaisesNoSignal) {
  peer_.reset();
  struct sigaction before{}, action{};
  action.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &action, &before);
  const auto sent = channel_.send("x\n", std::nullopt, inside_);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_FALSE(sigismember(&pending, SIGPIPE));
  sigaction(SIGPIPE, &before, nullptr);
  ASSERT_FALSE(sent);
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, sent.error().code);
}

TEST_F(ChannelTest, NoAnswerInTime) {
  peer_sends("half");
  const auto received = channel_.receive(deadline_after(5), inside_);
  ASSERT_FALSE(received);
  EXPECT_EQ(TRAPLINE_ERROR_TIMEOUT, received.error().code);
  const auto again = channel_.receive(deadline_after(5), inside_);
  ASSERT_FALSE(again);
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, again.error().code);
  EXPECT_THAT(again.error().text, testing::HasSubstr("did not answer in time"));
}

TEST_F(ChannelTest, NobodyReads) {
  const auto sent = channel_.send(std::string(8 << 20, 'x'), deadline_after(5), inside_);
  ASSERT_FALSE(sent);
  EXPECT_EQ(TRAPLINE_ERROR_TIMEOUT, sent.error().code);
}

// Both sides write more than the sockets hold before either reads on purpose.
TEST_F(ChannelTest, WhatArrivesIsReadWhileSending) {
  const std::string large(4 << 20, 'x');
  std::thread peer([&] {
    peer_sends(large + "\n");
    std::size_t total = 0;
    std::string piece(65536, '\0');
    while (total < large.size()) {
      const ssize_t got = ::recv(peer_.get(), piece.data(), piece.size(), 0);
      if (got <= 0) break;
      total += static_cast<std::size_t>(got);
    }
    EXPECT_EQ(large.size(), total);
  });
  EXPECT_TRUE(channel_.send(large, std::nullopt, inside_));
  EXPECT_TRUE(large == text(*channel_.receive(std::nullopt, inside_)));
  peer.join();
}

}  // namespace
}  // namespace trapline::client
