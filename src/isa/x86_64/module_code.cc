// ModuleCode: the sweep and the bitmaps of branch targets. See control_flow.h.

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "isa/x86_64/control_flow.h"
#include "isa/x86_64/length.h"

namespace trapline::isa {
namespace {

// How many instructions a second way of reading the same bytes is followed.
constexpr int kMaxAside = 64;

// In the count of branches to a ret: a call, an address in data, a landing pad.
constexpr std::uint32_t kOtherWay = 1u << 24;

// Few functions nest; a long way back would only be paid for by hostile input.
constexpr int kMaxNested = 16;

bool test_bit(const std::vector<std::uint64_t>& bits, std::uint64_t i) {
  return (bits[i / 64] >> (i % 64) & 1) != 0;
}
void set_bit(std::vector<std::uint64_t>& bits, std::uint64_t i) {
  bits[i / 64] |= std::uint64_t{1} << (i % 64);
}

// The first set bit in [begin, end), or end.
std::uint64_t find_bit(const std::vector<std::uint64_t>& bits, std::uint64_t begin,
                       std::uint64_t end) {
  while (begin < end) {
    const std::uint64_t word = bits[begin / 64] >> (begin % 64);
    if (word != 0) {
      return std::min(end, begin + static_cast<std::uint64_t>(std::countr_zero(word)));
    }
    begin = (begin / 64 + 1) * 64;
  }
  return end;
}

std::uint32_t last_word(std::span<const std::byte> instruction) {
  std::uint32_t value = 0;
  std::memcpy(&value, instruction.data() + instruction.size() - sizeof(value), sizeof(value));
  return value;
}

void sort_unique(std::vector<std::uint64_t>& values) {
  std::ranges::sort(values);
  const auto rest = std::ranges::unique(values);
  values.erase(rest.begin(), rest.end());
}

}  // namespace

ModuleCode::ModuleCode(ModuleInput input) : input_(std::move(input)) {
  auto& sections = input_.sections;
  std::erase_if(sections, [](const CodeSection& s) {
    return s.bytes.empty() || s.address.value() > ~std::uint64_t{0} - s.bytes.size();
  });
  std::ranges::sort(sections, {}, &CodeSection::address);
  for (const CodeSection& section : sections) {
    Marks marks;
    marks.begin = section.address.value();
    marks.end = marks.begin + section.bytes.size();
    const std::size_t words = section.bytes.size() / 64 + 1;
    marks.once.resize(words);
    marks.again.resize(words);
    marks.called.resize(words);
    marks_.push_back(std::move(marks));
  }
  std::ranges::sort(input_.functions);
  std::ranges::sort(input_.frames);
  std::ranges::sort(input_.cold);
  std::ranges::sort(input_.code_pointers);
  for (const CodeRange& f : input_.functions) starts_.push_back(f.begin.value());
  for (const CodeRange& f : input_.frames) starts_.push_back(f.begin.value());
  sort_unique(starts_);
  for (const std::uint64_t start : starts_) mark(start, Mark::kFixed);
  for (const LinkAddr a : input_.landing_pads) mark(a.value(), Mark::kFixed);
  for (const LinkAddr a : input_.code_pointers) mark(a.value(), Mark::kFixed);
  for (const CodeSection& section : sections) sweep(section);
  sort_unique(misplaced_);
}

const ModuleCode::Marks* ModuleCode::marks_of(std::uint64_t at) const {
  auto it = std::ranges::upper_bound(marks_, at, {}, &Marks::begin);
  if (it == marks_.begin()) return nullptr;
  --it;
  return at < it->end ? &*it : nullptr;
}

ModuleCode::Marks* ModuleCode::marks_of(std::uint64_t at) {
  return const_cast<Marks*>(std::as_const(*this).marks_of(at));
}

void ModuleCode::mark(std::uint64_t at, Mark what) {
  Marks* marks = marks_of(at);
  if (marks == nullptr) return;
  const std::uint64_t bit = at - marks->begin;
  if (what != Mark::kBranch || test_bit(marks->once, bit)) set_bit(marks->again, bit);
  set_bit(marks->once, bit);
  if (what == Mark::kCall) set_bit(marks->called, bit);
  if (is_return(LinkAddr(at))) return_branches_[at] += what == Mark::kBranch ? 1 : kOtherWay;
}

// By its first bytes: c3 ret, c2 ret imm16, f3 c3 and f2 c3 (a prefix that does nothing, or bnd).
bool ModuleCode::is_return(LinkAddr at) const {
  const auto bytes = bytes_at(at);
  const auto value = [&](std::size_t n) {
    return n < bytes.size() ? std::to_integer<unsigned>(bytes[n]) : 0;
  };
  const bool prefixed = value(0) == 0xf2 || value(0) == 0xf3;
  return value(0) == 0xc2 || value(prefixed ? 1 : 0) == 0xc3;
}

// What one instruction tells. Calls and addresses count as "again": their targets are never taken
// for private to one branch.
void ModuleCode::scan_one(std::span<const std::byte> bytes, std::uint64_t at,
                          const Scanned& scanned) {
  const std::uint64_t end = at + scanned.length;
  const auto instruction = bytes.first(scanned.length);
  if (scanned.relative_size == 4) {
    const auto rel = static_cast<std::int32_t>(last_word(instruction));
    mark(end + static_cast<std::uint64_t>(std::int64_t{rel}),
         scanned.call ? Mark::kCall : Mark::kBranch);
  } else if (scanned.relative_size == 1) {
    const auto rel = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(instruction.back()));
    mark(end + static_cast<std::uint64_t>(std::int64_t{rel}), Mark::kBranch);
  } else if (scanned.rip_lea) {
    const auto rel = static_cast<std::int32_t>(last_word(instruction));
    mark(end + static_cast<std::uint64_t>(std::int64_t{rel}), Mark::kFixed);
  } else if (scanned.immediate32 && input_.model == AddressModel::kFixed) {
    mark(last_word(instruction), Mark::kFixed);
  }
}

