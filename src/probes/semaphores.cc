#include "probes/semaphores.h"

#include <cstddef>

namespace trapline::probes {
namespace {

struct Note {
  std::uint16_t before;
  SemaphoreState state;
};
static_assert(offsetof(BookSemaphore, state) == offsetof(BookSemaphore, before) + 2 &&
              sizeof(Note) == 4);

Result<> note(target::Memory& memory, RemoteAddr in_book, std::uint16_t before,
              SemaphoreState state) {
  if (in_book.value() == 0) return {};
  return memory.write_value(in_book + offsetof(BookSemaphore, before), Note{before, state});
}

}  // namespace

Result<> raise_semaphore(target::Memory& memory, const PlacedSemaphore& semaphore) {
  TL_TRY_ASSIGN(const auto before, memory.read_value<std::uint16_t>(semaphore.counter));
  TL_TRY(note(memory, semaphore.in_book, before, SemaphoreState::kRaising));
  TL_TRY(memory.write_value(semaphore.counter, static_cast<std::uint16_t>(before + 1)));
  return note(memory, semaphore.in_book, before, SemaphoreState::kUp);
}

Result<> lower_semaphore(target::Memory& memory, const PlacedSemaphore& semaphore) {
  TL_TRY_ASSIGN(const auto before, memory.read_value<std::uint16_t>(semaphore.counter));
  // The program has written to it itself: there is nothing of ours left.
  if (before == 0) return note(memory, semaphore.in_book, before, SemaphoreState::kDown);
  TL_TRY(note(memory, semaphore.in_book, before, SemaphoreState::kLowering));
  TL_TRY(memory.write_value(semaphore.counter, static_cast<std::uint16_t>(before - 1)));
  return note(memory, semaphore.in_book, before, SemaphoreState::kDown);
}

Result<> take_back_semaphore(target::Memory& memory, const BookSemaphore& entry,
                             RemoteAddr in_book) {
  const RemoteAddr counter(entry.address);
  TL_TRY_ASSIGN(const auto now, memory.read_value<std::uint16_t>(counter));
  const bool up = entry.state == SemaphoreState::kUp ||
                  (entry.state == SemaphoreState::kRaising && now != entry.before) ||
                  (entry.state == SemaphoreState::kLowering && now == entry.before);
  return up ? lower_semaphore(memory, {counter, in_book}) : Result<>();
}

}  // namespace trapline::probes
