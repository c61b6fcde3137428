// analyze_function: one function's instructions, exits and indirect jumps. See control_flow.h.
//
// In rounds, as each finding may bring another: decode the parts; follow the stack pointer along
// the flow; resolve indirect jumps, whose tables give new flow; take in unnamed .cold parts. A
// handful of rounds suffices; the count is bounded because bytes may be hostile.

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "isa/x86_64/control_flow.h"
#include "isa/x86_64/jump_table.h"
#include "isa/x86_64/stack.h"

namespace trapline::isa {
namespace {

constexpr std::size_t kMaxParts = 16;
constexpr std::size_t kMaxRounds = 8;
constexpr std::uint64_t kMaxPart = 8 << 20;
constexpr std::size_t kUsualLength = 4;            // bytes of an instruction, on average
constexpr std::uint64_t kMaxGlance = 4 << 20;      // bytes, in all rounds
constexpr std::size_t kMaxTableEntries = 1 << 20;  // of all jumps of a function in all rounds

bool is_local_branch(const Instruction& i) {
  return i.kind == Kind::kJumpDirect || i.kind == Kind::kJumpConditional || i.kind == Kind::kLoop;
}

class Analysis {
 public:
  Analysis(const ModuleCode& module, CodeRange function, std::span<const CodeRange> others)
      : module_(module) {
    if (function.size() == 0) function.end = module.next_start(function.begin);
    const Start start = module.start_at(function.begin);
    out_.sure = start == Start::kFunction && module.within_frame(function);
    if (start == Start::kNoInstruction) {
      out_.parts.push_back(function);
      mark_undecodable(function.begin);
      return;
    }
    add_part(function);
    for (const CodeRange& part : others) add_part(part);
  }

  FunctionCode run() {
    for (std::size_t round = 0; round < kMaxRounds; ++round) {
      follow_stack();
      const bool more_targets = resolve_jumps();
      const bool more_parts = adopt_parts();
      if (!more_targets && !more_parts) break;
    }
    find_exits();
    return std::move(out_);
  }

 private:
  bool add_part(CodeRange part) {
    if (part.size() == 0 || part.size() > kMaxPart || out_.parts.size() >= kMaxParts) {
      if (out_.parts.empty()) mark_undecodable(part.begin);
      return false;
    }
    for (const CodeRange& known : out_.parts) {
      if (part.begin < known.end && known.begin < part.end) return false;
    }
    out_.parts.push_back(part);
    const auto old = static_cast<std::ptrdiff_t>(out_.instructions.size());
    decode_part(part);
    std::ranges::inplace_merge(out_.instructions, out_.instructions.begin() + old, {},
                               &Instruction::address);
    return true;
  }

  void mark_undecodable(LinkAddr at) {
    if (!out_.decodable) return;
    out_.decodable = false;
    out_.undecodable_at = at;
  }

  void decode_part(CodeRange part) {
    std::span<const std::byte> bytes = module_.bytes_at(part.begin);
    if (bytes.size() > part.size()) bytes = bytes.first(part.size());
    out_.instructions.reserve(out_.instructions.size() + bytes.size() / kUsualLength);
    std::size_t pos = 0;
    while (pos < bytes.size()) {
      const auto instruction = decode(bytes.subspan(pos), part.begin.value() + pos);
      if (!instruction) break;
      out_.instructions.push_back(*instruction);
      pos += instruction->length;
    }
    if (pos < part.size()) mark_undecodable(part.begin + pos);
  }

  // The state before each instruction. Branch edges go first; the edge from a call to the
  // instruction after it is taken only where nothing else leads there, as the call may never return
  // and what follows may belong to another place. In valid code all edges agree, so the first state
  // stays.
  void follow_stack() {
    states_.assign(out_.instructions.size(), {});
    visited_.assign(out_.instructions.size(), false);
    std::deque<std::pair<std::size_t, StackState>> sure;
    std::deque<std::pair<std::size_t, StackState>> after_calls;
    const auto push = [&](std::uint64_t target, const StackState& state, auto& queue) {
      if (const auto index = out_.find(LinkAddr(target))) queue.emplace_back(*index, state);
    };
    push(out_.parts.empty() ? 0 : out_.parts.front().begin.value(), {.rsp = 0, .rbp = {}}, sure);
    while (!sure.empty() || !after_calls.empty()) {
      auto& queue = sure.empty() ? after_calls : sure;
      const auto [index, state] = queue.front();
      queue.pop_front();
      if (visited_[index]) continue;
      visited_[index] = true;
      states_[index] = state;
      const Instruction& i = out_.instructions[index];
      const StackState next = apply_stack(i, state);
      if (is_local_branch(i)) push(i.target, next, sure);
      if (i.kind == Kind::kJumpIndirect) {
        for (const LinkAddr target : table_of(i.address)) push(target.value(), next, sure);
      }
      if (i.ends_flow()) continue;
      const bool call = i.kind == Kind::kCallDirect || i.kind == Kind::kCallIndirect;
      push(i.end(), next, call ? after_calls : sure);
    }
  }

