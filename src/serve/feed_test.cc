#include "serve/feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

namespace trapline::serve {
namespace {

using testing::HasSubstr;

class FeedTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    other_ = Fd(pair[0]);
    auto made = Channel::create(Fd(pair[1]), Fd());
    ASSERT_TRUE(made);
    channel_.emplace(std::move(*made));
    make(Records::kPush);
  }
  void make(Records records) {
    feed_.emplace(3, program_, report::PrintOptions{}, records, *channel_);
    feed_->set_clock([](std::uint64_t stamp) { return stamp + 1000; });
  }
  void fire(std::uint64_t number) {
    consume::Value value;
    value.integer = number;
    EXPECT_TRUE(feed_->begin_firing({&probe_, 0, 1, 40, 5}));
    EXPECT_TRUE(feed_->trace(value));
    EXPECT_TRUE(feed_->end_firing());
  }
  std::string sent() {
    std::string all;
    for (;;) {
      EXPECT_TRUE(channel_->write_some());
      std::string part(std::size_t{1} << 20, '\0');
      const ssize_t n = ::recv(other_.get(), part.data(), part.size(), MSG_DONTWAIT);
      if (n <= 0) return all;
      all.append(part, 0, static_cast<std::size_t>(n));
    }
  }

  Fd other_;
  std::optional<Channel> channel_;
  plan::Program program_;
  plan::ProbeName probe_{7, "pid9", "libc.so.6", "malloc", "entry"};
  std::optional<Feed> feed_;
};

TEST_F(FeedTest, RecordsGoOutTogether) {
  fire(1);
  fire(2);
  EXPECT_EQ(sent(), "") << "not before the flush";
  EXPECT_TRUE(feed_->flush());
  const std::string record =
      "{\"probe\":{\"id\":7,\"provider\":\"pid9\",\"module\":\"libc.so.6\",\"function\":\"malloc\","
      "\"name\":\"entry\"},\"cpu\":1,\"tid\":40,\"time\":1005,\"actions\":[{\"trace\":";
  EXPECT_EQ(sent(),
            "{\"jsonrpc\":\"2.0\",\"method\":\"records\",\"params\":{\"session\":3,\"records\":[" +
                record + "1}]}," + record + "2}]}]}}\n");
}

TEST_F(FeedTest, NobodyWantsRecords) {
  make(Records::kNone);
  fire(1);
  EXPECT_TRUE(feed_->flush());
  EXPECT_EQ(sent(), "");
  EXPECT_THAT(feed_->drops_so_far(), HasSubstr("\"client\":0"));
}

TEST_F(FeedTest, AClientThatDoesNotReadLosesRecordsAndIsToldSo) {
  std::uint64_t fired = 0;
  while (feed_->drops_so_far().find("\"client\":0}") != std::string::npos) {
    fire(fired++);
    ASSERT_LT(fired, 1000000u);
  }
  fire(fired++);
  EXPECT_LE(channel_->unread(), kMaxUnread);
  EXPECT_GT(channel_->unread(), kMaxUnread - (std::size_t{1} << 17));
  EXPECT_THAT(feed_->drops_so_far(), HasSubstr("\"client\":2}"));
  EXPECT_TRUE(feed_->flush());
  (void)sent();
  EXPECT_TRUE(feed_->flush());
  EXPECT_THAT(sent(), HasSubstr("\"method\":\"drops\""));
  EXPECT_TRUE(feed_->flush());
  EXPECT_EQ(sent(), "") << "told once";
}

TEST_F(FeedTest, LossesAreToldAndAddedUp) {
  EXPECT_TRUE(feed_->drops({.record = 2}));
  EXPECT_TRUE(feed_->drops({.record = 3}));
  const std::string text = sent();
  EXPECT_THAT(text, HasSubstr("\"drops\":{\"record\":2,"));
  EXPECT_THAT(text, HasSubstr("\"drops\":{\"record\":3,"));
  EXPECT_THAT(feed_->drops_so_far(), HasSubstr("\"record\":5,"));
}

TEST_F(FeedTest, TheEndComesAfterTheRecords) {
  fire(1);
  feed_->ended(R"("reason":"exit","status":3,"text":"")");
  const std::string text = sent();
  EXPECT_LT(text.find("records"), text.find("ended"));
  EXPECT_THAT(text, HasSubstr("\"session\":3,\"reason\":\"exit\",\"status\":3"));
}

}  // namespace
}  // namespace trapline::serve