// Linear, in step with the starts: where an instruction would run over one, what preceded it was
// data, and decoding begins anew there (but see resume_at). An undecodable byte is stepped over;
// x86 code falls into step again within a few instructions.
void ModuleCode::sweep(const CodeSection& section) {
  const std::uint64_t begin = section.address.value();
  auto next = std::ranges::upper_bound(starts_, begin);
  std::size_t pos = 0;
  std::uint64_t stumbled = 0;  // the last address where nothing could be decoded
  while (pos < section.bytes.size()) {
    const std::uint64_t at = begin + pos;
    while (next != starts_.end() && *next <= at) ++next;
    const auto rest = section.bytes.subspan(pos);
    const Scanned scanned = scan_instruction(rest);
    if (scanned.length == 0) {
      stumbled = at;
      ++pos;
      continue;
    }
    scan_one(rest, at, scanned);
    ++swept_;
    pos += scanned.length;
    for (; next != starts_.end() && begin + pos > *next; ++next)
      pos = resume_at(section, *next, pos, stumbled);
  }
}

// Where to go on when the instruction before `pos` runs over a start. In code that is one frame and
// could be decoded from its beginning, the symbol is wrong and not the code. Whichever is believed,
// the branches that the other way of reading shows are marked as well, until both are in step.
std::size_t ModuleCode::resume_at(const CodeSection& section, std::uint64_t start, std::size_t pos,
                                  std::uint64_t stumbled) {
  const std::size_t there = static_cast<std::size_t>(start - section.address.value());
  const CodeRange* const frame = frame_around(LinkAddr(start));
  if (frame == nullptr) return there;
  const bool is_frame = std::ranges::binary_search(input_.frames, LinkAddr(start), {},
                                                   [](const CodeRange& f) { return f.begin; });
  if (is_frame || stumbled >= frame->begin.value()) {
    sweep_aside(section, pos, there);
    return there;
  }
  misplaced_.push_back(start);
  sweep_aside(section, there, pos);
  return pos;
}

