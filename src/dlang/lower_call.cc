// Lowering's part for subroutines.

#include <net/if_arp.h>
#include <netinet/in.h>

#include "dlang/lowerer.h"
#include "plan/layout.h"

namespace trapline::dlang {
namespace {

using plan::kNoReg;
using plan::Op;
using plan::Routine;

// The routines whose operands are the call's: strings and numbers, some of which may be left out.
std::optional<Routine> text_routine(FunctionId id) {
  switch (id) {
    case FunctionId::kStrchr:
      return Routine::kStrchr;
    case FunctionId::kStrrchr:
      return Routine::kStrrchr;
    case FunctionId::kStrstr:
      return Routine::kStrstr;
    case FunctionId::kSubstr:
      return Routine::kSubstr;
    case FunctionId::kIndex:
      return Routine::kIndex;
    case FunctionId::kRindex:
      return Routine::kRindex;
    case FunctionId::kBasename:
      return Routine::kBasename;
    case FunctionId::kDirname:
      return Routine::kDirname;
    case FunctionId::kCleanpath:
      return Routine::kCleanpath;
    case FunctionId::kLltostr:
      return Routine::kLltostr;
    case FunctionId::kStrtoll:
      return Routine::kStrtoll;
    case FunctionId::kJson:
      return Routine::kJson;
    case FunctionId::kToLower:
      return Routine::kToLower;
    case FunctionId::kToUpper:
      return Routine::kToUpper;
    case FunctionId::kProgenyof:
      return Routine::kProgenyof;
    default:
      return std::nullopt;
  }
}

}  // namespace

plan::Reg Lowerer::call_routine(Routine routine, std::vector<Reg> operands) {
  const plan::RoutineInfo& info = plan::routine_info(routine);
  const Reg dst = emit_value(Op::kCall);
  plan::Instruction& call = clause_.code.back();
  call.immediate = static_cast<std::int64_t>(routine);
  for (const Reg reg : operands) call.operands.push_back({reg, {}});
  if (info.result == 't') call.scratch = allocate_scratch(program_.strsize);
  return dst;
}

plan::Reg Lowerer::lower_text_call(const Node& node) {
  const Routine routine = *text_routine(node.function->id);
  const plan::RoutineInfo& info = plan::routine_info(routine);
  std::vector<Reg> operands;
  for (const char kind : info.operands) {
    if (kind == '?') continue;
    const std::size_t i = operands.size();
    if (i >= node.operands.size()) {
      // A base that is left out is 10.
      const bool is_base = routine == Routine::kLltostr || routine == Routine::kStrtoll;
      operands.push_back(is_base ? constant(10) : kNoReg);
      continue;
    }
    const Reg value = kind == 't' ? lower_string(*node.operands[i]) : lower(*node.operands[i]);
    if (value == kNoReg) return kNoReg;
    operands.push_back(value);
  }
  return call_routine(routine, std::move(operands));
}

std::uint32_t Lowerer::token_state() {
  if (token_state_ == plan::kNone) {
    plan::Variable variable;
    variable.name = "strtok()";
    variable.scope = plan::Scope::kThis;
    variable.type.kind = plan::ValueKind::kBytes;
    variable.type.is_signed = false;
    variable.type.size = plan::token_state_size(program_.strsize);
    token_state_ = static_cast<std::uint32_t>(program_.variables.size());
    program_.variables.push_back(std::move(variable));
  }
  return token_state_;
}

plan::Reg Lowerer::lower_token(const Node& node) {
  const Reg text = lower_string(*node.operands[0]);
  const Reg delimiters = lower_string(*node.operands[1]);
  if (text == kNoReg || delimiters == kNoReg) return kNoReg;
  const std::uint32_t variable = token_state();
  const Reg state = emit_value(Op::kLoad);
  clause_.code.back().variable = variable;
  return call_routine(Routine::kStrtok, {text, delimiters, state});
}

// What takes addresses: bcopy() and its like, and the subroutines that print addresses of networks.
plan::Reg Lowerer::lower_memory_call(const Node& node) {
  std::vector<Reg> arguments;
  const bool is_text = node.function->id == FunctionId::kCopyoutstr;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const Node& operand = *node.operands[i];
    arguments.push_back(is_text && i == 0 ? lower_string(operand) : lower(operand));
    if (arguments.back() == kNoReg) return kNoReg;
  }
  const auto copy = [&](Op op, std::size_t from, std::size_t to, std::size_t size) {
    plan::Instruction& instruction = emit(op);
    instruction.a = arguments[from];
    instruction.b = arguments[size];
    instruction.operands.push_back({arguments[to], {}});
    return arguments[to];
  };
  // The bytes of an address of one of two kinds; none of any other kind, which the routine refuses.
  struct Kind {
    std::uint64_t number;
    std::uint64_t size;
  };
  const auto address = [&](Kind few, Kind many) {
    const auto size = [&](Kind kind) {
      return emit_value(Op::kMul, emit_value(Op::kEqual, arguments[0], constant(kind.number)),
                        constant(kind.size));
    };
    const Reg one = size(few);
    return copy_in(arguments[1], emit_value(Op::kAdd, one, size(many)), many.size);
  };
  switch (node.function->id) {
    case FunctionId::kBcopy:
      return copy(Op::kCopyMemory, 0, 1, 2);
    case FunctionId::kCopyinto:
      return copy(Op::kCopyMemory, 0, 2, 1);
    case FunctionId::kCopyout:
      program_.destructive = true;
      return copy(Op::kCopyOut, 0, 1, 2);
    case FunctionId::kCopyoutstr:
      program_.destructive = true;
      return copy(Op::kCopyOutString, 0, 1, 2);
    case FunctionId::kInetNtoa:
      return call_routine(Routine::kInetNtoa, {copy_in(arguments[0], 4)});
    case FunctionId::kInetNtoa6: {
      const Reg strict = arguments.size() > 1 ? arguments[1] : constant(0);
      return call_routine(Routine::kInetNtoa6, {copy_in(arguments[0], 16), strict});
    }
    case FunctionId::kInetNtop:
      return call_routine(Routine::kInetNtop,
                          {arguments[0], address({AF_INET, 4}, {AF_INET6, 16})});
    default:
      return call_routine(Routine::kLinkNtop,
                          {arguments[0], address({ARPHRD_ETHER, 6}, {ARPHRD_INFINIBAND, 20})});
  }
}

