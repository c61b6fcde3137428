#include "isa/x86_64/verify.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "isa/x86_64/decode.h"
#include "isa/x86_64/stack.h"
#include "isa/x86_64/zydis_decoder.h"

namespace trapline::isa {
namespace {

constexpr std::size_t kMaxInstructions = 1 << 20;
constexpr std::size_t kMaxCallDepth = 64;
constexpr std::int64_t kReturnAddress = 8;

// Why this instruction may not be in a body; nullptr: it may.
const char* forbidden_kind(const Instruction& i, SystemCalls calls) {
  switch (i.kind) {
    case Kind::kCallIndirect:
      return "an indirect call";
    case Kind::kJumpIndirect:
      return "an indirect jump";
    case Kind::kSyscall:
      return calls == SystemCalls::kAllowed ? nullptr : "a system call that is not planned";
    case Kind::kInt3:
    case Kind::kTrap:
      return "a trap instruction";
    case Kind::kPrivileged:
      return "a privileged instruction";
    case Kind::kTransaction:
      return "a transaction";
    default:
      return nullptr;
  }
}

const char* forbidden_mnemonic(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_PUSHF:
    case ZYDIS_MNEMONIC_PUSHFQ:
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFQ:
      return "pushf or popf";
    case ZYDIS_MNEMONIC_STD:
      return "std";
    case ZYDIS_MNEMONIC_SYSENTER:
      return "sysenter";
    case ZYDIS_MNEMONIC_STMXCSR:
    case ZYDIS_MNEMONIC_LDMXCSR:
    case ZYDIS_MNEMONIC_VZEROALL:
    case ZYDIS_MNEMONIC_VZEROUPPER:
    case ZYDIS_MNEMONIC_EMMS:
    case ZYDIS_MNEMONIC_FEMMS:
    case ZYDIS_MNEMONIC_MOVNTI:  // general, but a sign of vector code gone astray: nothing of ours
                                 // streams
      return "vector state";
    case ZYDIS_MNEMONIC_WRFSBASE:
    case ZYDIS_MNEMONIC_WRGSBASE:
    case ZYDIS_MNEMONIC_SWAPGS:
      return "a write of fs or gs";
    case ZYDIS_MNEMONIC_ENTER:
      return "enter";
    case ZYDIS_MNEMONIC_XABORT:
    case ZYDIS_MNEMONIC_XEND:
      return "a transaction";
    default:
      return nullptr;
  }
}

bool forbidden_class(ZydisRegister reg) {
  switch (ZydisRegisterGetClass(reg)) {
    case ZYDIS_REGCLASS_GPR8:
    case ZYDIS_REGCLASS_GPR16:
    case ZYDIS_REGCLASS_GPR32:
    case ZYDIS_REGCLASS_GPR64:
    case ZYDIS_REGCLASS_FLAGS:
    case ZYDIS_REGCLASS_IP:
    case ZYDIS_REGCLASS_SEGMENT:
      return false;
    default:
      // MXCSR, XCR0 and the like have no class; so does "none".
      return reg != ZYDIS_REGISTER_NONE;
  }
}

const char* forbidden_state(const ZydisInstruction& z) {
  constexpr ZydisInstructionAttributes kState =
      ZYDIS_ATTRIB_FPU_STATE_CR | ZYDIS_ATTRIB_FPU_STATE_CW | ZYDIS_ATTRIB_XMM_STATE_CR |
      ZYDIS_ATTRIB_XMM_STATE_CW;
  if ((z.instruction.attributes & kState) != 0) return "x87 or vector state";
  switch (z.instruction.meta.category) {
    case ZYDIS_CATEGORY_XSAVE:
    case ZYDIS_CATEGORY_XSAVEOPT:
    case ZYDIS_CATEGORY_X87_ALU:
    case ZYDIS_CATEGORY_FCMOV:
    case ZYDIS_CATEGORY_MMX:
    case ZYDIS_CATEGORY_AMX_TILE:
      return "x87 or vector state";
    case ZYDIS_CATEGORY_CET:
      if (z.instruction.mnemonic == ZYDIS_MNEMONIC_ENDBR64) break;
      return "a shadow stack instruction";
    case ZYDIS_CATEGORY_ENQCMD:
    case ZYDIS_CATEGORY_KEYLOCKER:
    case ZYDIS_CATEGORY_KEYLOCKER_WIDE:
    case ZYDIS_CATEGORY_MOVDIR:
    case ZYDIS_CATEGORY_PT:
    case ZYDIS_CATEGORY_SGX:
    case ZYDIS_CATEGORY_UINTR:
    case ZYDIS_CATEGORY_WAITPKG:
      return "an instruction that no body has use for";
    default:
      break;
  }
  for (std::size_t n = 0; n < z.instruction.operand_count; ++n) {
    const ZydisDecodedOperand& operand = z.operands[n];
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      if (forbidden_class(operand.reg.value)) return "a register that is not a general one";
      // Hidden ones are those of syscall, which leaves the segments as user code knows them.
      const bool written = (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
                           operand.visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN;
      if (written && ZydisRegisterGetClass(operand.reg.value) == ZYDIS_REGCLASS_SEGMENT) {
        return "a write of a segment register";
      }
    } else if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      if (forbidden_class(operand.mem.base) || forbidden_class(operand.mem.index)) {
        return "a vector index";
      }
    }
  }
  return nullptr;
}

