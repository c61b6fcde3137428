#include "client/record_queue.h"

#include <gtest/gtest.h>

namespace trapline::client {
namespace {

std::unique_ptr<RecordBatch> batch(std::uint64_t time, std::size_t count = 1) {
  auto made = std::make_unique<RecordBatch>();
  const auto records = made->arena.make<trapline_record>(count);
  for (auto& record : records) record.time = time;
  made->records = records;
  return made;
}

std::unique_ptr<RecordBatch> end() {
  auto made = batch(99);
  made->ended = true;
  return made;
}

TEST(RecordQueueTest, FirstInFirstOut) {
  RecordQueue queue(1 << 20);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(nullptr, queue.pop());
  queue.push(batch(1));
  queue.push(batch(2));
  auto first = queue.pop();
  EXPECT_EQ(1u, first->records[0].time);
  queue.put_back(std::move(first));
  EXPECT_EQ(1u, queue.pop()->records[0].time);
  EXPECT_EQ(2u, queue.pop()->records[0].time);
  EXPECT_TRUE(queue.empty());
}

TEST(RecordQueueTest, WhatDoesNotFitIsToldWhereItWouldHaveBeen) {
  RecordQueue queue(5000);
  queue.push(batch(1));
  queue.push(batch(2));
  queue.push(batch(3, 10));
  queue.push(batch(4));  // behind the gap: it may not overtake it
  queue.push(end());
  EXPECT_EQ(11u, queue.lost());
  EXPECT_EQ(1u, queue.pop()->records[0].time);
  EXPECT_EQ(2u, queue.pop()->records[0].time);
  const auto gap = queue.pop();
  EXPECT_EQ(TRAPLINE_RECORD_DROPS, gap->records[0].kind);
  EXPECT_EQ(11u, gap->records[0].drops.client);
  EXPECT_EQ(99u, queue.pop()->records[0].time);
  EXPECT_TRUE(queue.empty());
  queue.push(batch(5));
  EXPECT_EQ(5u, queue.pop()->records[0].time);
  EXPECT_EQ(11u, queue.lost());
}

TEST(RecordQueueTest, AGapAtTheEnd) {
  RecordQueue queue(100);
  queue.push(batch(1));
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(1u, queue.pop()->records[0].drops.client);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace trapline::client
