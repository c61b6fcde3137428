#include "isa/x86_64/encode.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "isa/x86_64/assembler.h"
#include "isa/x86_64/relocate.h"

namespace trapline::isa {
namespace {

constexpr std::uint16_t kR10R11 = 1u << 10 | 1u << 11;

// Of the code below; a test holds trampolines against them.
constexpr std::size_t kMaxPointCode = 96;
constexpr std::size_t kMaxGoArguments = 80;
constexpr std::size_t kMaxStaticArguments = 64 + kMaxOperands * (kMaxOperandCode + 1);
constexpr std::size_t kMaxInstructionCode =
    36;  // loop over a far jump, with the skip of a conditional tail
constexpr std::size_t kMaxJump = 14;

constexpr std::uint32_t kRedZone = 128;

// A tail jump through r10 or r11 needs them.
Save effective_save(const TrampolinePoint& point, const Instruction& i) {
  const bool needed = point.kind == PointKind::kTail && (i.reads & kR10R11) != 0;
  return needed && point.save == Save::kNothing ? Save::kRegisters : point.save;
}

bool is_go_entry(PointKind kind) {
  return kind == PointKind::kGoEntry || kind == PointKind::kGoStackEntry;
}

bool brings_arguments(PointKind kind) { return is_go_entry(kind) || kind == PointKind::kStatic; }

bool passes_rax(PointKind kind) {
  return kind == PointKind::kReturn || kind == PointKind::kTail || kind == PointKind::kFallThrough;
}

class Encoder {
 public:
  explicit Encoder(const TrampolineRequest& request)
      : request_(request),
        plan_(*request.plan),
        out_(request.address),
        relocator_(out_, plan_, request.bias) {
    result_.stack_adjust.resize(request.points.size());
  }

  Result<Trampoline> run() {
    TL_TRY(check_points());
    for (std::size_t n = 0; n < plan_.displaced.size(); ++n) TL_TRY(displaced(n));
    if (!plan_.displaced.back().ends_flow() && !is_relocatable_call(plan_.displaced.back())) {
      out_.jump(request_.bias.to_remote(plan_.site + plan_.code_size));
    }
    relocator_.finish();
    result_.bytes = out_.take();
    return std::move(result_);
  }

 private:
  Result<> check_points() const {
    if (plan_.displaced.empty()) return Error(ErrorCode::kInternal, "a site without instructions");
    for (const TrampolinePoint& point : request_.points) {
      const bool found = std::ranges::any_of(plan_.displaced, [&](const Instruction& i) {
        return i.address - plan_.site.value() == point.offset;
      });
      if (!found) return Error(ErrorCode::kInternal, "a probe point between instructions");
      if (point.kind == PointKind::kStatic && point.save != Save::kAll)
        return Error(ErrorCode::kInternal, "operands of registers that are not kept");
    }
    return {};
  }

  Result<> displaced(std::size_t n) {
    const Instruction& i = plan_.displaced[n];
    const auto offset = static_cast<std::uint8_t>(i.address - plan_.site.value());
    relocator_.mark(n);
    const std::size_t start = out_.offset();
    points(offset, i, When::kAlways);
    const std::size_t instruction = out_.offset();
    result_.pcs.push_back({.site_offset = offset,
                           .trampoline_offset = static_cast<std::uint16_t>(start),
                           .instruction_offset = static_cast<std::uint16_t>(instruction)});
    if (has_conditional_tail(offset, i)) {
      conditional_tail(offset, i);
      return {};
    }
    return relocator_.emit(n);
  }

  static bool is_conditional(const Instruction& i) {
    return i.kind == Kind::kJumpConditional || i.kind == Kind::kLoop;
  }

  bool has_conditional_tail(std::uint8_t offset, const Instruction& i) const {
    return is_conditional(i) && std::ranges::any_of(request_.points, [&](const TrampolinePoint& p) {
             return p.offset == offset && p.kind == PointKind::kTail;
           });
  }

  // jcc target  becomes  jncc over; probe; jmp target; over:
  // jrcxz target        jrcxz +5; jmp over; probe; jmp target; over:
  void conditional_tail(std::uint8_t offset, const Instruction& i) {
    if (i.kind == Kind::kJumpConditional) {
      out_.bytes({0x0f, static_cast<std::uint8_t>(0x80 | (i.condition ^ 1))});
    } else {
      const auto original = std::span(plan_.original).subspan(offset, i.relative_offset);
      out_.bytes(original);
      out_.bytes({5, 0xe9});
    }
    const std::size_t over = out_.offset();
    out_.u32(0);
    points(offset, i, When::kTaken);
    relocator_.jump_to(request_.bias.to_remote(LinkAddr(i.target)));
    out_.patch_rel32(over, out_.offset());
  }

