// Records by callback and by descriptor.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <trapline/trapline.hpp>
#include <vector>

#include "probed.h"

namespace {

using testing::ElementsAre;
using trapline::Record;
using trapline::Records;
using trapline::Session;

PROBED int probed_step(int number, const char* text) {
  keep(number);
  return text[0];
}

// Texts in the order of arrival; a test can wait for a number of them.
class Collected {
 public:
  void add(const Record& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (record.kind() == Record::Kind::kEnded) ended_ = true;
    if (record.kind() == Record::Kind::kFiring) texts_.emplace_back(record.text());
    changed_.notify_all();
  }
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return texts_.size() >= count; });
    return texts_;
  }
  void wait_for_end() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
  bool ended_ = false;
};

// Dispatches until `done` says so.
template <typename Callback, typename Done>
void dispatch_until(Session& session, Callback&& callback, Done&& done) {
  while (!done()) {
    pollfd ready{session.fd(), POLLIN, 0};
    ASSERT_EQ(1, ::poll(&ready, 1, 30'000)) << "nothing arrived";
    session.dispatch(callback);
  }
}

constexpr const char* kProgram =
    "pid$target:a.out:probed_step:entry { printf(\"%d %s\", arg0, copyinstr(arg1)); }";

TEST(RecordsTest, ByDescriptor) {
  Session session = Session::self(Records::kDelivered);
  session.compile(kProgram);
  session.start();
  const auto before = std::chrono::steady_clock::now();
  probed_step(1, "one");
  probed_step(2, "two");
  std::vector<std::string> texts;
  dispatch_until(
      session,
      [&](const Record& record) {
        if (record.kind() != Record::Kind::kFiring) return;
        texts.emplace_back(record.text());
        EXPECT_EQ("probed_step", record.function());
        EXPECT_EQ("entry", record.name());
        EXPECT_EQ("pid" + std::to_string(::getpid()), record.provider());
        EXPECT_EQ(::syscall(SYS_gettid), record.tid());
        EXPECT_GE(record.cpu(), 0);
        // Both are CLOCK_MONOTONIC; the tracer's clock is the processor's counter, which it fits to
        // it.
        const auto slack = std::chrono::milliseconds(5);
        EXPECT_GE(record.time(), before.time_since_epoch() - slack);
        EXPECT_LE(record.time(), std::chrono::steady_clock::now().time_since_epoch() + slack);
        ASSERT_EQ(1u, record.size());
        EXPECT_EQ(trapline::Action::Kind::kPrintf, record[0].kind());
        ASSERT_EQ(2u, record[0].size());
        EXPECT_EQ(static_cast<int>(texts.size()), record[0][0].integer());
        EXPECT_EQ(texts.size() == 1 ? "one" : "two", record[0][1].string());
      },
      [&] { return texts.size() == 2; });
  EXPECT_THAT(texts, ElementsAre("1 one", "2 two"));
  session.stop();
}

TEST(RecordsTest, ByCallback) {
  Collected collected;
  Session session = Session::self(Records::kDelivered);
  session.compile(kProgram);
  session.on_record([&](const Record& record) { collected.add(record); });
  session.start();
  for (int i = 0; i < 500; ++i) probed_step(i, "x");
  session.stop();
  const std::vector<std::string> texts = collected.wait_for(500);
  for (std::size_t i = 0; i < 500; ++i) EXPECT_EQ(std::to_string(i) + " x", texts[i]);
  EXPECT_EQ(0u, trapline::total(session.snapshot().drops()));
}

TEST(RecordsTest, WhatTheCallbackCallsIsSeen) {
  Collected collected;
  Session session = Session::self(Records::kDelivered);
  session.compile(kProgram);
  session.on_record([&](const Record& record) {
    if (record.text() == "1 x") probed_step(2, "by the callback");
    collected.add(record);
  });
  session.start();
  probed_step(1, "x");
  EXPECT_THAT(collected.wait_for(2), ElementsAre("1 x", "2 by the callback"));
  session.stop();
}

TEST(RecordsTest, ACallbackUsesItsSession) {
  Collected collected;
  Session session = Session::self(Records::kDelivered);
  session.compile("pid$target:a.out:probed_step:entry { @calls = count(); printf(\"%d\", arg0); }");
  std::int64_t calls = 0;
  session.on_record([&](const Record& record) {
    if (record.kind() == Record::Kind::kFiring) calls = session.snapshot().value("calls");
    collected.add(record);
  });
  session.start();
  probed_step(1, "x");
  collected.wait_for(1);
  session.stop();
  EXPECT_EQ(1, calls);
}

TEST(RecordsTest, ActionsOfEachKind) {
  Session session = Session::self(Records::kDelivered);
  session.compile(
      "pid$target:a.out:probed_step:entry { @a[probefunc] = count(); trace(arg0);"
      " trace(copyinstr(arg1)); printf(\"%s\\n\", probefunc); printa(@a); exit(3); }");
  session.start();
  probed_step(-7, "text");
  std::vector<std::string> seen;
  bool ended = false;
  dispatch_until(
      session,
      [&](const Record& record) {
        if (record.kind() == Record::Kind::kEnded) {
          ended = true;
          EXPECT_EQ(Record::Reason::kExit, record.reason());
          EXPECT_EQ(3, record.status());
          return;
        }
        if (record.kind() != Record::Kind::kFiring) return;
        for (std::size_t i = 0; i < record.size(); ++i) {
          const trapline::Action action = record[i];
          if (action.kind() == trapline::Action::Kind::kTrace) {
            seen.push_back(action.value().is_integer() ? "integer"
                                                       : std::string(action.value().string()));
          } else if (action.kind() == trapline::Action::Kind::kPrintf) {
            seen.emplace_back(action.text());
          } else if (action.kind() == trapline::Action::Kind::kPrinta) {
            ASSERT_EQ(1u, action.aggregation_count());
            EXPECT_EQ(1, action.aggregation(0).value("probed_step"));
            seen.emplace_back("printa");
          } else {
            EXPECT_EQ(3, action.value().integer());
            seen.emplace_back("exit");
          }
        }
        EXPECT_THROW(record[record.size()], trapline::Error);
      },
      [&] { return ended; });
  EXPECT_THAT(seen, ElementsAre("integer", "text", "probed_step\n", "printa", "exit"));
  session.wait();
  EXPECT_EQ(trapline::State::kEnded, session.snapshot().state());
  session.stop();
}

TEST(RecordsTest, AFaultIsTold) {
  Session session = Session::self();
  session.compile("pid$target:a.out:probed_step:entry { @a[copyinstr(8)] = count(); }");
  session.start();
  probed_step(1, "x");
  bool told = false;
  dispatch_until(
      session,
      [&](const Record& record) {
        if (record.kind() != Record::Kind::kFault) return;
        told = true;
        EXPECT_EQ("probed_step", record.function());
        EXPECT_FALSE(record.text().empty());
        EXPECT_EQ(8u, trapline_record_fault(record.get(), nullptr));
      },
      [&] { return told; });
  session.stop();
}

TEST(RecordsTest, WhatACallbackThrowsComesBack) {
  Session session = Session::self(Records::kDelivered);
  session.compile(kProgram);
  session.start();
  probed_step(1, "x");
  probed_step(2, "x");
  session.stop();
  int delivered = 0;
  bool thrown = false;
  const auto callback = [&](const Record& record) {
    if (record.kind() != Record::Kind::kFiring) return;
    ++delivered;
    throw std::string("mine");
  };
  try {
    dispatch_until(session, callback, [&] { return delivered == 2; });
  } catch (const std::string& text) {
    thrown = text == "mine";
  }
  EXPECT_TRUE(thrown);
  EXPECT_EQ(2, delivered);
}

TEST(RecordsTest, ManyThreadsNothingLost) {
  constexpr int kThreads = 8;
  constexpr int kEach = 500;
  Collected collected;
  Session session = Session::self(Records::kDelivered);
  session.compile(kProgram, trapline::Options().set("bufsize", "16m"));
  session.on_record([&](const Record& record) { collected.add(record); });
  session.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kEach; ++i) probed_step(i, "y");
    });
  }
  for (std::thread& thread : threads) thread.join();
  session.stop();
  const trapline::Drops drops = session.snapshot().drops();
  EXPECT_EQ(0u, trapline::total(drops))
      << drops.record << " records, " << drops.level << " levels, " << drops.no_slot << " slots, "
      << drops.malformed << " malformed, " << drops.client << " here";
  EXPECT_EQ(std::size_t{kThreads} * kEach, collected.wait_for(kThreads * kEach).size());
}

}  // namespace
