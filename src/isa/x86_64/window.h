// Windows: consecutive instructions of a function that can be moved out of the way together.
//
// Only for site.cc and short_site.cc. A window is safe when no control flow arrives strictly inside
// it and each of its instructions can be relocated; whether a jump fits is asked for by its size.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isa/x86_64/control_flow.h"
#include "isa/x86_64/site.h"

namespace trapline::isa {

// What is in the way of a window, and where.
struct Obstacle {
  Refusal reason = Refusal::kTooShort;
  LinkAddr where;
};
// "branch target at +0x5 (0x401005)"
std::string describe(const PointRequest& point, const Obstacle& obstacle);

struct Window {
  std::size_t first = 0;  // indices in the function's instructions
  std::size_t count = 0;
  LinkAddr begin;
  LinkAddr code_end;
  LinkAddr end;  // code_end, or the end of the jump, which lies in padding
  bool covers_endbr = false;
  bool keeps_last = false;  // the last instruction is not patched
};

struct Attempt {
  std::optional<Window> window;
  Obstacle obstacle;
};

class WindowFinder {
 public:
  WindowFinder(const ModuleCode& module, const FunctionCode& function)
      : module_(module), function_(function), code_(function.instructions) {}

  // Over the point's instruction, for a jump of kJumpSize: from the instruction on, else from one
  // before it.
  Attempt for_jump(const PointRequest& point) const;
  // The same for a jump of kShortJumpSize, which leads to an island: all that there are, best
  // first.
  std::vector<Window> for_short_jump(const PointRequest& point) const {
    return all(point, kShortJumpSize);
  }
  // All that there are for a jump of kJumpSize, best first.
  std::vector<Window> all_for_jump(const PointRequest& point) const {
    return all(point, kJumpSize);
  }
  // The window that starts at instruction `first`, holds `last` and has room for `size` bytes.
  Attempt from(std::size_t first, std::size_t last, std::size_t size) const;

 private:
  std::vector<Window> all(const PointRequest& point, std::size_t size) const;
  std::optional<Obstacle> point_refused(const PointRequest& point) const;
  Attempt entry_with_endbr(std::size_t index) const;
  Attempt fall_through(std::size_t first, std::size_t ret, std::size_t size) const;
  Attempt search(const PointRequest& point, std::size_t index) const;
  Attempt check(const Window& w, std::size_t size) const;
  bool may_precede(std::size_t index) const;
  bool is_plain_start(std::size_t index) const;
  bool starts_function(const Window& w) const;
  bool is_private(LinkAddr target, const Window& w) const;
  std::optional<LinkAddr> table_target(LinkAddr begin, LinkAddr end) const;

  const ModuleCode& module_;
  const FunctionCode& function_;
  const std::vector<Instruction>& code_;
};

// Whether [begin, end) is nothing but nops and int3.
bool is_padding(const ModuleCode& module, LinkAddr begin, LinkAddr end);

SitePlan make_plan(const ModuleCode& module, const FunctionCode& function, const Window& window);
// Whether the point can be placed in this window beside its others.
bool holds(const SitePlan& plan, const PointRequest& point);
bool displaces(const SitePlan& plan, LinkAddr at);
void add_point(SitePlan& plan, const PointRequest& request);

}  // namespace trapline::isa
