// The probes of one process as they stand in its memory: regions, patched sites, and how all of it
// is taken back.
//
// Three steps in, each as short for the target as can be:
//   reserve  (stopped)  code regions are mapped within reach of the text they serve;
//   prepare  (running)  trampolines are encoded and written to the regions, which nothing leads to
//   yet; arm      (stopped)  each site's bytes are compared with what was planned, threads are
//   moved out of windows, the
//                       jumps are written.
// And out: disarm (stopped) writes the original bytes back where ours still are; release (stopped)
// unmaps the regions once no thread is in them or will return to them.
//
// A site where other bytes are found than planned (somebody's breakpoint, a kernel uprobe) is
// refused, never overwritten.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "probes/region_image.h"
#include "probes/site_planner.h"
#include "target/code_region.h"
#include "target/memory.h"
#include "target/remote_syscall.h"
#include "target/stopped.h"
#include "target/trap_server.h"

namespace trapline::probes {

// Memory that an installation may take in the target without the user's explicit consent, in bytes:
// trampolines and the private copies of patched pages of text.
inline constexpr std::uint64_t kQuietMemory = 64u << 20;

struct ArmReport {
  std::size_t armed = 0;  // sites
  std::size_t deferred =
      0;  // sites that a thread is in the midst of: call arm() again at another stop
};

class Installation {
 public:
  // `modules` and `plans` outlive the installation. Nothing is touched yet.
  Installation(ModuleCache& modules, const SitePlans& plans, std::span<const std::byte> object);
  // Of breakpoints that lead nowhere (the engine `outside`): nothing is mapped, reserve() and
  // prepare() are not needed. Precondition: all sites are of the form kTrap.
  Installation(ModuleCache& modules, const SitePlans& plans);

  // What it will take in the target, in bytes.
  std::uint64_t memory_needed() const;

  // Errors: kNotFound (no room within reach), kPermission (no executable memory), kOs, kTargetGone.
  Result<> reserve(target::RemoteCalls& calls, const RegionOwner& owner);
  // `bindings` by probe. Errors: kOs, kTargetGone. Sites out of reach become refused().
  Result<> prepare(target::Memory& memory, std::span<const ProbeBinding> bindings,
                   std::uint64_t arena_size);
  // Preconditions: prepared. May be called again for the sites that were deferred.
  Result<ArmReport> arm(target::StoppedProcess& process);
  // Gives up the sites that are still deferred: they become refused().
  void refuse_deferred();

  // Sites that carry other bytes than ours by now are left as they are, and counted in the result.
  Result<std::size_t> disarm(target::StoppedProcess& process);
  // Unmaps what nobody is in; true: all regions are gone. Precondition: disarmed.
  Result<bool> release(target::StoppedProcess& process);

  // A module was unmapped, and with it its sites: whatever is mapped there next is not touched.
  void forget_module(std::size_t module);
  // It was mapped again, as it was: its sites wait for arm().
  void expect_module(std::size_t module);
  // Whether the module was mapped anew: where a jump was written, the original bytes stand again.
  bool was_replaced(std::size_t module, const target::Memory& memory) const;
  // All its sites were in modules that have gone.
  bool is_idle() const;

  // Where its code is.
  std::vector<target::AddressRange> code() const;
  // The pages of text that were patched, in parts of at most `largest` bytes (whole pages).
  std::vector<target::AddressRange> text_pages(std::uint64_t largest) const;

  // Places refused since planning, beside SitePlans::refused.
  const std::vector<RefusedPlace>& refused() const { return refused_; }
  std::size_t armed_count() const;
  // Places that arm() will make breakpoints, with the instructions there.
  target::Traps waiting_traps() const;
  // The breakpoints among the armed sites, which somebody has to serve.
  target::Traps traps() const;
  // The process has ended or its image was replaced: nothing is left to be taken back.
  void forget();

 private:
  enum class State : std::uint8_t { kWaiting, kArmed, kRefused, kGone };
  struct Site {
    PlacedSite placed;
    State state = State::kWaiting;
  };
  struct Region {
    RegionContents contents;
    target::AddressRange text;  // what it serves
    std::optional<target::CodeRegion> region;
    bool written = false;
    std::vector<std::byte> image;  // kept until written
  };

  std::vector<PlacedSite> sorted_sites() const;
  void group_sites();
  void refuse_groups(std::span<const std::uint32_t> groups);
  void copy_pages(target::Memory& memory) const;
  std::vector<Site*> sites_in(State state);
  static Result<> strike_from_book(target::StoppedProcess& process, const PlacedSite& placed);
  void refuse(const PlacedSite& site, const std::string& reason, const std::string& detail);
  Result<> raise_semaphores(target::Memory& memory, const Site& site);
  Result<> lower_semaphores(target::Memory& memory);
  Result<std::vector<bool>> sites_in_use(target::StoppedProcess& process,
                                         const std::vector<Site*>& waiting);

  ModuleCache& modules_;
  const SitePlans& plans_;
  std::span<const std::byte> object_;
  std::vector<Region> regions_;
  std::vector<Site> sites_;  // by address
  std::vector<RefusedPlace> refused_;
  // Semaphores that hold one of ours, by their counters.
  struct Raised {
    PlacedSemaphore semaphore;
    std::size_t module = 0;
  };
  std::map<RemoteAddr, Raised> raised_;
};

}  // namespace trapline::probes
