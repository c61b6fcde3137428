#include "target/trap_server.h"

#include <signal.h>

#include <algorithm>

#include "target/stopped.h"

namespace trapline::target {

namespace {

using std::chrono::milliseconds;

// How long the thread waits for an event before it looks for a task, and, with several processes,
// before it looks at the next one.
constexpr milliseconds kWait{2};
constexpr milliseconds kGlance{0};
constexpr milliseconds kCleanPatience{1000};
constexpr std::byte kInt3{0xcc};

}  // namespace

AttachOptions TrapServer::attach_options() {
  AttachOptions options;
  options.follow = {.exec = true, .forks = true, .threads = true, .traps = true};
  return options;
}

TrapServer::TrapServer() : thread_([this] { loop(); }) {}

TrapServer::~TrapServer() {
  run([&] {
    serve();
    vforked_.clear();
    attachment_.reset();
  });
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TrapServer::run_task(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task_ == nullptr; });  // another caller's is running
  task_ = &task;
  changed_.notify_all();
  changed_.wait(lock, [&] { return task_ != &task; });
}

void TrapServer::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool busy = serving_ && attachment_.has_value();
    if (!busy) changed_.wait(lock, [&] { return stop_ || task_ != nullptr; });
    if (task_ == nullptr && stop_) return;
    const auto* const task = task_;
    lock.unlock();
    if (task != nullptr) {
      (*task)();
      // Whoever posts task after task does not keep hits waiting.
      if (serving_) serve_all(kGlance);
    } else {
      serve_all(vforked_.empty() ? kWait : kGlance);
    }
    lock.lock();
    if (task == nullptr) continue;
    task_ = nullptr;
    changed_.notify_all();
  }
}

void TrapServer::serve() {
  if (!attachment_) return;
  serve_all(kGlance);
}

void TrapServer::serve_all(milliseconds wait) {
  while (attachment_ && serve(*attachment_, wait)) wait = kGlance;
  for (std::size_t i = 0; i < vforked_.size();) {
    while (serve(vforked_[i], kGlance)) {
    }
    if (vforked_[i].gone() || vforked_[i].image() != 0) {
      vforked_.erase(vforked_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// One event; false: there is none.
bool TrapServer::serve(Attachment& attachment, milliseconds wait) {
  const auto event = attachment.wait_event(wait);
  if (!event || !*event) return false;
  switch ((*event)->kind) {
    case Event::Kind::kTrap:
      on_trap(attachment, **event);
      break;
    case Event::Kind::kFork:
      on_fork(attachment, **event);
      break;
    case Event::Kind::kThreadEnded:
      owed_.erase((*event)->tid.value);
      if (outside_) outside_->thread_ended((*event)->tid);
      break;
    case Event::Kind::kExit:
    case Event::Kind::kExec:
      owed_.clear();
      if (&attachment == &*attachment_) events_.push_back(**event);
      break;
    default:
      break;
  }
  return true;
}

void TrapServer::set_outside(Outside outside) {
  instructions_.emplace(outside.shadow_stack);
  outside_ = std::move(outside);
}

void TrapServer::on_trap(Attachment& attachment, const Event& event) {
  if (event.trap_code == TRAP_TRACE) return on_step(attachment, event);
  const auto trap = event.trap_code == SI_KERNEL ? traps_.find(event.pc - 1) : traps_.end();
  if (trap == traps_.end()) {
    (void)attachment.resume(event.tid, SIGTRAP);
    return;
  }
  if (trap->second.trampoline.value() == 0)
    return on_outside_hit(attachment, event, trap->first, trap->second.original);
  auto registers = read_registers(event.tid);
  if (!registers) return;  // killed
  registers->set_pc(trap->second.trampoline);
  if (!write_registers(event.tid, *registers)) return;
  (void)attachment.resume(event.tid);
}

void TrapServer::on_outside_hit(Attachment& attachment, const Event& event, RemoteAddr at,
                                const std::vector<std::byte>& original) {
  auto registers = read_registers(event.tid);
  if (!registers || !outside_) return;  // killed
  registers->set_pc(at);
  std::optional<std::uint64_t> mask;
  const auto owed = owed_.find(event.tid.value);
  const bool known = owed != owed_.end() && owed->second.at == at &&
                     owed->second.unfinished.stack_pointer == registers->sp().value();
  if (known) {
    mask = owed->second.unfinished.signal_mask;
  } else {
    outside_->hit(event.tid, at, *registers);
  }
  if (owed != owed_.end()) owed_.erase(owed);
  std::vector<Attachment*> sharing{&*attachment_};
  for (Attachment& vforked : vforked_) sharing.push_back(&vforked);
  const auto done =
      instructions_->run(sharing, attachment, event.tid, {at, original}, *registers, mask);
  if (done && !*done) return;
  if (!done && done.error().code() == ErrorCode::kTargetGone) return;
  owed_[event.tid.value] = {at, done ? **done : Unfinished{registers->sp().value(), mask}};
}

// A step that had to wait has come to its end after all.
void TrapServer::on_step(Attachment& attachment, const Event& event) {
  const auto owed = owed_.find(event.tid.value);
  if (owed != owed_.end()) {
    if (owed->second.unfinished.signal_mask)
      (void)set_signal_mask(event.tid, *owed->second.unfinished.signal_mask);
    owed_.erase(owed);
  }
  (void)attachment.resume(event.tid);
}

void TrapServer::on_fork(Attachment& parent, const Event& event) {
  auto child = parent.adopt_child(event);
  if (!child) return;
  if (!event.vfork) return clean(*child);
  vforked_.push_back(std::move(*child));
}

// The child's text is its own copy.
void TrapServer::clean(Attachment& child) {
  auto stopped = child.stop({.timeout = kCleanPatience});
  if (!stopped) return;
  for (const auto& [at, trap] : traps_) {
    const auto byte = stopped->memory().read_value<std::byte>(at);
    if (byte && *byte == kInt3)
      (void)stopped->memory().write(at, std::span(trap.original).first(1));
  }
  (void)stopped->detach();
}

std::optional<Event> TrapServer::take_event() {
  if (events_.empty()) return std::nullopt;
  const Event event = events_.front();
  events_.pop_front();
  return event;
}

}  // namespace trapline::target