// Marks what is found from `pos` on, until a sweep from `other` comes to the same instruction.
void ModuleCode::sweep_aside(const CodeSection& section, std::size_t pos, std::size_t other) {
  for (int n = 0; n < kMaxAside && pos != other; ++n) {
    std::size_t& behind = pos < other ? pos : other;
    if (behind >= section.bytes.size()) return;
    const auto rest = section.bytes.subspan(behind);
    const Scanned scanned = scan_instruction(rest);
    if (scanned.length == 0) return;
    if (&behind == &pos) scan_one(rest, section.address.value() + pos, scanned);
    behind += scanned.length;
  }
}

const CodeRange* ModuleCode::frame_around(LinkAddr at) const {
  const auto it = std::ranges::lower_bound(input_.frames, at, {}, &CodeRange::begin);
  if (it == input_.frames.begin()) return nullptr;
  const CodeRange& frame = *std::prev(it);
  return frame.contains(at) ? &frame : nullptr;
}

Start ModuleCode::start_at(LinkAddr at) const {
  if (std::ranges::binary_search(misplaced_, at.value())) return Start::kNoInstruction;
  const auto it = std::ranges::lower_bound(input_.frames, at, {}, &CodeRange::begin);
  if (it != input_.frames.end() && it->begin == at) return Start::kFunction;
  return frame_around(at) != nullptr ? Start::kInside : Start::kFunction;
}

bool ModuleCode::within_frame(CodeRange function) const {
  const auto it = std::ranges::lower_bound(input_.frames, function.begin, {}, &CodeRange::begin);
  return it == input_.frames.end() || it->begin != function.begin || function.end <= it->end;
}

std::span<const std::byte> ModuleCode::bytes_at(LinkAddr at) const {
  const Marks* marks = marks_of(at.value());
  if (marks == nullptr) return {};
  const auto index = static_cast<std::size_t>(marks - marks_.data());
  return input_.sections[index].bytes.subspan(at.value() - marks->begin);
}

CodeRange ModuleCode::section_around(LinkAddr at) const {
  const Marks* marks = marks_of(at.value());
  if (marks == nullptr) return {};
  return {LinkAddr(marks->begin), LinkAddr(marks->end)};
}

std::optional<LinkAddr> ModuleCode::first_target(LinkAddr begin, LinkAddr end) const {
  const Marks* marks = marks_of(begin.value());
  if (marks == nullptr || end <= begin) return std::nullopt;
  const std::uint64_t last = std::min(end.value(), marks->end) - marks->begin;
  const std::uint64_t found = find_bit(marks->once, begin.value() - marks->begin, last);
  if (found == last) return std::nullopt;
  return LinkAddr(marks->begin + found);
}

bool ModuleCode::single_branch_to(LinkAddr at) const {
  const Marks* marks = marks_of(at.value());
  if (marks == nullptr) return false;
  const std::uint64_t bit = at.value() - marks->begin;
  return test_bit(marks->once, bit) && !test_bit(marks->again, bit);
}

std::optional<std::uint32_t> ModuleCode::branches_to_return(LinkAddr at) const {
  const auto it = return_branches_.find(at.value());
  if (it == return_branches_.end())
    return is_return(at) ? std::optional<std::uint32_t>(0) : std::nullopt;
  if (it->second >= kOtherWay) return std::nullopt;
  return it->second;
}

bool ModuleCode::is_called(LinkAddr at) const {
  const Marks* marks = marks_of(at.value());
  return marks != nullptr && test_bit(marks->called, at.value() - marks->begin);
}

LinkAddr ModuleCode::next_start(LinkAddr at) const {
  const Marks* marks = marks_of(at.value());
  if (marks == nullptr) return at;
  const auto it = std::ranges::upper_bound(starts_, at.value());
  return LinkAddr(it == starts_.end() ? marks->end : std::min(*it, marks->end));
}