plan::Reg Lowerer::lower_call(const Node& node) {
  const auto argument = [&](std::size_t i) { return lower(*node.operands[i]); };
  const auto swapped = [&](std::uint8_t size) {
    const Reg value = argument(0);
    if (value == kNoReg) return kNoReg;
    const Reg dst = emit_value(Op::kByteSwap, value);
    clause_.code.back().size = size;
    return dst;
  };
  switch (node.function->id) {
    case FunctionId::kAlloca: {
      const Reg size = argument(0);
      return size == kNoReg ? kNoReg : emit_value(Op::kAlloca, size);
    }
    case FunctionId::kCopyin: {
      const Reg address = argument(0);
      const Reg size = argument(1);
      if (address == kNoReg || size == kNoReg) return kNoReg;
      return emit_value(Op::kCopyIn, address, size);
    }
    case FunctionId::kCopyinstr: {
      const Reg address = argument(0);
      if (address == kNoReg) return kNoReg;
      if (node.operands.size() == 1) return copy_string(address, std::nullopt);
      const Reg limit = argument(1);
      if (limit == kNoReg) return kNoReg;
      const Reg dst = emit_value(Op::kCopyInString, address, limit);
      clause_.code.back().scratch = allocate_scratch(program_.strsize);
      return dst;
    }
    case FunctionId::kStrlen: {
      const Reg text = lower_string(*node.operands[0]);
      return text == kNoReg ? kNoReg : emit_value(Op::kStringLength, text);
    }
    case FunctionId::kStrjoin: {
      const Reg left = lower_string(*node.operands[0]);
      const Reg right = lower_string(*node.operands[1]);
      if (left == kNoReg || right == kNoReg) return kNoReg;
      const Reg dst = emit_value(Op::kStringJoin, left, right);
      clause_.code.back().scratch = allocate_scratch(program_.strsize);
      return dst;
    }
    case FunctionId::kStrtok:
      return lower_token(node);
    case FunctionId::kSwap16:
      return swapped(2);
    case FunctionId::kSwap32:
      return swapped(4);
    case FunctionId::kSwap64:
      return swapped(8);
    // A device number of Linux: 12 bits of major, 20 of minor.
    case FunctionId::kGetmajor: {
      const Reg device = argument(0);
      if (device == kNoReg) return kNoReg;
      return emit_value(Op::kAnd, emit_value(Op::kShiftRight, device, constant(20)),
                        constant(0xfff));
    }
    case FunctionId::kGetminor: {
      const Reg device = argument(0);
      return device == kNoReg ? kNoReg : emit_value(Op::kAnd, device, constant(0xfffff));
    }
    case FunctionId::kRand: {
      const Reg dst = emit_value(Op::kBuiltin);
      clause_.code.back().immediate = static_cast<std::int64_t>(plan::Builtin::kRandom);
      return dst;
    }
    case FunctionId::kSpeculation:
      program_.speculations = request_.speculations;
      return emit_value(Op::kSpeculation);
    case FunctionId::kBcopy:
    case FunctionId::kCopyinto:
    case FunctionId::kCopyout:
    case FunctionId::kCopyoutstr:
    case FunctionId::kInetNtoa:
    case FunctionId::kInetNtoa6:
    case FunctionId::kInetNtop:
    case FunctionId::kLinkNtop:
      return lower_memory_call(node);
    default:
      break;
  }
  if (text_routine(node.function->id)) return lower_text_call(node);
  return unsupported(node.range, std::string(node.function->name) + "()");
}

}  // namespace trapline::dlang
