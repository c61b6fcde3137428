// The book of a code region: what was patched where, so that whoever finds the region can restore
// the process.
//
// It lies at the region's start, in the traced process, so it survives every tracer and is there in
// forked children too. Layout, all little endian:
//   BookHeader | BookEntry[count] (sites and islands) | BookSemaphore[semaphores] |
//   wire::ProbeSite[] | the object | trampolines

#pragma once

#include <cstdint>

namespace trapline::probes {

inline constexpr std::uint64_t kBookMagic = 0x314b4f4f424c5054;  // "TPLBOOK1"
inline constexpr std::uint32_t kBookVersion = 5;

struct BookHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t count;        // entries
  std::uint64_t region_size;  // bytes
  std::uint64_t arena;        // address in the process
  std::uint64_t arena_size;
  std::uint64_t alive;         // address of the fork page
  std::uint32_t tracer;        // its pid when it wrote this
  std::uint32_t tracer_start;  // its start time in clock ticks after boot, the low half
  // The same of its parent, which waits for it: if that ends first, the tracer is about to leave.
  std::uint32_t parent;
  std::uint32_t parent_start;
  std::uint32_t semaphores;
  std::uint32_t reserved;
};

// A site or an island: the bytes that were there and the ones that we put there.
struct BookEntry {
  std::uint64_t site;
  std::uint8_t size;  // of both, at most 5; 0: was not put there, and never will be
  std::uint8_t original[5];
  std::uint8_t patched[5];
  std::uint8_t turn;    // when it is restored: see text_patch.h
  std::uint32_t group;  // those of one group are restored together or not at all
};

// What is known of a semaphore. Its state is written before the counter is, and after: so that
// whoever restores the process knows whether one has to be taken from it, wherever the tracer was
// killed.
enum class SemaphoreState : std::uint16_t {
  kDown,      // nothing of ours is in it
  kRaising,   // it was `before`: something of ours is in it if it is not that any more
  kUp,        // one of ours is in it
  kLowering,  // it was `before`: something of ours is in it if it still is that
};

// A site's semaphore: a counter of 16 bits that the program looks at, to learn whether somebody
// listens. It is only lowered while the site's own jump stands where `entry` says, as the module
// has gone otherwise.
struct BookSemaphore {
  std::uint64_t address;
  std::uint32_t entry;  // index of the site's first BookEntry
  std::uint16_t before;
  SemaphoreState state;
};
static_assert(sizeof(BookHeader) == 72 && sizeof(BookEntry) == 24 && sizeof(BookSemaphore) == 16);

}  // namespace trapline::probes
