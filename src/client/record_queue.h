// Records that have arrived and that nobody has taken yet: bounded, first in first out.
//
// What does not fit is counted, and told by a DROPS record where it would have been; the end of
// tracing always fits. Not synchronised.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "client/model.h"

namespace trapline::client {

class RecordQueue {
 public:
  explicit RecordQueue(std::size_t limit) : limit_(limit) {}

  void push(std::unique_ptr<RecordBatch> batch);
  // Puts back, to the front, a batch that was not delivered to its end.
  void put_back(std::unique_ptr<RecordBatch> batch);
  // The oldest; nullptr: none.
  std::unique_ptr<RecordBatch> pop();
  bool empty() const { return batches_.empty() && untold_ == 0; }

  // Records that did not fit, ever.
  std::uint64_t lost() const { return lost_; }

 private:
  static std::size_t cost(const RecordBatch& batch) { return batch.arena.size() + sizeof batch; }

  std::deque<std::unique_ptr<RecordBatch>> batches_;
  std::size_t limit_;  // bytes
  std::size_t used_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t untold_ = 0;  // of those, not yet told
};

}  // namespace trapline::client