  enum class When : std::uint8_t { kAlways, kTaken };

  // The points at one instruction, in the request's order; those of a conditional tail jump only
  // where it is taken.
  void points(std::uint8_t offset, const Instruction& i, When when) {
    for (std::size_t n = 0; n < request_.points.size(); ++n) {
      const TrampolinePoint& point = request_.points[n];
      if (point.offset != offset) continue;
      const bool taken_only = point.kind == PointKind::kTail && is_conditional(i);
      if (taken_only != (when == When::kTaken)) continue;
      result_.stack_adjust[n] = call_body(point, effective_save(point, i));
    }
  }

  // Returns the bytes pushed before the call.
  std::uint32_t call_body(const TrampolinePoint& point, Save save) {
    std::uint32_t pushed = 0;
    if (save == Save::kAll) {
      out_.bytes({0x48, 0x8d, 0x64, 0x24, 0x80});        // lea rsp, [rsp-128]
      out_.bytes({0x50, 0x9f, 0x0f, 0x90, 0xc0, 0x50});  // push rax; lahf; seto al; push rax
      pushed += kRedZone + 16;
    }
    if (save != Save::kNothing) {
      out_.bytes({0x41, 0x52, 0x41, 0x53});  // push r10; push r11
      pushed += 16;
    }
    if (save == Save::kAll) out_.bytes({0x48, 0x8b, 0x44, 0x24, 0x18});  // mov rax, [rsp+24]
    if (passes_rax(point.kind)) {
      out_.bytes({0x57, 0x48, 0x89, 0xc7});  // push rdi; mov rdi, rax
      pushed += 8;
    }
    std::uint32_t adjust = pushed;
    if (is_go_entry(point.kind)) adjust = push_go_arguments(point.kind, pushed);
    if (point.kind == PointKind::kStatic) adjust = push_operands(point.operands, pushed);
    out_.load_address_r10(point.probe_site);
    out_.call_clobbering_r11(point.body);
    if (brings_arguments(point.kind)) pop_arguments(point.kind);
    if (passes_rax(point.kind)) out_.bytes({0x5f});                    // pop rdi
    if (save != Save::kNothing) out_.bytes({0x41, 0x5b, 0x41, 0x5a});  // pop r11; pop r10
    if (save == Save::kAll) {
      out_.bytes({0x58, 0x04, 0x7f, 0x9e, 0x58});           // pop rax; add al, 127; sahf; pop rax
      out_.bytes({0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0});  // lea rsp, [rsp+128]
    }
    return adjust;
  }

  // Where the ABI of C has a function's arguments, and the stack as that has it at its entry: the
  // return address, then the seventh and further ones. Returns the body's stack adjustment.
  std::uint32_t push_go_arguments(PointKind kind, std::uint32_t pushed) {
    push_argument_registers();
    pushed += 6 * 8;
    if (kind == PointKind::kGoStackEntry) {
      // mov REG, [rsp+n]: the first six of them; the others lie behind these as C's do.
      std::uint32_t at = pushed + 8;
      for (const auto& load :
           {std::pair(0x48, 0xbc), std::pair(0x48, 0xb4), std::pair(0x48, 0x94),
            std::pair(0x48, 0x8c), std::pair(0x4c, 0x84), std::pair(0x4c, 0x8c)}) {
        out_.bytes({static_cast<std::uint8_t>(load.first), 0x8b,
                    static_cast<std::uint8_t>(load.second), 0x24});
        out_.u32(at);
        at += 8;
      }
      return pushed + 6 * 8;
    }
    out_.bytes({0xff, 0xb4, 0x24});  // push [rsp+n]: the tenth, the first that is on the stack
    out_.u32(pushed + 8);
    out_.bytes({0x41, 0x53, 0x41, 0x52, 0x41, 0x51});  // push r11; push r10; push r9
    out_.bytes({0xff, 0xb4, 0x24});                    // push [rsp+n]: the return address
    out_.u32(pushed + 4 * 8);
    out_.bytes({0x4d, 0x89, 0xc1, 0x49, 0x89, 0xf0});  // mov r9, r8; mov r8, rsi
    out_.bytes({0x48, 0x89, 0xca, 0x48, 0x89, 0xf9});  // mov rdx, rcx; mov rcx, rdi
    out_.bytes({0x48, 0x89, 0xc7, 0x48, 0x89, 0xde});  // mov rdi, rax; mov rsi, rbx
    return 0;
  }