class Verifier {
 public:
  explicit Verifier(const VerifyRequest& request) : request_(request) {}

  Result<VerifyReport> run() {
    for (const OffsetRange& range : request_.code) {
      if (range.end < range.begin || range.end > request_.blob.size()) {
        return Error(ErrorCode::kInternal, "compiled code: a code range outside the object");
      }
    }
    std::deque<std::size_t> todo(request_.entries.begin(), request_.entries.end());
    while (!todo.empty()) {
      const std::size_t entry = todo.front();
      todo.pop_front();
      if (functions_.contains(entry)) continue;
      TL_TRY(walk(entry));
      for (const Call& call : functions_[entry].calls) todo.push_back(call.callee);
    }
    for (const std::size_t entry : request_.entries) {
      TL_TRY_ASSIGN(const std::int64_t used, deepest(entry, 0));
      report_.max_stack = std::max(report_.max_stack, static_cast<std::size_t>(used));
      if (report_.max_stack > request_.max_stack) {
        return fail(entry, "needs " + std::to_string(report_.max_stack) + " bytes of stack, over " +
                               std::to_string(request_.max_stack));
      }
    }
    report_.functions = functions_.size();
    return report_;
  }

 private:
  struct Call {
    std::size_t callee = 0;
    std::int64_t depth = 0;  // bytes in use at the call, its return address included
  };
  struct Function {
    std::int64_t own = 0;  // deepest use by its own instructions
    std::vector<Call> calls;
    std::int64_t total = -1;  // with callees; -1: not known yet
    bool open = false;        // being computed: met again, it is recursion
  };

  Error fail(std::size_t offset, const std::string& why) const {
    std::string text = "compiled code at +0x";
    char buffer[24];
    std::snprintf(buffer, sizeof(buffer), "%zx: ", offset);
    text += buffer + why;
    const std::size_t begin = std::min(offset, request_.blob.size());
    const std::size_t size = std::min<std::size_t>(kMaxInstruction, request_.blob.size() - begin);
    text += " (";
    for (const std::byte b : request_.blob.subspan(begin, size)) {
      std::snprintf(buffer, sizeof(buffer), " %02x", std::to_integer<unsigned>(b));
      text += buffer;
    }
    return {ErrorCode::kInternal, text + " )"};
  }

  // The code from `offset` to the end of its range; empty: not code.
  std::span<const std::byte> code_at(std::uint64_t offset) const {
    for (const OffsetRange& range : request_.code) {
      if (offset >= range.begin && offset < range.end) {
        return request_.blob.subspan(offset, range.end - offset);
      }
    }
    return {};
  }

