// Sites: where and over which instructions a probe's jump can be laid.
//
// The problem: a probe point is one instruction, a jump is five bytes. The approach (the ladder of
// the inline engine): the window starts at the point and takes in whole instructions until five
// bytes are there; where the function ends first, the padding after it is taken too
// (kJump5Padding); where that is not enough either, as for most `ret`s, the window starts some
// instructions before the point, which run in the trampoline before the probe does. Windows that
// meet are merged: one window, several points. Where a window of five bytes cannot be had, a short
// jump leads to an island nearby (short_site.h). A `ret` of which not even two bytes can be had
// stays as it is, and every way to it is probed instead (return_ways.h).
// Where nothing fits, the point is refused with the reason. Nothing is ever left out silently.
//
// CET: a window starts after an endbr64 when that fits. Linux does not enforce IBT for user code
// (6.12), so a window over an endbr64 would work today; it is the second choice only
// (SitePlan::covers_endbr says so). The jump, the trampoline's call/ret pair and the jump back are
// legal under shadow stacks.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "isa/x86_64/control_flow.h"

namespace trapline::isa {

inline constexpr std::size_t kJumpSize = 5;
inline constexpr std::size_t kShortJumpSize = 2;
inline constexpr std::size_t kMaxWindow = 128;  // merged windows included

enum class PointKind : std::uint8_t {
  kEntry,        // before the function's first instruction
  kReturn,       // before a `ret`
  kTail,         // before a jump out of the function; a conditional one: only when it is taken
  kInstruction,  // before any instruction
  // As kInstruction, where a function of Go's begins (go_prologue.h): the body gets its arguments.
  kGoEntry,       // they are in Go's registers
  kGoStackEntry,  // they are all on the stack
  kStatic,        // as kInstruction; the body gets the operands that its place names
  kFallThrough,   // before a `ret` that is reached in line, not where a branch leads to it; made by
                  // plan_sites (return_ways.h)
};

// Before an instruction that may be anywhere in a function: nothing is known of what is alive
// there.
constexpr bool is_anywhere(PointKind kind) {
  return kind == PointKind::kInstruction || kind == PointKind::kGoEntry ||
         kind == PointKind::kGoStackEntry || kind == PointKind::kStatic;
}

struct PointRequest {
  LinkAddr at;
  PointKind kind = PointKind::kEntry;
  const FunctionCode* function = nullptr;  // not owned; never null
  std::uint32_t tag = 0;                   // the caller's own: index of its probe
};

enum class SiteForm : std::uint8_t {
  kJump5,         // whole instructions only
  kJump5Padding,  // the last bytes of the jump lie in padding
  kIsland,        // a two-byte jump to an island, which holds the jump of five bytes
  kTrap,          // one instruction, int3 over its first byte; see plan_trap_site
};
std::string_view to_text(SiteForm form);  // "jump", "padding", "island", "trap"

struct PlannedPoint {
  std::uint8_t offset = 0;  // of the point's instruction from the window's start
  PointKind kind = PointKind::kEntry;
  std::uint32_t tag = 0;
};

// Where a short jump leads.
struct Island {
  LinkAddr at;
  std::vector<std::byte> original;  // kJumpSize bytes, to be compared and replaced
  bool hosted = false;              // in the window of another site of the group, else in padding
};

struct SitePlan {
  LinkAddr site;  // start of the window
  SiteForm form = SiteForm::kJump5;
  std::uint8_t patch_size = 0;  // bytes to overwrite, from `site`: 5, 2 for kIsland, 1 for kTrap
  std::uint8_t code_size = 0;   // bytes of the displaced instructions
  std::uint8_t window_size =
      0;  // max(patch_size, code_size): no PC may be strictly inside when patching
  bool covers_endbr = false;
  bool keeps_last = false;  // the last displaced instruction also stays: no byte of it is patched
  std::vector<std::byte> original;  // window_size bytes, to be compared with memory before patching
  std::vector<Instruction> displaced;  // by address (link addresses)
  std::vector<PlannedPoint> points;    // by offset, kind, tag; none: a host
  Island island;                       // kIsland only
  // Sites of one number (within the module, not 0) are patched and restored together or not at all.
  std::uint32_t group = 0;
};

enum class Refusal : std::uint8_t {
  kNotCode,      // the address is in no executable section or not an instruction of the function
  kUndecodable,  // bytes before or at the site do not decode
  kBranchIntoWindow,  // a direct branch, jump table, landing pad or pointer leads into it
  kCall,              // a call that would not end the window: it would return into the trampoline,
                      // where nothing unwinds
  kSyscall,           // a thread may sleep in it, and its PC would be in the trampoline
  kTrapInstruction,   // int3, ud2...: handlers look at the PC; an int3 may be somebody's breakpoint
  kPrivileged,
  kTransaction,          // xbegin
  kTooShort,             // the function ends, and no padding follows
  kUnrelocatable,        // a branch with a 0x66 prefix, an eip-relative operand
  kUnknownJumps,         // an indirect jump of the function may lead into it
  kUnprovenJump,         // return probe: an indirect jump that may or may not leave the function
  kRestartableSequence,  // touches an rseq section or abort signature
  kOutOfReach,           // relocate: a rip-relative operand more than 2 GiB from the trampoline
  kTooLong,              // merged window longer than kMaxWindow
};
std::string_view to_text(Refusal refusal);

struct RefusedPoint {
  PointRequest point;
  Refusal reason = Refusal::kTooShort;
  LinkAddr where;    // the instruction or target in the way
  std::string text;  // "branch target at +0x5 (0x401005)"
};

struct SiteSet {
  std::vector<SitePlan> sites;  // by address; windows and islands in padding do not overlap
  std::vector<RefusedPoint> refused;
};

// Plans all points of a module at once, so that windows which meet are merged. Points at the same
// address share a window. Every request ends up in exactly one of the two lists; a return whose
// ways are probed has a planned point, of its tag, for each.
SiteSet plan_sites(const ModuleCode& module, std::span<const PointRequest> points);

// Why return probes of this function are refused as a whole, as some of its exits may be unknown:
// an unproven indirect jump (kUnprovenJump), or code that does not decode or that is not known to
// belong to it (kUndecodable). nullopt: all exits are known. plan_sites refuses kReturn and kTail
// points of such a function itself.
std::optional<Refusal> exits_refused(const FunctionCode& function);

// The points of one function: its entry, its exits.
PointRequest entry_point(const FunctionCode& function, std::uint32_t tag = 0);
std::vector<PointRequest> exit_points(const FunctionCode& function, std::uint32_t tag = 0);

struct TrapPlan {
  SitePlan plan;  // form kTrap
  bool possible = false;
  Refusal reason = Refusal::kCall;
};
// The last rung: int3 over the first byte of the point's own instruction, which alone is displaced.
// `points` are all at one address. Not possible where the instruction cannot be relocated (a
// syscall, int3...). A call is, as at the end of a window.
TrapPlan plan_trap_site(const ModuleCode& module, std::span<const PointRequest> points);

}  // namespace trapline::isa
