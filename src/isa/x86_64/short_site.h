// Sites with room for a short jump only: `jmp rel8` to an island, from which `jmp rel32` leads on.
//
// For points that no five-byte jump fits at. The two bytes lie over whole instructions of the
// window, as ever; the island's five bytes within 127 bytes of them lie
//   - in padding between two functions, which nothing executes or branches to; or
//   - in a host: ten or more bytes of straight code nearby, moved out of the way by a jump of its
//     own, which leaves room behind that jump. A host has no points; it is there for its islands.
//
//   was                      becomes
//   48 89 f8   mov rax,rdi   eb 7c f8    jmp island     (the rest of the window is never executed)
//   ...                      ...
//   host: 10 bytes of code   e9 rel32    jmp to the host's trampoline: its instructions, jump back
//                            e9 rel32    island: jmp to the site's trampoline
//
// Only bytes that the site owns are relied on. (A punned jump, whose last bytes are those of the
// next instruction, is not made: a breakpoint or another tracer's jump laid over that instruction
// would send it astray.)

#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "isa/x86_64/control_flow.h"
#include "isa/x86_64/site.h"
#include "isa/x86_64/window.h"

namespace trapline::isa {

// Bytes of a module that windows and islands have taken.
class Claims {
 public:
  bool is_free(LinkAddr begin, LinkAddr end) const;
  void add(LinkAddr begin, LinkAddr end) { ranges_[begin] = end; }  // precondition: free
  void remove(LinkAddr begin) { ranges_.erase(begin); }

 private:
  std::map<LinkAddr, LinkAddr> ranges_;
};

class ShortSites {
 public:
  // `sites` are those already planned, whose windows are taken.
  ShortSites(const ModuleCode& module, std::span<const SitePlan> sites);

  // Plans sites for the points; the others' indices are returned.
  std::vector<std::size_t> place(std::span<const PointRequest* const> points);
  // All sites that were made: hosts too. In no order.
  std::vector<SitePlan> take();

 private:
  struct Pending {
    const PointRequest* point = nullptr;
    std::vector<Window> windows;
    std::size_t chosen = 0;
    std::size_t index = 0;  // among the points
  };
  struct Reach {
    LinkAddr first;  // where an island may start
    LinkAddr last;
  };
  struct Spot {
    LinkAddr at;
    std::size_t host = kNoHost;  // index in hosts_
  };
  struct Host {
    SitePlan plan;
    LinkAddr free;  // its next island
  };
  static constexpr std::size_t kNoHost = ~std::size_t{0};

  bool claim_window(Pending& pending, std::size_t from);
  bool place(Pending& pending);
  Reach reach_from(LinkAddr end) const;
  bool add_to_existing(const PointRequest& point);
  std::optional<Spot> find_spot(const Pending& pending, Reach reach);
  std::optional<LinkAddr> in_padding(Reach reach);
  std::optional<CodeRange> usable_gap(LinkAddr next_start);
  std::optional<Spot> in_host(Reach reach);
  std::optional<Spot> in_new_host(const FunctionCode& function, Reach reach);
  const FunctionCode* function_at(LinkAddr at);
  void add_site(const Pending& pending, const Spot& spot);

  const ModuleCode& module_;
  Claims claims_;
  std::vector<SitePlan> sites_;
  std::vector<Host> hosts_;
  std::uint32_t groups_ = 0;
  std::map<LinkAddr, std::optional<CodeRange>> gaps_;  // by the start after it
  std::map<LinkAddr, const FunctionCode*> functions_;
  std::deque<FunctionCode> store_;
};

}  // namespace trapline::isa