  Result<Instruction> check_instruction(std::size_t offset) {
    const auto bytes = code_at(offset);
    if (bytes.empty()) return fail(offset, "control leaves the code");
    const auto i = decode(bytes, offset);
    ZydisInstruction z;
    if (!i || !zydis_decode(bytes, z)) return fail(offset, "undecodable");
    if (const char* why = forbidden_kind(*i, request_.system_calls)) return fail(offset, why);
    if (const char* why = forbidden_mnemonic(z.instruction.mnemonic)) return fail(offset, why);
    if (const char* why = forbidden_state(z)) return fail(offset, why);
    if (i->relative_size == 2 || (i->relative_size != 0 && i->operand_prefix)) {
      return fail(offset, "a 16-bit branch");
    }
    return *i;
  }

  // One function: all instructions reachable from its entry without following calls. A jump into
  // another function is a tail call and simply followed.
  Result<> walk(std::size_t entry) {
    Function function;
    std::map<std::size_t, StackState> seen;
    std::deque<std::pair<std::uint64_t, StackState>> todo;
    todo.emplace_back(entry, StackState{.rsp = 0, .rbp = {}});
    while (!todo.empty()) {
      const auto [offset, state] = todo.front();
      todo.pop_front();
      const auto [known, is_new] = seen.emplace(offset, state);
      if (!is_new) {
        if (known->second.rsp != state.rsp) return fail(offset, "different stack depths meet");
        // Paths may differ in whether rbp is a frame pointer; then it is none.
        if (known->second.rbp == state.rbp || !known->second.rbp) continue;
        known->second.rbp.reset();
      }
      if (++steps_ > kMaxInstructions) return fail(offset, "too much code");
      TL_TRY_ASSIGN(const Instruction i, check_instruction(offset));
      TL_TRY(step(i, known->second, function, todo));
    }
    report_.instructions += seen.size();
    functions_.emplace(entry, std::move(function));
    return {};
  }

  Result<> step(const Instruction& i, const StackState& state, Function& function,
                std::deque<std::pair<std::uint64_t, StackState>>& todo) {
    const StackState next = apply_stack(i, state);
    if (!next.rsp) return fail(i.address, "the stack pointer cannot be followed");
    if (*next.rsp > 0) return fail(i.address, "pops more than was pushed");
    function.own = std::max(function.own, -*next.rsp);
    if (i.kind == Kind::kSyscall) ++report_.system_calls;
    if (i.kind == Kind::kRet) {
      if (*state.rsp != 0) return fail(i.address, "returns with a wrong stack pointer");
      if (i.has_immediate) return fail(i.address, "ret with an operand");
      return {};
    }
    if (i.kind == Kind::kCallDirect) {
      if (code_at(i.target).empty()) return fail(i.address, "calls out of the object");
      const std::int64_t depth = -*state.rsp + kReturnAddress;
      function.own = std::max(function.own, depth);
      function.calls.push_back({static_cast<std::size_t>(i.target), depth});
      // Callees keep rbp (every convention of ours does), as they keep rsp.
      todo.emplace_back(i.end(), state);
      return {};
    }
    if (i.is_direct_branch()) {
      if (code_at(i.target).empty()) return fail(i.address, "jumps out of the code");
      todo.emplace_back(i.target, next);
    }
    if (!i.ends_flow()) todo.emplace_back(i.end(), next);
    return {};
  }

  // Recursion here follows the call graph of checked code, whose depth is bounded.
  Result<std::int64_t> deepest(std::size_t entry, std::size_t level) {
    Function& function = functions_[entry];
    if (function.total >= 0) return function.total;
    if (function.open) return fail(entry, "recursion");
    if (level > kMaxCallDepth) return fail(entry, "calls nest too deep");
    function.open = true;
    std::int64_t total = function.own;
    for (const Call& call : function.calls) {
      TL_TRY_ASSIGN(const std::int64_t below, deepest(call.callee, level + 1));
      total = std::max(total, call.depth + below);
    }
    function.open = false;
    function.total = total;
    return total;
  }

  const VerifyRequest& request_;
  VerifyReport report_;
  std::map<std::size_t, Function> functions_;
  std::size_t steps_ = 0;
};

}  // namespace

Result<VerifyReport> verify_code(const VerifyRequest& request) { return Verifier(request).run(); }

}  // namespace trapline::isa
