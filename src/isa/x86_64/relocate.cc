#include "isa/x86_64/relocate.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"

namespace trapline::isa {
namespace {

constexpr std::size_t kUnmarked = ~std::size_t{0};

bool fits32(std::uint64_t from, std::uint64_t to, std::uint64_t slack) {
  const auto distance = static_cast<std::int64_t>(to - from);
  const auto margin = static_cast<std::int64_t>(slack);
  return distance >= std::numeric_limits<std::int32_t>::min() + margin &&
         distance <= std::numeric_limits<std::int32_t>::max() - margin;
}

Error out_of_reach(const Instruction& i) {
  return {ErrorCode::kUnsupported, std::string(to_text(Refusal::kOutOfReach)) +
                                       ", of the instruction at link address " +
                                       std::to_string(i.address)};
}

}  // namespace

std::optional<Refusal> unrelocatable(const Instruction& instruction) {
  switch (instruction.kind) {
    case Kind::kCallDirect:
    case Kind::kCallIndirect:
      return Refusal::kCall;
    case Kind::kSyscall:
      return Refusal::kSyscall;
    case Kind::kInt3:
    case Kind::kTrap:
      return Refusal::kTrapInstruction;
    case Kind::kPrivileged:
      return Refusal::kPrivileged;
    case Kind::kTransaction:
      return Refusal::kTransaction;
    default:
      break;
  }
  if (instruction.relative_size != 0 &&
      (instruction.operand_prefix || instruction.relative_size == 2)) {
    return Refusal::kUnrelocatable;
  }
  if (instruction.memory.rip_relative && instruction.eip_relative) return Refusal::kUnrelocatable;
  return std::nullopt;
}

bool is_relocatable_call(const Instruction& instruction) {
  if (instruction.operand_prefix || instruction.eip_relative) return false;
  if (instruction.kind == Kind::kCallDirect) return instruction.relative_size == 4;
  constexpr std::uint8_t kRsp = 4;
  return instruction.kind == Kind::kCallIndirect && instruction.memory.base != kRsp &&
         instruction.reg0 != kRsp;
}

bool in_reach(const SitePlan& plan, LoadBias bias, RemoteAddr trampoline, std::uint64_t slack) {
  const std::uint64_t site = bias.to_remote(plan.site).value();
  if (plan.form != SiteForm::kTrap && !fits32(site, trampoline.value(), slack)) return false;
  return std::ranges::all_of(plan.displaced, [&](const Instruction& i) {
    return !i.memory.rip_relative ||
           fits32(trampoline.value(), bias.to_remote(LinkAddr(i.rip_target)).value(), slack);
  });
}

Relocator::Relocator(Assembler& assembler, const SitePlan& plan, LoadBias bias)
    : out_(assembler), plan_(plan), bias_(bias), marks_(plan.displaced.size(), kUnmarked) {}

void Relocator::mark(std::size_t index) {
  TL_CHECK(index < marks_.size());
  marks_[index] = out_.offset();
}

// The index of the displaced instruction at `target`. The window's start does not count: a branch
// to it goes to the patched site, comes back here and fires its probes, as it should.
std::optional<std::size_t> Relocator::inside(RemoteAddr target) const {
  const std::uint64_t link = bias_.to_link(target).value();
  // An instruction that stays is where it was.
  const std::size_t moved = plan_.displaced.size() - (plan_.keeps_last ? 1 : 0);
  for (std::size_t n = 1; n < moved; ++n) {
    if (plan_.displaced[n].address == link) return n;
  }
  return std::nullopt;
}

void Relocator::emit_rel32_inside(std::size_t target) {
  fixups_.push_back({.at = out_.offset(), .target = target});
  out_.u32(0);
}

void Relocator::jump_to(RemoteAddr target) {
  if (const auto index = inside(target)) {
    out_.bytes({0xe9});
    emit_rel32_inside(*index);
  } else {
    out_.jump(target);
  }
}

void Relocator::emit_jcc(const Instruction& i, RemoteAddr target) {
  if (const auto index = inside(target)) {
    out_.bytes({0x0f, static_cast<std::uint8_t>(0x80 | i.condition)});
    emit_rel32_inside(*index);
  } else {
    out_.jump_if(i.condition, target);
  }
}

// loop, jrcxz: the instruction itself with another rel8, over a short jump that skips the long one.
void Relocator::emit_loop(const Instruction& i, RemoteAddr target) {
  const auto original = original_bytes(i);
  out_.bytes(original.first(i.relative_offset));
  const bool near = inside(target) || out_.reaches(target, 1 + 2 + 5);
  out_.bytes({2, 0xeb, static_cast<std::uint8_t>(near ? 5 : 14)});
  jump_to(target);
}

std::span<const std::byte> Relocator::original_bytes(const Instruction& i) const {
  const std::uint64_t at = i.address - plan_.site.value();
  TL_CHECK(at + i.length <= plan_.original.size());
  return std::span(plan_.original).subspan(at, i.length);
}

Result<> Relocator::emit_plain(const Instruction& i) {
  const auto original = original_bytes(i);
  if (!i.memory.rip_relative) {
    out_.bytes(original);
    return {};
  }
  const RemoteAddr target = bias_.to_remote(LinkAddr(i.rip_target));
  if (!out_.reaches(target, i.length)) return out_of_reach(i);
  const auto displacement = static_cast<std::uint32_t>(target - (out_.here() + i.length));
  out_.bytes(original.first(i.disp_offset));
  out_.u32(displacement);
  out_.bytes(original.subspan(i.disp_offset + 4u));
  return {};
}

// What a call does, but for where it is called from: push the address behind the original one, jump
// to the callee.
Result<> Relocator::emit_call(const Instruction& i) {
  const std::uint64_t back = bias_.to_remote(LinkAddr(i.end())).value();
  out_.bytes({0x48, 0x8d, 0x64, 0x24, 0xf8, 0xc7, 0x04, 0x24});
  out_.u32(static_cast<std::uint32_t>(back));
  out_.bytes({0xc7, 0x44, 0x24, 0x04});
  out_.u32(static_cast<std::uint32_t>(back >> 32));
  if (i.kind == Kind::kCallDirect) {
    jump_to(bias_.to_remote(LinkAddr(i.target)));
    return {};
  }
  // ff /2 (call) becomes ff /4 (jmp): the ModRM byte follows the opcode, which follows the
  // prefixes.
  const std::size_t start = out_.offset();
  TL_TRY(emit_plain(i));
  const auto original = original_bytes(i);
  std::size_t opcode = 0;
  while (opcode + 1 < original.size() && original[opcode] != std::byte{0xff}) ++opcode;
  if (opcode + 1 >= original.size() ||
      (original[opcode + 1] & std::byte{0x38}) != std::byte{0x10}) {
    return Error(ErrorCode::kUnsupported, std::string(to_text(Refusal::kCall)));
  }
  out_.replace(start + opcode + 1, (original[opcode + 1] & std::byte{0xc7}) | std::byte{0x20});
  return {};
}

Result<> Relocator::emit(std::size_t index) {
  const Instruction& i = plan_.displaced[index];
  if (marks_[index] == kUnmarked) mark(index);
  if (index + 1 == plan_.displaced.size() && is_relocatable_call(i)) return emit_call(i);
  if (const auto reason = unrelocatable(i)) {
    return Error(ErrorCode::kUnsupported, std::string(to_text(*reason)));
  }
  const RemoteAddr target = bias_.to_remote(LinkAddr(i.target));
  switch (i.kind) {
    case Kind::kJumpDirect:
      jump_to(target);
      return {};
    case Kind::kJumpConditional:
      emit_jcc(i, target);
      return {};
    case Kind::kLoop:
      emit_loop(i, target);
      return {};
    default:
      return emit_plain(i);
  }
}

void Relocator::finish() {
  for (const Fixup& fixup : fixups_) {
    TL_CHECK(marks_[fixup.target] != kUnmarked);
    out_.patch_rel32(fixup.at, marks_[fixup.target]);
  }
}

}  // namespace trapline::isa
