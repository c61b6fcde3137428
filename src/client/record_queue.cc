#include "client/record_queue.h"

#include <utility>

namespace trapline::client {

void RecordQueue::push(std::unique_ptr<RecordBatch> batch) {
  // Once something was lost, nothing is queued behind the gap before the gap has been told.
  const bool fits = untold_ == 0 && used_ + cost(*batch) <= limit_;
  if (!fits && !batch->ended) {
    lost_ += batch->records.size();
    untold_ += batch->records.size();
    return;
  }
  used_ += cost(*batch);
  batches_.push_back(std::move(batch));
}

void RecordQueue::put_back(std::unique_ptr<RecordBatch> batch) {
  used_ += cost(*batch);
  batches_.push_front(std::move(batch));
}

std::unique_ptr<RecordBatch> RecordQueue::pop() {
  // The end of tracing may stand behind the gap.
  const bool at_gap = untold_ != 0 && (batches_.empty() || batches_.front()->ended);
  if (at_gap) {
    auto batch = std::make_unique<RecordBatch>();
    const std::span<trapline_record> record = batch->arena.make<trapline_record>(1);
    record[0].kind = TRAPLINE_RECORD_DROPS;
    record[0].text = {"", 0};
    record[0].drops.client = std::exchange(untold_, 0);
    batch->records = record;
    return batch;
  }
  if (batches_.empty()) return nullptr;
  std::unique_ptr<RecordBatch> batch = std::move(batches_.front());
  batches_.pop_front();
  used_ -= cost(*batch);
  return batch;
}

}  // namespace trapline::client
