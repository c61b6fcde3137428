#include "probes/leftovers.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "probes/in_use.h"
#include "probes/semaphores.h"
#include "probes/text_patch.h"
#include "target/arena_mapping.h"
#include "target/code_region.h"
#include "target/remote_syscall.h"
#include "wire/arena.h"

namespace trapline::probes {
namespace {

using target::AddressRange;
using target::Mapping;

// A living tracer drains, and so moves the epoch, several times in this time.
constexpr timespec kSomeDrains{0, 400'000'000};
constexpr std::uint64_t kMaxPatch = sizeof(BookEntry::original);
// More than there are functions in any process; a forged book shall not take all our memory.
constexpr std::size_t kMaxEntries = std::size_t{4} << 20;

bool may_be_region(const Mapping& m) {
  return m.readable && m.executable && !m.writable && !m.shared && !m.is_file() && m.path.empty();
}

bool is_tracer(const BookHeader& book, const target::ProcessIdentity& process) {
  return static_cast<pid_t>(book.tracer) == process.pid.value &&
         book.tracer_start == static_cast<std::uint32_t>(process.start_time);
}

bool is_alive_since(std::uint32_t pid, std::uint32_t start) {
  const auto stat = target::read_stat(Pid{static_cast<pid_t>(pid)});
  return stat && !stat->is_dead() && static_cast<std::uint32_t>(stat->start_time) == start;
}

bool is_tracer_alive(const BookHeader& book) {
  return is_alive_since(book.tracer, book.tracer_start);
}

// Of a tracer that is alive.
bool is_in_motion(const BookHeader& book, const target::Memory& memory) {
  if (!is_alive_since(book.parent, book.parent_start)) return true;
  const auto state =
      memory.read_value<std::uint32_t>(RemoteAddr(book.arena + offsetof(wire::Header, state)));
  return state && (*state & wire::kActive) == 0;
}

bool does_epoch_move(const BookHeader& book, const target::Memory& memory) {
  const RemoteAddr epoch(book.arena + offsetof(wire::Header, epoch));
  const auto before = memory.read_value<std::uint64_t>(epoch);
  if (!before) return false;
  nanosleep(&kSomeDrains, nullptr);
  const auto after = memory.read_value<std::uint64_t>(epoch);
  return after && *after != *before;
}

// Asks once for each arena: to see an epoch move takes time.
class Keepers {
 public:
  explicit Keepers(const target::Memory& memory) : memory_(memory) {}
  bool keep(const BookHeader& book) {
    const auto alive = memory_.read_value<std::uint32_t>(RemoteAddr(book.alive));
    if (alive && *alive == 0) return false;  // forked
    if (is_tracer_alive(book)) {
      in_motion_ = in_motion_ || is_in_motion(book, memory_);
      return true;
    }
    const auto [known, fresh] = moves_.try_emplace(book.arena, false);
    if (fresh) known->second = does_epoch_move(book, memory_);
    return known->second;
  }

  bool in_motion() const { return in_motion_; }