std::optional<CodeRange> ModuleCode::gap_before(LinkAddr start) const {
  const auto it = std::ranges::lower_bound(starts_, start.value());
  if (it == starts_.begin()) return std::nullopt;
  const LinkAddr before(*std::prev(it));
  if (!same_section(before, start - 1)) return std::nullopt;
  // Whatever covers bytes there covers the last one that is covered.
  LinkAddr begin = before;
  for (const auto* ranges : {&input_.functions, &input_.frames}) {
    auto range = std::ranges::lower_bound(*ranges, start, {}, &CodeRange::begin);
    for (int steps = 0; range != ranges->begin() && steps < kMaxNested; ++steps) {
      --range;
      begin = std::max(begin, range->end);
    }
  }
  if (begin == before || begin >= start) return std::nullopt;
  return CodeRange{begin, start};
}

bool ModuleCode::excluded(LinkAddr begin, LinkAddr end) const {
  return std::ranges::any_of(input_.excluded,
                             [&](const CodeRange& r) { return r.begin < end && begin < r.end; });
}

bool ModuleCode::pointer_inside(CodeRange range) const {
  const auto it = std::ranges::upper_bound(input_.code_pointers, range.begin);
  return it != input_.code_pointers.end() && *it < range.end;
}

bool ModuleCode::is_pointer(LinkAddr at) const {
  return std::ranges::binary_search(input_.code_pointers, at);
}

std::optional<CodeRange> ModuleCode::unnamed_frame(LinkAddr at) const {
  auto it = std::ranges::upper_bound(input_.frames, at, {}, &CodeRange::begin);
  if (it == input_.frames.begin()) return std::nullopt;
  const CodeRange frame = *--it;
  if (!frame.contains(at)) return std::nullopt;
  // A function that starts in it, or one just before that reaches into it.
  auto f = std::ranges::lower_bound(input_.functions, frame.begin, {}, &CodeRange::begin);
  if (f != input_.functions.end() && f->begin < frame.end) return std::nullopt;
  if (f != input_.functions.begin() && (--f)->end > frame.begin) return std::nullopt;
  return frame;
}

std::optional<CodeRange> ModuleCode::function_around(LinkAddr at) const {
  auto it = std::ranges::upper_bound(input_.functions, at, {}, &CodeRange::begin);
  for (int steps = 0; it != input_.functions.begin() && steps < kMaxNested; ++steps) {
    --it;
    if (it->contains(at)) return *it;
  }
  return std::nullopt;
}

bool ModuleCode::is_function(LinkAddr at) const {
  const auto starts_at = [at](const std::vector<CodeRange>& ranges) {
    return std::ranges::binary_search(ranges, at, {}, &CodeRange::begin);
  };
  if (starts_at(input_.cold)) return false;
  return starts_at(input_.functions) || is_called(at) || is_pointer(at);
}

std::optional<CodeRange> ModuleCode::code_around(LinkAddr at) const {
  if (const auto function = function_around(at)) return function;
  const CodeRange* const frame = frame_around(at + 1);
  return frame != nullptr && frame->contains(at) ? std::optional(*frame) : std::nullopt;
}

bool ModuleCode::read_data(LinkAddr at, std::span<std::byte> out) const {
  return input_.read_data && input_.read_data(at, out);
}

std::vector<LinkAddr> scan_code_pointers(std::span<const CodeSection> sections,
                                         std::span<const std::byte> data) {
  std::vector<LinkAddr> found;
  for (std::size_t pos = 0; pos + 8 <= data.size(); pos += 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, data.data() + pos, sizeof(value));
    if (value == 0) continue;
    const bool code = std::ranges::any_of(sections, [value](const CodeSection& s) {
      return value >= s.address.value() && value - s.address.value() < s.bytes.size();
    });
    if (code) found.push_back(LinkAddr(value));
  }
  return found;
}

}  // namespace trapline::isa
