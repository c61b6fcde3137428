// A Tracee with breakpoints: its process belongs to the thread that serves them.

#include <fmt/format.h>

#include <array>

#include "session/tracee.h"
#include "session/tracee_stop.h"
#include "target/process.h"

namespace trapline::session {

// From now on the process belongs to a thread that serves its breakpoints, which are not there yet.
Result<> Tracee::start_server() {
  if (held_) return hand_over();
  TL_TRY(let_go());
  server_ = std::make_unique<target::TrapServer>();
  return on_owner([&]() -> Result<> {
    TL_TRY(seize());
    server_->set_serving(true);
    return {};
  });
}

// A process that was just loaded must not go on meanwhile: it turns on the spot.
Result<> Tracee::hand_over() {
  constexpr std::array kLoop{std::byte{0xeb}, std::byte{0xfe}};  // jmp to itself
  std::array<std::byte, 2> original{};
  const RemoteAddr pc = held_->threads().front().registers.resume_pc();
  if (held_->threads().size() != 1)
    return Error(ErrorCode::kUnsupported, "breakpoints in a process that has threads at its start");
  TL_TRY(held_->memory().read(pc, original));
  TL_TRY(held_->memory().write(pc, kLoop));
  TL_TRY(held_->resume());
  held_.reset();
  TL_TRY(let_go());
  server_ = std::make_unique<target::TrapServer>();
  const Result<> held = on_owner([&]() -> Result<> {
    TL_TRY(seize());
    TL_TRY_ASSIGN(target::StoppedProcess stopped, attachment()->stop());
    TL_TRY(stopped.memory().write(pc, original));
    held_.emplace(std::move(stopped));
    return {};
  });
  // Without us it goes on where it stood.
  if (!held && memory_) (void)memory_->write(pc, original);
  return held;
}

void Tracee::stop_serving() {
  if (!server_) return;
  on_owner([&] { held_.reset(); });
  (void)let_go();
  server_.reset();
}

target::Traps Tracee::traps() const {
  target::Traps all;
  for (const Placed& placed : placed_) all.merge(placed.installation->traps());
  return all;
}

// Before they are there.
Result<> Tracee::note_traps() {
  if (!outside_ || ledger_ == nullptr) return {};
  TL_TRY_ASSIGN(const target::ProcessIdentity identity, target::identify(pid_));
  for (const Placed& placed : placed_) {
    for (const auto& [at, trap] : placed.installation->waiting_traps())
      TL_TRY(ledger_->enter(identity, at, trap.original));
  }
  return {};
}

void Tracee::tell_traps() {
  const std::size_t count = traps().size();
  if (count == 0) return;
  notes_.push_back(fmt::format(
      "pid {} has {} breakpoint{}, so this tracer stays attached to it: if the tracer is killed "
      "with -9, the next one that is hit ends the process",
      pid_.value, count, count == 1 ? "" : "s"));
}

}  // namespace trapline::session
