#include "target/stopped.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {

StoppedProcess::StoppedProcess(Tracees& tracees, RaisePriority priority)
    : tracees_(&tracees), since_(Clock::now()) {
  priority_ = std::make_unique<RaisedPriority>(priority == RaisePriority::kWhenAllowed
                                                   ? RaisedPriority::Want::kYes
                                                   : RaisedPriority::Want::kNo);
}

StoppedProcess::StoppedProcess(StoppedProcess&& other) noexcept
    : tracees_(std::exchange(other.tracees_, nullptr)),
      priority_(std::move(other.priority_)),
      threads_(std::move(other.threads_)),
      maps_(std::move(other.maps_)),
      image_(other.image_),
      since_(other.since_) {}

StoppedProcess::~StoppedProcess() {
  if (tracees_ != nullptr) (void)resume();
}

Result<> StoppedProcess::settle() {
  TL_TRY(tracees_->stop_all(Clock::now() + std::chrono::seconds(1)));
  if (tracees_->image != image_) {
    return Error(ErrorCode::kTargetGone, "process " + std::to_string(tracees_->pid.value) +
                                             " has just executed another program");
  }
  threads_.clear();
  maps_.clear();
  return begin();
}

Result<> StoppedProcess::begin() {
  image_ = tracees_->image;
  for (const auto& [tid, t] : tracees_->threads) {
    if (t.state != TraceeState::kStopped) continue;
    auto registers = read_registers(t.tid);
    if (!registers) {
      if (registers.error().code() == ErrorCode::kTargetGone) continue;  // killed meanwhile
      return registers.error();
    }
    threads_.push_back({t.tid, *registers, t.group_signal != 0});
  }
  if (threads_.empty()) return gone(tracees_->pid);
  TL_TRY_ASSIGN(Memory * memory, tracees_->open_memory());
  memory->set_stopped_thread(threads_.front().tid);
  return {};
}

Pid StoppedProcess::pid() const { return tracees_->pid; }

const StoppedThread* StoppedProcess::find(Tid tid) const {
  const auto it = std::ranges::find(threads_, tid, &StoppedThread::tid);
  return it == threads_.end() ? nullptr : &*it;
}

Memory& StoppedProcess::memory() { return *tracees_->memory; }
const Memory& StoppedProcess::memory() const { return *tracees_->memory; }

Result<std::span<const Mapping>> StoppedProcess::maps() {
  if (maps_.empty()) {
    TL_TRY_ASSIGN(maps_, read_maps(tracees_->pid));
  }
  return std::span<const Mapping>(maps_);
}

Result<> StoppedProcess::set_registers(Tid tid, const Registers& registers) {
  tracees_->check_owner();
  const auto it = std::ranges::find(threads_, tid, &StoppedThread::tid);
  if (it == threads_.end()) return gone_thread(tid);
  TL_TRY(write_registers(tid, registers));
  it->registers = registers;
  return {};
}

std::chrono::nanoseconds StoppedProcess::stopped_for() const { return Clock::now() - since_; }

Result<> StoppedProcess::resume() {
  TL_CHECK(tracees_ != nullptr);
  Tracees& t = *std::exchange(tracees_, nullptr);
  t.check_owner();
  if (t.memory) t.memory->set_stopped_thread({});
  t.resume_all();
  priority_.reset();
  return {};
}

Result<> StoppedProcess::detach() {
  TL_CHECK(tracees_ != nullptr);
  Tracees& t = *std::exchange(tracees_, nullptr);
  t.check_owner();
  if (t.memory) t.memory->set_stopped_thread({});
  auto done = t.detach_stopped(Clock::now() + std::chrono::seconds(1));
  priority_.reset();
  return done;
}

}  // namespace trapline::target