  std::span<const LinkAddr> table_of(std::uint64_t jump) const {
    const auto it = tables_.find(jump);
    if (it == tables_.end()) return {};
    return it->second;
  }

  std::optional<std::int64_t> depth(std::size_t index) const {
    return visited_[index] ? states_[index].rsp : std::nullopt;
  }

  // What a jump through a pointer is, its targets not being a table. At a tail call the stack is as
  // it was at the entry; elsewhere the jump stays inside. A frameless function might still hold
  // labels whose addresses were taken: then nothing is proven.
  IndirectJump judge_pointer(std::size_t index) const {
    const Instruction& i = out_.instructions[index];
    const auto rsp = depth(index);
    if (i.notrack) return IndirectJump::kInternal;
    if (!rsp) return IndirectJump::kUnproven;
    if (*rsp != 0) return IndirectJump::kInternal;
    if (module_.pointers() != CodePointers::kComplete) return IndirectJump::kUnproven;
    for (const CodeRange& part : out_.parts) {
      if (module_.pointer_inside(part)) return IndirectJump::kUnproven;
    }
    return IndirectJump::kTail;
  }

  // True: new targets were found.
  bool resolve_jumps() {
    out_.indirect.clear();
    out_.unknown_targets = false;
    bool more = false;
    const TableBases bases = collect_table_bases(out_);
    for (std::size_t n = 0; n < out_.instructions.size(); ++n) {
      const Instruction& i = out_.instructions[n];
      if (i.kind != Kind::kJumpIndirect) continue;
      IndirectSite site{.at = LinkAddr(i.address), .verdict = IndirectJump::kUnproven};
      JumpTable table = resolve_jump_table(module_, out_, bases, n, table_budget_);
      table_budget_ -= std::min(table_budget_, table.entries_read);
      if (!table.targets.empty()) {
        site.verdict = IndirectJump::kTable;
        more = add_table(i.address, std::move(table.targets)) || more;
      } else {
        site.verdict = judge_pointer(n);
        // A pointer that is loaded from memory is one of the module's code pointers or a function
        // of another module.
        const bool known = table.source == JumpSource::kLoadedPointer &&
                           module_.pointers() == CodePointers::kComplete;
        if (site.verdict != IndirectJump::kTail && !known) out_.unknown_targets = true;
      }
      out_.indirect.push_back(site);
    }
    return more;
  }

  bool add_table(std::uint64_t jump, std::vector<LinkAddr> targets) {
    std::vector<LinkAddr>& known = tables_[jump];
    const bool more = targets.size() > known.size();
    if (more) known = std::move(targets);
    return more;
  }

  // Which .cold part is whose is not always known. A jump (not a call) out of the function with the
  // stack frame in place is no tail call, so where it goes is a part of the function, unless it is
  // a function of its own: something calls it or holds its address, or it has a name and returns by
  // itself. With no frame it may be a tail call. To an unnamed frame's start it is one, unless it
  // jumps back into us; to the middle of an unnamed frame it is none.
  std::optional<CodeRange> part_behind(std::size_t index) {
    const LinkAddr target(out_.instructions[index].target);
    const auto unnamed = module_.unnamed_frame(target);
    const auto range = unnamed ? unnamed : module_.function_around(target);
    if (!range || module_.is_called(range->begin)) return std::nullopt;
    // .plt has one frame over all of its stubs.
    if (!module_.same_section(range->begin, out_.parts.front().begin)) return std::nullopt;
    const Glance seen = glance(*range);
    const auto rsp = depth(index);
    const bool framed = rsp && *rsp != 0;
    if (framed && seen.jumps_back) return range;
    // At a fixed address the entries of jump tables count as pointers too; so this is asked late.
    if (module_.is_pointer(range->begin)) return std::nullopt;
    if (framed && !falls_off(index) && (unnamed || !seen.returns)) return range;
    if (unnamed && (range->begin != target || seen.jumps_back)) return range;
    return std::nullopt;
  }

  // A conditional jump to what lies behind us. If that is a function of its own, the jump is what
  // gcc makes of
  // __builtin_unreachable, and never taken. If it is not known to be one, it may be a .cold part
  // after all.
  bool falls_off(std::size_t index) const {
    const Instruction& i = out_.instructions[index];
    if (i.kind != Kind::kJumpConditional) return false;
    return std::ranges::any_of(out_.parts, [&](const CodeRange& part) {
      return module_.next_start(part.end - 1) == LinkAddr(i.target);
    });
  }

