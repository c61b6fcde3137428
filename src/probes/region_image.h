// What goes into one code region: book, probe sites, the compiled bodies, one trampoline a site.
//
// Made in the tracer, as bytes, once the region's address is known.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "probes/book.h"
#include "probes/module_cache.h"
#include "probes/site_planner.h"
#include "probes/text_patch.h"
#include "wire/arena.h"

namespace trapline::probes {

// What the session knows of a probe that is to be installed.
struct ProbeBinding {
  std::uint32_t body = 0;  // offset of its body in the object
  wire::ProbeSite site{};  // all but stack_adjust and offset
};

// A counter of the program's that is raised while a site of it is armed.
struct PlacedSemaphore {
  RemoteAddr counter;
  RemoteAddr in_book = {};  // of its BookSemaphore; 0: there is no book
};

// A place in the target's text that a region serves.
struct PlacedSite {
  const isa::SitePlan* plan = nullptr;
  RemoteAddr site;
  std::size_t module = 0;
  std::vector<std::byte> patch;        // plan->patch_size bytes; empty: not encoded yet
  std::vector<std::byte> island = {};  // kJumpSize bytes, where the plan has an island
  // Those of one group (unique in an installation) are patched and restored together or not at all.
  std::uint32_t group = 0;
  RemoteAddr book_entry = {};  // its first one; once the image is built
  // Of its points, each once; with the place of each in the book, once the image is built.
  std::vector<PlacedSemaphore> semaphores = {};

  RemoteAddr trampoline = {};  // once it is encoded

  bool has_island() const { return plan->form == isa::SiteForm::kIsland; }
};

// What a site writes over: where, when, and what was there. One for the site and one for its
// island.
struct Overwritten {
  RemoteAddr at;
  std::span<const std::byte> original;  // at least as many bytes as `patched`
  std::span<const std::byte> patched;   // empty: not encoded yet
  Turn turn = Turn::kFirst;             // of patching; restoring goes the other way round
};
std::vector<Overwritten> overwritten_by(const PlacedSite& site);
Turn opposite(Turn turn);

struct RegionContents {
  std::vector<PlacedSite> sites;
  std::span<const std::byte> object;
};

// An upper bound of the bytes that the contents take, in whole pages.
std::uint64_t region_bound(const RegionContents& contents);

// What a region belongs to, as addresses in the process.
struct RegionOwner {
  RemoteAddr arena;
  std::uint64_t arena_size = 0;
  RemoteAddr alive;  // the fork page
};
// The book's head, of a region of this process's.
struct BookSize {
  std::size_t entries = 0;
  std::size_t semaphores = 0;
};
BookHeader book_header(const RegionOwner& owner, BookSize size, std::uint64_t region_size);

struct RegionImage {
  std::vector<std::byte> bytes;
  std::vector<PlacedSite> sites;              // those that could be encoded, with their patches
  std::vector<RefusedPlace> refused;          // out of reach from here, one a point
  std::vector<std::uint32_t> refused_groups;  // of these some site is refused
};

// `bindings` by probe; `uses` by point tag; `header` gives the book's facts, its count is filled in
// here.
RegionImage build_region(RemoteAddr address, RegionContents contents,
                         std::span<const PointUse> uses, std::span<const ProbeBinding> bindings,
                         const ModuleCache& modules, std::uint64_t arena_size);

}  // namespace trapline::probes
