// The book of a code region: what was patched where, so that whoever finds the region can restore
// the process.
//
// It lies at the region's start, in the traced process, so it survives every tracer and is there in
// forked children too. Layout, all little endian:
//   BookHeader | BookEntry[count] (sites and islands) | wire::ProbeSite[] | the object |
//   trampolines

#pragma once

#include <cstdint>

namespace trapline::probes {

inline constexpr std::uint64_t kBookMagic = 0x314b4f4f424c5054;  // "TPLBOOK1"
inline constexpr std::uint32_t kBookVersion = 4;

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
static_assert(sizeof(BookHeader) == 64 && sizeof(BookEntry) == 24);

}  // namespace trapline::probes
