// kCall: the subroutines. What they compute is in wire/text.h; here their operands are checked.

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "interp/evaluator.h"
#include "plan/layout.h"
#include "wire/text.h"
#include "wire/text_json.h"

namespace trapline::interp {

using plan::Fault;
using plan::Instruction;
using plan::Routine;

namespace {

constexpr std::uint64_t kEthernet = 1;     // ARPHRD_ETHER
constexpr std::uint64_t kInfiniband = 32;  // ARPHRD_INFINIBAND

const wire::TextByte* bytes_of(const std::string& text) {
  return reinterpret_cast<const wire::TextByte*>(text.c_str());
}
wire::TextByte* bytes_of(std::span<std::byte> memory) {
  return reinterpret_cast<wire::TextByte*>(memory.data());
}

}  // namespace

bool Evaluator::call(const Instruction& in) {
  if (in.immediate < 0 || in.immediate >= static_cast<std::int64_t>(plan::kRoutines))
    return malformed();
  const auto routine = static_cast<Routine>(in.immediate);
  const plan::RoutineInfo& info = plan::routine_info(routine);
  std::span<std::byte> out;
  if (info.result == 't') {
    const auto address = string_room(in);
    if (!address) return fault(Fault::kNoScratch);
    const auto room = resolve(*address, program_.strsize);
    if (!room) return malformed();
    out = *room;
  }
  if (routine == Routine::kStrtok) return token(in, out);
  if (routine == Routine::kProgenyof) {
    if (in.operands.size() != 1) return malformed();
    const auto pid = static_cast<std::int64_t>(get(in.operands[0].reg));
    return set(in.dst, environment_.is_progeny_of(pid) ? 1 : 0);
  }
  if (info.operands.find('a') != std::string_view::npos) return call_with_bytes(in, out);
  std::vector<std::string> texts;
  std::size_t i = 0;
  for (const char kind : info.operands) {
    if (kind == '?') continue;
    if (i >= in.operands.size()) return malformed();
    if (kind == 't') {
      auto text = text_operand(in.operands[i].reg);
      if (!text) return false;
      texts.push_back(std::move(*text));
    }
    ++i;
  }
  return call_with_texts(in, out, texts);
}

bool Evaluator::call_with_texts(const Instruction& in, std::span<std::byte> out,
                                std::span<const std::string> texts) {
  const std::uint64_t size = program_.strsize;
  const auto number = [&](std::size_t i) { return get(in.operands[i].reg); };
  const auto is_there = [&](std::size_t i) { return in.operands[i].reg != plan::kNoReg; };
  const auto text = [&](std::size_t i) { return bytes_of(texts[i]); };
  // A string that is part of the first one, from `at` on; NULL: it was not found.
  const auto rest = [&](std::int64_t at) {
    if (at < 0) return set(in.dst, 0);
    wire::text_copy(bytes_of(out), text(0) + at, size, size);
    return set(in.dst, *string_room(in));
  };
  const auto made = [&] { return set(in.dst, *string_room(in)); };
  switch (static_cast<Routine>(in.immediate)) {
    case Routine::kStrchr:
    case Routine::kStrrchr: {
      const bool last = static_cast<Routine>(in.immediate) == Routine::kStrrchr;
      return rest(
          wire::text_find_byte(text(0), static_cast<wire::TextByte>(number(1)), last, size));
    }
    case Routine::kStrstr:
      return rest(wire::text_index(text(0), text(1), 0, size));
    case Routine::kJson:
      return wire::text_json(bytes_of(out), text(0), text(1), size) ? made() : set(in.dst, 0);
    case Routine::kSubstr: {
      const bool counted = is_there(2);
      wire::text_substr(bytes_of(out), text(0), static_cast<std::int64_t>(number(1)),
                        counted ? static_cast<std::int64_t>(number(2)) : 0, counted, size);
      return made();
    }
    case Routine::kIndex: {
      const std::int64_t from = is_there(2) ? static_cast<std::int64_t>(number(2)) : 0;
      return set(in.dst,
                 static_cast<std::uint64_t>(wire::text_index(text(0), text(1), from, size)));
    }
    case Routine::kRindex: {
      const auto from =
          is_there(2) ? static_cast<std::int64_t>(number(2)) : static_cast<std::int64_t>(size);
      return set(in.dst,
                 static_cast<std::uint64_t>(wire::text_rindex(text(0), text(1), from, size)));
    }
    case Routine::kBasename:
      wire::text_basename(bytes_of(out), text(0), size);
      return made();
    case Routine::kDirname:
      wire::text_dirname(bytes_of(out), text(0), size);
      return made();
    case Routine::kCleanpath:
      wire::text_cleanpath(bytes_of(out), text(0), size);
      return made();
    case Routine::kLltostr:
      if (number(1) < wire::kMinTextBase || number(1) > wire::kMaxTextBase)
        return fault(Fault::kIllegalOperation);
      wire::text_from_number(bytes_of(out), static_cast<std::int64_t>(number(0)), number(1), size);
      return made();
    case Routine::kStrtoll:
      if (number(1) < wire::kMinTextBase || number(1) > wire::kMaxTextBase)
        return fault(Fault::kIllegalOperation);
      return set(in.dst,
                 static_cast<std::uint64_t>(wire::text_to_number(text(0), number(1), size)));
    case Routine::kToLower:
    case Routine::kToUpper: {
      const bool upper = static_cast<Routine>(in.immediate) == Routine::kToUpper;
      wire::text_change_case(bytes_of(out), text(0), upper, size);
      return made();
    }
    default:
      return malformed();
  }
}

bool Evaluator::call_with_bytes(const Instruction& in, std::span<std::byte> out) {
  const std::uint64_t size = program_.strsize;
  const auto number = [&](std::size_t i) { return get(in.operands[i].reg); };
  const auto bytes = [&](std::size_t i, std::uint64_t count) -> const wire::TextByte* {
    const auto memory = resolve(number(i), count);
    return memory ? bytes_of(*memory) : nullptr;
  };
  const auto routine = static_cast<Routine>(in.immediate);
  const std::size_t needed = routine == Routine::kInetNtoa ? 1 : 2;
  if (in.operands.size() != needed) return malformed();
  const wire::TextByte* from = nullptr;
  switch (routine) {
    case Routine::kInetNtoa:
      from = bytes(0, 4);
      if (from != nullptr) wire::text_ipv4(bytes_of(out), from, size);
      break;
    case Routine::kInetNtoa6:
      from = bytes(0, 16);
      if (from != nullptr) wire::text_ipv6(bytes_of(out), from, number(1) != 0, size);
      break;
    case Routine::kInetNtop:
      if (number(0) != AF_INET && number(0) != AF_INET6) return fault(Fault::kIllegalOperation);
      from = bytes(1, number(0) == AF_INET ? 4 : 16);
      if (from == nullptr) break;
      if (number(0) == AF_INET) {
        wire::text_ipv4(bytes_of(out), from, size);
      } else {
        wire::text_ipv6(bytes_of(out), from, true, size);
      }
      break;
    case Routine::kLinkNtop: {
      if (number(0) != kEthernet && number(0) != kInfiniband)
        return fault(Fault::kIllegalOperation);
      const std::uint64_t count = number(0) == kEthernet ? 6 : 20;
      from = bytes(1, count);
      if (from != nullptr) wire::text_link(bytes_of(out), from, count, size);
      break;
    }
    default:
      return malformed();
  }
  if (from == nullptr) return malformed();
  return set(in.dst, *string_room(in));
}

bool Evaluator::token(const Instruction& in, std::span<std::byte> out) {
  if (in.operands.size() != 3) return malformed();
  const auto memory = resolve_writable(get(in.operands[2].reg),
                                       sizeof(wire::TokenState) + std::uint64_t{program_.strsize});
  if (!memory || reinterpret_cast<std::uintptr_t>(memory->data()) % 8 != 0) return malformed();
  auto* state = reinterpret_cast<wire::TokenState*>(memory->data());
  std::optional<std::string> text;
  if (get(in.operands[0].reg) != 0) {
    text = text_operand(in.operands[0].reg);
    if (!text) return false;
  } else if (state->next == 0) {
    return fault(Fault::kBadAddress, 0);
  }
  const auto delimiters = text_operand(in.operands[1].reg);
  if (!delimiters) return false;
  const bool found = wire::text_token(bytes_of(out), text ? bytes_of(*text) : nullptr,
                                      bytes_of(*delimiters), state, program_.strsize);
  return set(in.dst, found ? *string_room(in) : 0);
}

}  // namespace trapline::interp
