#include "probes/region_image.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "isa/x86_64/encode.h"
#include "probes/book.h"
#include "target/process.h"

namespace trapline::probes {

namespace {

constexpr std::uint64_t kPage = wire::kPageSize;
constexpr std::uint64_t kTrampolineAlignment = 16;
// Bodies are aligned to this; a multiple of what the code generator asks for.
constexpr std::uint64_t kObjectAlignment = 64;

constexpr std::uint64_t align_up(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

std::size_t point_count(const RegionContents& contents) {
  std::size_t count = 0;
  for (const PlacedSite& site : contents.sites) count += site.plan->points.size();
  return count;
}

std::size_t entry_count(std::span<const PlacedSite> sites) {
  const auto islands = std::ranges::count_if(sites, &PlacedSite::has_island);
  return sites.size() + static_cast<std::size_t>(islands);
}

BookSize book_size(std::span<const PlacedSite> sites) {
  BookSize size{entry_count(sites), 0};
  for (const PlacedSite& site : sites) size.semaphores += site.semaphores.size();
  return size;
}

// Offsets of the parts, from the region's start.
struct Parts {
  std::uint64_t entries, semaphores, probe_sites, object, trampolines;
};

Parts parts_of(const RegionContents& contents) {
  Parts parts{};
  parts.entries = sizeof(BookHeader);
  const BookSize book = book_size(contents.sites);
  parts.semaphores = parts.entries + book.entries * sizeof(BookEntry);
  parts.probe_sites = align_up(parts.semaphores + book.semaphores * sizeof(BookSemaphore),
                               alignof(wire::ProbeSite));
  parts.object = align_up(parts.probe_sites + point_count(contents) * sizeof(wire::ProbeSite),
                          kObjectAlignment);
  parts.trampolines = align_up(parts.object + contents.object.size(), kObjectAlignment);
  return parts;
}

class Builder {
 public:
  Builder(RemoteAddr address, RegionContents contents, std::span<const PointUse> uses,
          std::span<const ProbeBinding> bindings, const ModuleCache& modules)
      : address_(address),
        contents_(std::move(contents)),
        uses_(uses),
        bindings_(bindings),
        modules_(modules),
        parts_(parts_of(contents_)) {}

  RegionImage build(std::uint64_t arena_size) {
    image_.bytes.resize(region_bound(contents_));
    std::memcpy(image_.bytes.data() + parts_.object, contents_.object.data(),
                contents_.object.size());
    next_ = parts_.trampolines;
    for (PlacedSite& site : contents_.sites) add(std::move(site));
    write_book(arena_size);
    image_.bytes.resize(align_up(next_, kPage));
    return std::move(image_);
  }

 private:
  void add(PlacedSite placed) {
    const LoadBias bias = modules_.module(placed.module).bias;
    isa::TrampolineRequest request{address_ + next_, bias, placed.plan, {}};
    const std::size_t first_site = probe_sites_;
    for (const isa::PlannedPoint& point : placed.plan->points) {
      const PointUse& use = uses_[point.tag];
      const std::uint64_t at = parts_.probe_sites + probe_sites_++ * sizeof(wire::ProbeSite);
      request.points.push_back(
          {point.offset, point.kind, isa::save_for(point.kind, use.boundary),
           address_ + parts_.object + bindings_[use.probe].body, address_ + at,
           use.usdt ? std::span(use.usdt->operands) : std::span<const isa::Operand>()});
    }
    const auto trampoline = isa::encode_trampoline(request);
    const Result<> patched =
        trampoline ? patch(placed, bias, request.address) : Result<>(trampoline.error());
    if (!patched) {
      refuse(placed, patched.error().text());
      probe_sites_ = first_site;
      return;
    }
    TL_CHECK(next_ + trampoline->bytes.size() <= image_.bytes.size());
    std::memcpy(image_.bytes.data() + next_, trampoline->bytes.data(), trampoline->bytes.size());
    next_ = align_up(next_ + trampoline->bytes.size(), kTrampolineAlignment);
    for (std::size_t i = 0; i < request.points.size(); ++i) {
      write_probe_site(first_site + i, uses_[placed.plan->points[i].tag],
                       trampoline->stack_adjust[i]);
    }
    placed.trampoline = request.address;
    image_.sites.push_back(std::move(placed));
  }

  static Result<> patch(PlacedSite& placed, LoadBias bias, RemoteAddr trampoline) {
    TL_TRY_ASSIGN(placed.patch, isa::encode_patch(*placed.plan, bias, trampoline));
    if (!placed.has_island()) return {};
    TL_TRY_ASSIGN(placed.island, isa::encode_island(*placed.plan, bias, trampoline));
    return {};
  }

  void write_probe_site(std::size_t index, const PointUse& use, std::uint32_t stack_adjust) {
    wire::ProbeSite site = bindings_[use.probe].site;
    site.stack_adjust = stack_adjust;
    site.offset = use.offset;
    std::memcpy(image_.bytes.data() + parts_.probe_sites + index * sizeof(site), &site,
                sizeof(site));
    alive_ = site.alive;
    arena_ = site.arena;
  }

  void refuse(const PlacedSite& placed, const std::string& why) {
    image_.refused_groups.push_back(placed.group);
    for (const isa::PlannedPoint& point : placed.plan->points) {
      image_.refused.push_back({uses_[point.tag].probe, placed.module, placed.site + point.offset,
                                std::string(isa::to_text(isa::Refusal::kOutOfReach)), why});
    }
  }

  void write_book(std::uint64_t arena_size) {
    const BookHeader header = book_header({RemoteAddr(arena_), arena_size, RemoteAddr(alive_)},
                                          book_size(image_.sites), image_.bytes.size());
    std::memcpy(image_.bytes.data(), &header, sizeof(header));
    std::byte* to = image_.bytes.data() + parts_.entries;
    // Sites may have been refused: the semaphores follow the entries that there are.
    std::uint64_t semaphore = parts_.entries + header.count * sizeof(BookEntry);
    std::uint32_t first_entry = 0;
    for (PlacedSite& placed : image_.sites) {
      placed.book_entry = address_ + static_cast<std::uint64_t>(to - image_.bytes.data());
      for (PlacedSemaphore& counter : placed.semaphores) {
        const BookSemaphore entry{counter.counter.value(), first_entry, 0, SemaphoreState::kDown};
        std::memcpy(image_.bytes.data() + semaphore, &entry, sizeof(entry));
        counter.in_book = address_ + semaphore;
        semaphore += sizeof(entry);
      }
      for (const Overwritten& place : overwritten_by(placed)) {
        BookEntry entry{};
        entry.site = place.at.value();
        entry.size = static_cast<std::uint8_t>(place.patched.size());
        std::memcpy(entry.original, place.original.data(), entry.size);
        std::memcpy(entry.patched, place.patched.data(), entry.size);
        entry.turn = static_cast<std::uint8_t>(opposite(place.turn));
        entry.group = placed.group;
        std::memcpy(to, &entry, sizeof(entry));
        to += sizeof(entry);
        ++first_entry;
      }
    }
  }

  RemoteAddr address_;
  RegionContents contents_;
  std::span<const PointUse> uses_;
  std::span<const ProbeBinding> bindings_;
  const ModuleCache& modules_;
  Parts parts_;
  RegionImage image_;
  std::uint64_t next_ = 0;
  std::size_t probe_sites_ = 0;
  std::uint64_t arena_ = 0;
  std::uint64_t alive_ = 0;
};

}  // namespace

BookHeader book_header(const RegionOwner& owner, BookSize size, std::uint64_t region_size) {
  const auto start_of = [](Pid pid) {
    const auto stat = target::read_stat(pid);
    return stat ? static_cast<std::uint32_t>(stat->start_time) : 0;
  };
  const Pid own{getpid()}, parent{getppid()};
  return {.magic = kBookMagic,
          .version = kBookVersion,
          .count = static_cast<std::uint32_t>(size.entries),
          .region_size = region_size,
          .arena = owner.arena.value(),
          .arena_size = owner.arena_size,
          .alive = owner.alive.value(),
          .tracer = static_cast<std::uint32_t>(own.value),
          .tracer_start = start_of(own),
          .parent = static_cast<std::uint32_t>(parent.value),
          .parent_start = start_of(parent),
          .semaphores = static_cast<std::uint32_t>(size.semaphores),
          .reserved = 0};
}

// A host must have made room before its islands are written, and these before what leads to them.
std::vector<Overwritten> overwritten_by(const PlacedSite& site) {
  if (!site.has_island()) return {{site.site, site.plan->original, site.patch, Turn::kFirst}};
  const isa::Island& island = site.plan->island;
  const RemoteAddr at = site.site + (island.at - site.plan->site);
  return {{site.site, site.plan->original, site.patch, Turn::kThird},
          {at, island.original, site.island, Turn::kSecond}};
}

Turn opposite(Turn turn) {
  if (turn == Turn::kSecond) return turn;
  return turn == Turn::kFirst ? Turn::kThird : Turn::kFirst;
}

std::uint64_t region_bound(const RegionContents& contents) {
  std::uint64_t size = parts_of(contents).trampolines;
  for (const PlacedSite& site : contents.sites) {
    size +=
        align_up(isa::trampoline_bound(*site.plan, site.plan->points.size()), kTrampolineAlignment);
  }
  return align_up(size, kPage);
}

RegionImage build_region(RemoteAddr address, RegionContents contents,
                         std::span<const PointUse> uses, std::span<const ProbeBinding> bindings,
                         const ModuleCache& modules, std::uint64_t arena_size) {
  return Builder(address, std::move(contents), uses, bindings, modules).build(arena_size);
}

}  // namespace trapline::probes