  // The same of a program's operands. All of them are on the stack before the first is popped into
  // a register that another may name; only rax, which lies where Save::kAll put it, and rsp differ.
  std::uint32_t push_operands(std::span<const Operand> operands, std::uint32_t pushed) {
    push_argument_registers();
    pushed += 6 * 8;
    const auto frame = [&] { return OperandFrame{pushed, pushed - kRedZone - 8, request_.bias}; };
    for (std::size_t n = kMaxOperands; n-- > 0;) {
      if (n < operands.size()) {
        load_operand_rax(out_, operands[n], frame());
        out_.bytes({0x50});  // push rax
      } else {
        out_.bytes({0x6a, 0x00});  // push 0
      }
      pushed += 8;
    }
    // pop rdi; pop rsi; pop rdx; pop rcx; pop r8; pop r9
    out_.bytes({0x5f, 0x5e, 0x5a, 0x59, 0x41, 0x58, 0x41, 0x59});
    pushed -= 6 * 8;
    out_.bytes({0xff, 0xb4, 0x24});  // push [rsp+n]: what rsp pointed to
    out_.u32(pushed);
    return 0;
  }

  void push_argument_registers() {
    // push rdi; push rsi; push rdx; push rcx; push r8; push r9
    out_.bytes({0x57, 0x56, 0x52, 0x51, 0x41, 0x50, 0x41, 0x51});
  }

  void pop_arguments(PointKind kind) {
    if (kind != PointKind::kGoStackEntry)
      out_.bytes({0x48, 0x8d, 0x64, 0x24, 5 * 8});  // lea rsp, [rsp+40]
    // pop r9; pop r8; pop rcx; pop rdx; pop rsi; pop rdi
    out_.bytes({0x41, 0x59, 0x41, 0x58, 0x59, 0x5a, 0x5e, 0x5f});
  }

  const TrampolineRequest& request_;
  const SitePlan& plan_;
  Assembler out_;
  Relocator relocator_;
  Trampoline result_;
};

Result<std::vector<std::byte>> encode_jump(RemoteAddr from, RemoteAddr trampoline) {
  Assembler out(from);
  if (!out.reaches(trampoline, kJumpSize)) {
    return Error(ErrorCode::kUnsupported, "the trampoline is out of reach of its site");
  }
  out.jump(trampoline);
  return out.take();
}

}  // namespace

Boundary boundary_of(const ModuleCode& module, const FunctionCode& function, Linkage linkage) {
  if (linkage == Linkage::kLocal || function.parts.empty() || !function.sure)
    return Boundary::kUnknown;
  return module.is_called(function.parts.front().begin) ? Boundary::kModule : Boundary::kAbi;
}

Save save_for(PointKind kind, Boundary boundary) {
  if (is_anywhere(kind)) return Save::kAll;
  switch (boundary) {
    case Boundary::kAbi:
      return Save::kNothing;
    case Boundary::kModule:
      return Save::kRegisters;
    case Boundary::kUnknown:
      break;
  }
  return Save::kAll;
}

std::size_t trampoline_bound(const SitePlan& plan, std::size_t points) {
  const auto is_go = [](const PlannedPoint& point) { return is_go_entry(point.kind); };
  const auto go = static_cast<std::size_t>(std::ranges::count_if(plan.points, is_go));
  const auto operands = static_cast<std::size_t>(
      std::ranges::count(plan.points, PointKind::kStatic, &PlannedPoint::kind));
  return plan.displaced.size() * kMaxInstructionCode + points * kMaxPointCode +
         go * kMaxGoArguments + operands * kMaxStaticArguments + kMaxJump;
}

Result<Trampoline> encode_trampoline(const TrampolineRequest& request) {
  if (request.plan == nullptr) return Error(ErrorCode::kInternal, "a trampoline without a site");
  if (trampoline_bound(*request.plan, request.points.size()) > kMaxTrampoline) {
    return Error(ErrorCode::kUnsupported, std::string(to_text(Refusal::kTooLong)));
  }
  return Encoder(request).run();
}

Result<std::vector<std::byte>> encode_patch(const SitePlan& plan, LoadBias bias,
                                            RemoteAddr trampoline) {
  Assembler out(bias.to_remote(plan.site));
  switch (plan.form) {
    case SiteForm::kTrap:
      out.bytes({0xcc});
      return out.take();
    case SiteForm::kIsland: {
      const auto distance =
          static_cast<std::int64_t>(plan.island.at - (plan.site + kShortJumpSize));
      TL_CHECK(distance >= std::numeric_limits<std::int8_t>::min() &&
               distance <= std::numeric_limits<std::int8_t>::max());
      out.bytes({0xeb, static_cast<std::uint8_t>(distance)});
      return out.take();
    }
    default:
      return encode_jump(bias.to_remote(plan.site), trampoline);
  }
}

Result<std::vector<std::byte>> encode_island(const SitePlan& plan, LoadBias bias,
                                             RemoteAddr trampoline) {
  return encode_jump(bias.to_remote(plan.island.at), trampoline);
}

}  // namespace trapline::isa