 private:
  const target::Memory& memory_;
  bool in_motion_ = false;
  std::map<std::uint64_t, bool> moves_;
};

// nullopt: no region of ours starts there.
std::optional<BookHeader> read_book(RemoteAddr at, RemoteAddr end, const target::Memory& memory) {
  if (end - at < sizeof(BookHeader)) return std::nullopt;
  const auto book = memory.read_value<BookHeader>(at);
  if (!book || book->magic != kBookMagic || book->version != kBookVersion) return std::nullopt;
  const std::uint64_t entries = sizeof(BookHeader) +
                                std::uint64_t{book->count} * sizeof(BookEntry) +
                                std::uint64_t{book->semaphores} * sizeof(BookSemaphore);
  if (book->region_size % wire::kPageSize != 0 || book->region_size > end - at ||
      entries > book->region_size) {
    return std::nullopt;
  }
  return *book;
}

bool is_ours(std::span<const Mapping> maps, AddressRange arena) {
  const Mapping* m = target::find_mapping(maps, arena.start);
  return m != nullptr && m->range == arena && m->shared && m->writable &&
         m->path.starts_with("/memfd:");
}

bool is_fork_page(std::span<const Mapping> maps, RemoteAddr at) {
  const Mapping* m = target::find_mapping(maps, at);
  return m != nullptr && at.value() % wire::kPageSize == 0 && m->readable && !m->writable &&
         !m->executable && !m->shared && !m->is_file() && m->path.empty();
}

}  // namespace

Result<Leftovers> Leftovers::find(Pid pid, const target::Memory& memory,
                                  const std::optional<target::ProcessIdentity>& tracer) {
  Leftovers found;
  Keepers keepers(memory);
  TL_TRY_ASSIGN(const std::vector<Mapping> maps, target::read_maps(pid));
  for (const Mapping& m : maps) {
    if (!may_be_region(m)) continue;
    // Neighbouring regions may have become one mapping.
    for (RemoteAddr at = m.range.start; at < m.range.end;) {
      const std::optional<BookHeader> book = read_book(at, m.range.end, memory);
      if (!book) break;
      const AddressRange range{at, at + book->region_size};
      at = range.end;
      const bool keep = tracer ? !is_tracer(*book, *tracer) : keepers.keep(*book);
      if (keep || found.site_count() + book->count + book->semaphores > kMaxEntries) continue;
      Region region{range, *book, std::vector<BookEntry>(book->count),
                    std::vector<BookSemaphore>(book->semaphores)};
      const auto bytes = std::as_writable_bytes(std::span(region.entries));
      if (!memory.read(range.start + sizeof(BookHeader), bytes)) continue;
      const auto more = std::as_writable_bytes(std::span(region.semaphores));
      if (!memory.read(region.semaphore_at(0), more)) continue;
      found.regions_.push_back(std::move(region));
    }
  }
  found.in_motion_ = keepers.in_motion();
  return found;
}

RemoteAddr Leftovers::Region::semaphore_at(std::size_t index) const {
  return range.start + sizeof(BookHeader) + entries.size() * sizeof(BookEntry) +
         index * sizeof(BookSemaphore);
}

// Before the jumps, which show that the module is still there.
Result<> Leftovers::take_back_semaphores(target::Memory& memory) const {
  for (const Region& region : regions_) {
    for (std::size_t i = 0; i < region.semaphores.size(); ++i) {
      const RemoteAddr in_book = region.semaphore_at(i);
      // What an earlier attempt has done counts.
      const auto semaphore = memory.read_value<BookSemaphore>(in_book);
      if (!semaphore || semaphore->entry >= region.entries.size()) continue;
      const BookEntry& entry = region.entries[semaphore->entry];
      if (entry.size == 0 || entry.size > kMaxPatch) continue;
      std::array<std::byte, kMaxPatch> there{};
      const std::span<std::byte> bytes = std::span(there).first(entry.size);
      if (!memory.read(RemoteAddr(entry.site), bytes) ||
          !std::ranges::equal(bytes, std::as_bytes(std::span(entry.patched, entry.size))))
        continue;
      const Result<> done = take_back_semaphore(memory, *semaphore, in_book);
      if (!done && done.error().code() == ErrorCode::kTargetGone) return done;
    }
  }
  return {};
}

std::size_t Leftovers::site_count() const {
  std::size_t count = 0;
  for (const Region& region : regions_) count += region.entries.size();
  return count;
}

// Pieces of the regions' entries; groups are numbered anew, as each region has its own.
std::vector<Piece> Leftovers::restoring_pieces() const {
  std::vector<const BookEntry*> entries;
  std::map<const BookEntry*, std::uint32_t> group_of;
  std::uint32_t groups = 0;
  for (const Region& region : regions_) {
    std::map<std::uint32_t, std::uint32_t> known;
    for (const BookEntry& entry : region.entries) {
      if (entry.size == 0 || entry.size > kMaxPatch) continue;
      const auto [group, fresh] = known.try_emplace(entry.group, groups);
      if (fresh) ++groups;
      group_of[&entry] = group->second;
      entries.push_back(&entry);
    }
  }
  std::ranges::sort(entries, {}, &BookEntry::site);
  std::vector<Piece> pieces;
  for (const BookEntry* entry : entries) {
    const bool overlaps = !pieces.empty() &&
                          entry->site < pieces.back().at.value() + pieces.back().replacement.size();
    if (overlaps) continue;
    const Turn turn = std::min(static_cast<Turn>(entry->turn), Turn::kThird);
    pieces.push_back(
        {RemoteAddr(entry->site), std::as_bytes(std::span(entry->patched, entry->size)),
         std::as_bytes(std::span(entry->original, entry->size)), group_of[entry], turn});
  }
  return pieces;
}

Result<std::size_t> Leftovers::disarm(target::StoppedProcess& process) {
  TL_TRY(take_back_semaphores(process.memory()));
  const std::vector<Piece> pieces = restoring_pieces();
  TL_TRY_ASSIGN(const std::vector<bool> replaced,
                replace_pieces(process.memory(), pieces, AlreadyThere::kIsFine));
  std::size_t written_over = 0;
  for (const Piece& piece : pieces) {
    if (replaced[piece.group]) continue;
    std::array<std::byte, kMaxPatch> there{};
    const std::span<std::byte> bytes = std::span(there).first(piece.replacement.size());
    // A place that is unmapped by now, or was never armed, leads nowhere.
    if (!process.memory().read(piece.at, bytes)) continue;
    if (!std::ranges::equal(bytes, piece.replacement)) ++written_over;
  }
  return written_over;
}

Result<bool> Leftovers::release(target::StoppedProcess& process) {
  std::vector<AddressRange> ranges;
  for (const Region& region : regions_) ranges.push_back(region.range);
  TL_TRY_ASSIGN(const bool unused, nobody_inside(process, ranges));
  if (!unused) return false;
  TL_TRY_ASSIGN(const std::span<const Mapping> now, process.maps());
  const std::vector<Mapping> maps(now.begin(), now.end());  // unmapping changes the other
  TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
  std::set<AddressRange> arenas;
  std::set<RemoteAddr> fork_pages;
  for (const Region& region : regions_) {
    TL_TRY(target::CodeRegion::adopt(region.range).remove(calls));
    const AddressRange arena{RemoteAddr(region.book.arena),
                             RemoteAddr(region.book.arena + region.book.arena_size)};
    if (is_ours(maps, arena)) arenas.insert(arena);
    const RemoteAddr page(region.book.alive);
    if (is_fork_page(maps, page)) fork_pages.insert(page);
  }
  for (const AddressRange& arena : arenas) TL_TRY(target::ArenaMapping::adopt(arena).remove(calls));
  for (const RemoteAddr page : fork_pages) TL_TRY(target::ForkPage::adopt(page).remove(calls));
  regions_.clear();
  TL_TRY(calls.end());
  return true;
}

}  // namespace trapline::probes