  bool adopt_parts() {
    bool more = false;
    for (std::size_t n = 0; n < out_.instructions.size();) {
      const Instruction& i = out_.instructions[n];
      const bool leaves = is_local_branch(i) && !out_.contains(LinkAddr(i.target));
      const auto range = leaves ? part_behind(n) : std::nullopt;
      if (!range || !add_part(*range)) {
        ++n;
        continue;
      }
      more = true;
      follow_stack();
      n = 0;  // indices moved
    }
    return more;
  }

  struct Glance {
    bool jumps_back = false;
    bool returns = false;
  };
  // What is too much to look at counts as a function of its own.
  Glance glance(CodeRange range) {
    if (range.size() > glance_budget_) return {.jumps_back = false, .returns = true};
    glance_budget_ -= range.size();
    Glance seen;
    std::span<const std::byte> bytes = module_.bytes_at(range.begin);
    if (bytes.size() > range.size()) bytes = bytes.first(range.size());
    std::size_t pos = 0;
    while (pos < bytes.size()) {
      const auto i = decode(bytes.subspan(pos), range.begin.value() + pos);
      if (!i) break;
      if (i->kind == Kind::kRet) seen.returns = true;
      if (is_local_branch(*i) && out_.parts.front().strictly_contains(LinkAddr(i->target))) {
        seen.jumps_back = true;
      }
      pos += i->length;
    }
    return seen;
  }

  // A direct jump that leaves with the stack frame in place is no tail call: it goes to code that
  // nobody told us of, where returns would be missed.
  void find_direct_exit(std::size_t index) {
    const Instruction& i = out_.instructions[index];
    const LinkAddr target(i.target);
    if (out_.contains(target)) {
      if (target == out_.parts.front().begin) out_.entry_is_branch_target = true;
      return;
    }
    const auto rsp = depth(index);
    if (rsp && *rsp != 0) {
      const bool own = module_.is_called(target) || module_.is_pointer(target);
      if (own && falls_off(index)) return;
      mark_undecodable(target);
      return;
    }
    out_.exits.push_back({LinkAddr(i.address), i.kind == Kind::kJumpDirect
                                                   ? ExitKind::kTailJump
                                                   : ExitKind::kTailJumpConditional});
  }

  void find_exits() {
    for (std::size_t n = 0; n < out_.instructions.size(); ++n) {
      const Instruction& i = out_.instructions[n];
      if (i.kind == Kind::kRet) out_.exits.push_back({LinkAddr(i.address), ExitKind::kRet});
      if (is_local_branch(i)) find_direct_exit(n);
    }
    for (const IndirectSite& site : out_.indirect) {
      if (site.verdict == IndirectJump::kTail) {
        out_.exits.push_back({site.at, ExitKind::kTailJumpIndirect});
      }
    }
    std::ranges::sort(out_.exits, {}, &FunctionExit::at);
    for (const auto& [at, targets] : tables_) {
      out_.table_targets.insert(out_.table_targets.end(), targets.begin(), targets.end());
    }
    std::ranges::sort(out_.table_targets);
    const auto rest = std::ranges::unique(out_.table_targets);
    out_.table_targets.erase(rest.begin(), rest.end());
  }

  const ModuleCode& module_;
  FunctionCode out_;
  std::vector<StackState> states_;
  std::vector<bool> visited_;
  std::size_t table_budget_ = kMaxTableEntries;
  std::uint64_t glance_budget_ = kMaxGlance;
  std::map<std::uint64_t, std::vector<LinkAddr>> tables_;  // by the jump's address
};

}  // namespace

bool FunctionCode::contains(LinkAddr a) const { return part_of(a).has_value(); }

std::optional<CodeRange> FunctionCode::part_of(LinkAddr a) const {
  const auto it = std::ranges::find_if(parts, [a](const CodeRange& p) { return p.contains(a); });
  if (it == parts.end()) return std::nullopt;
  return *it;
}

bool FunctionCode::has_unproven_jump() const {
  return std::ranges::any_of(
      indirect, [](const IndirectSite& s) { return s.verdict == IndirectJump::kUnproven; });
}

std::optional<std::size_t> FunctionCode::find(LinkAddr a) const {
  const auto it = std::ranges::lower_bound(instructions, a.value(), {}, &Instruction::address);
  if (it == instructions.end() || it->address != a.value()) return std::nullopt;
  return static_cast<std::size_t>(it - instructions.begin());
}

FunctionCode analyze_function(const ModuleCode& module, CodeRange function,
                              std::span<const CodeRange> other_parts) {
  return Analysis(module, function, other_parts).run();
}

}  // namespace trapline::isa
