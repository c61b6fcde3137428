// What a program becomes for one traced process: sites, bodies, the arena's layout and its
// contents.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codegen/codegen.h"
#include "plan/options.h"
#include "plan/plan.h"
#include "probes/region_image.h"
#include "probes/site_planner.h"
#include "session/enabling.h"
#include "wire/arena.h"

namespace trapline::session {

// The arena's strings: the program's constants in their order, then names, each NUL-terminated.
class StringTable {
 public:
  explicit StringTable(const plan::Program& program);
  // The offset of `text` from the start of the strings; the same text gets the same offset.
  std::uint32_t add(std::string_view text);
  std::span<const char> bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
  std::map<std::string, std::uint32_t, std::less<>> known_;
};

// A process's sites: those of its probes and, if there are any, those of its rendezvous.
struct SitesOfTarget {
  probes::SitePlans plans;
  std::deque<probes::MatchedFunction> rendezvous;  // the plans refer to them
  std::uint32_t rendezvous_probe = 0;  // the index that stands for it, behind those of all probes
  bool execs_told = false;             // every function of the rendezvous has its site
};

struct TargetProgram {
  std::vector<std::uint32_t> probes;  // indices in the session, those of this process
  SitesOfTarget sites;
  wire::Layout layout{};
  codegen::ObjectCode object;
  std::vector<probes::ProbeBinding>
      bindings;  // by the session's index, then the rendezvous; see bind_addresses
  StringTable strings;
  std::uint32_t execname = 0;  // offset in the strings
};

enum class Rendezvous : std::uint8_t { kLeaveOut, kInclude };

// What serves the places of probes.
enum class Engine : std::uint8_t {
  kNoTraps,  // jumps only: the process may have no breakpoints
  kInline,   // jumps only; what a breakpoint would reach is told
  kAuto,     // breakpoints where no jump fits, for probes that are asked for by name
  kTrap,     // breakpoints only
};

// Plans the sites of process number `target`. `probes` are all of the session's.
SitesOfTarget plan_sites(std::span<const EnabledProbe> probes, std::size_t target,
                         probes::ModuleCache& modules, Rendezvous rendezvous,
                         probes::ShadowStack shadow_stack, Engine engine);

// What the arena's layout depends on beside the program.
struct ArenaWishes {
  std::size_t threads = 0;       // that the process has
  std::int32_t mute_offset = 0;  // see wire::Layout
};

// Lays out, compiles and verifies. Errors: kUnsupported (a
// body that cannot be compiled, sizes beyond the limits), kInternal.
Result<TargetProgram> build_target_program(const plan::Program& program,
                                           const plan::Options& options,
                                           std::span<const EnabledProbe> probes, std::size_t target,
                                           SitesOfTarget sites, const ArenaWishes& wishes,
                                           std::string_view execname);

// Fills in the addresses that are known once the arena is mapped.
void bind_addresses(TargetProgram& target, RemoteAddr arena, RemoteAddr alive);

// Makes the fresh arena ready: header (but for what Tracee::fill_header and the clock add), chunk
// pool, strings.
void fill_arena(const TargetProgram& target, std::span<std::byte> arena);

}  // namespace trapline::session
