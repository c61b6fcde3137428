// What a program becomes for one traced process: sites, bodies, the arena's layout and its
// contents.
//
// Probes are put in place in batches: all that match when tracing starts, later one for each time
// that modules were loaded. A batch does not change any more once it is made, and a forked child
// that is followed has those of its parent.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/options.h"
#include "plan/plan.h"
#include "probes/region_image.h"
#include "probes/site_planner.h"
#include "session/body_store.h"
#include "session/enabling.h"
#include "wire/arena.h"

namespace trapline::session {

// The arena's strings: the program's constants in their order, then the process's own execname,
// then names and providers, each NUL-terminated.
class StringTable {
 public:
  explicit StringTable(const plan::Program& program);
  // The offset of `text` from the start of the strings; the same text gets the same offset.
  std::uint32_t add(std::string_view text);
  std::span<const char> bytes() const { return bytes_; }
  // What probeprov and execname are is each process's own, in places of a fixed size: a provider's
  // is its name ("pid", "postgresql") with the number of the process behind it.
  std::uint32_t add_provider(std::string_view name);
  std::uint32_t execname() const { return execname_; }
  // The bytes as they are in that process, but for its execname.
  std::vector<char> bytes_of(Pid pid) const;

  static constexpr std::uint32_t kNumberSize = 12;    // of a process, with a NUL
  static constexpr std::uint32_t kExecnameSize = 16;  // TASK_COMM_LEN

 private:
  std::vector<char> bytes_;
  std::map<std::string, std::uint32_t, std::less<>> known_;
  std::map<std::string, std::uint32_t, std::less<>> providers_;
  std::uint32_t execname_ = 0;
};

// Which rendezvous a process gets.
struct RendezvousWishes {
  bool execs = false;
  bool loads = false;
  bool forks = false;
  bool any() const { return execs || loads || forks; }
};

// What serves the places of probes.
enum class Engine : std::uint8_t {
  kNoTraps,  // jumps only: the process may have no breakpoints
  kInline,   // jumps only; what a breakpoint would reach is told
  kAuto,     // breakpoints where no jump fits, for probes that are asked for by name
  kTrap,     // breakpoints only
  kOutside,  // breakpoints only, and nothing is mapped: see outside_engine.h
};

// The sites of some probes and of the rendezvous. The plans know them by their number: probes
// first.
struct PlannedSites {
  std::vector<std::uint32_t> probes;               // the session's index of each
  std::vector<probes::RendezvousKind> rendezvous;  // the numbers behind the probes'
  probes::SitePlans plans;
  // Every function that the process has for it has its site.
  RendezvousWishes told;
  Engine engine = Engine::kInline;

  bool is_outside() const { return engine == Engine::kOutside; }

  bool is_probe(std::uint32_t number) const { return number < probes.size(); }
};

// One of the session's probes where it is in one process.
struct PlacedProbe {
  std::uint32_t probe = 0;
  std::shared_ptr<const probes::MatchedFunction> function;
  probes::ProbePoint point;
  bool by_name = false;  // see PidPoint
};

// Plans the sites of some probes of one process.
PlannedSites plan_sites(std::span<const PlacedProbe> which, probes::ModuleCache& modules,
                        RendezvousWishes rendezvous, probes::ShadowStack shadow_stack,
                        Engine engine);

struct ProbeBatch {
  PlannedSites sites;
  std::shared_ptr<const BodyObject> object;    // nullptr: is_outside()
  std::vector<probes::ProbeBinding> bindings;  // by number; without the process's addresses
};

struct TargetProgram {
  wire::Layout layout{};
  StringTable strings;
  std::vector<std::shared_ptr<const ProbeBatch>> batches;
};

// What the arena's layout depends on beside the program.
struct ArenaWishes {
  std::size_t threads = 0;        // that the process has
  std::int32_t mute_offset = 0;   // see wire::Layout
  std::size_t spare_strings = 0;  // bytes at least, for the names of probes that come later
};

// Everything that is the same for all processes of a session.
struct ProgramContext {
  const plan::Program& program;
  const plan::Options& options;
  std::span<const EnabledProbe> probes;
  BodyStore& bodies;
};

// Lays out, compiles and verifies. `later`: bodies that will be wanted for modules to come. Errors:
// kUnsupported (a body that cannot be compiled, sizes beyond the limits), kInternal.
Result<TargetProgram> build_target_program(const ProgramContext& context, PlannedSites sites,
                                           const std::set<BodyKey>& later,
                                           const ArenaWishes& wishes);

// Adds a batch to a process whose layout is fixed. Errors:
// kUnsupported: no room for the names.
Result<std::shared_ptr<const ProbeBatch>> add_batch(const ProgramContext& context,
                                                    TargetProgram& target, PlannedSites sites);

// The batch's bindings with the addresses of one process.
std::vector<probes::ProbeBinding> bind(const ProbeBatch& batch, RemoteAddr arena, RemoteAddr alive);

// Makes the fresh arena ready: header (but for what Tracee::fill_header and the clock add), chunk
// pool, strings.
void fill_arena(const TargetProgram& target, std::span<std::byte> arena, Pid pid,
                std::string_view execname);
// Only the names that came later.
void fill_names(const TargetProgram& target, std::span<std::byte> arena, Pid pid);

// The body of a probe's points of one kind.
BodyKey body_key(const EnabledProbe& probe);

}  // namespace trapline::session
