#include "symbols/ifunc.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/cursor.h"
#include "symbols/relocations.h"

namespace trapline::symbols {
namespace {

constexpr std::uint64_t kMaxReadGap = 4096;
constexpr std::uint64_t kMaxRead = 64 << 10;
constexpr std::uint64_t kDefaultResolverSize = 256;
constexpr std::uint64_t kMaxResolverSize = 64 << 10;
constexpr std::string_view kVdsoSoname = "linux-vdso.so.1";

bool in_ranges(std::span<const AddressRange> ranges, LinkAddr a) {
  return std::ranges::any_of(ranges, [&](const AddressRange& r) { return r.contains(a); });
}

// An unbound PLT slot points to `push imm32; jmp PLT0` (68 .. .. .. .. e9), perhaps after endbr64
// (f3 0f 1e fa) and with a bnd prefix (f2) before the jump. A function does not begin so.
bool is_lazy_stub(const ElfImage& image, LinkAddr a) {
  const Segment* s = image.segment_of(a);
  if (s == nullptr || a - s->memory.begin >= s->file_size) return false;
  const std::uint64_t left = s->file_size - (a - s->memory.begin);
  auto bytes = image.bytes_at({a, a + std::min<std::uint64_t>(left, 16)});
  if (!bytes) return false;
  Cursor c(*bytes);
  if (c.remaining() >= 4 && Cursor(*bytes).read<std::uint32_t>() == 0xfa1e0ff3) c.skip(4);
  if (c.read<std::uint8_t>() != 0x68) return false;
  c.skip(4);
  auto op = c.read<std::uint8_t>();
  if (op == 0xf2) op = c.read<std::uint8_t>();
  return !c.failed() && op == 0xe9;
}

// The contents of the slots, read in few calls; unreadable ones are missing.
std::unordered_map<std::uint64_t, std::uint64_t> read_slots(std::vector<GotSlot>& slots,
                                                            LoadBias bias,
                                                            const MemoryReader& memory) {
  std::unordered_map<std::uint64_t, std::uint64_t> out;
  std::ranges::sort(slots, {}, &GotSlot::address);
  for (std::size_t i = 0; i < slots.size();) {
    const LinkAddr begin = slots[i].address;
    std::size_t end = i + 1;
    while (end < slots.size() && slots[end].address - slots[end - 1].address <= kMaxReadGap &&
           slots[end].address - begin <= kMaxRead) {
      ++end;
    }
    std::vector<std::byte> bytes(slots[end - 1].address - begin + 8);
    const bool whole = memory(bias.to_remote(begin), bytes).has_value();
    for (; i < end; ++i) {
      const LinkAddr at = slots[i].address;
      std::span<std::byte> part(bytes.data() + (at - begin), 8);
      if (!whole && !memory(bias.to_remote(at), part)) continue;
      out[at.value()] = Cursor(part).read<std::uint64_t>();
    }
  }
  return out;
}

class Chooser {
 public:
  Chooser(const LoadedImage& definer, const SymbolTable& symbols)
      : definer_(definer),
        symbols_(symbols),
        code_(definer.image->code_ranges()),
        plt_(plt_ranges(*definer.image)) {
    for (const Symbol& s : symbols.symbols()) {
      if (s.kind != SymbolKind::kIfunc) continue;
      by_name_[s.name].push_back(choices_.size());
      by_resolver_[s.address.value()].push_back(choices_.size());
      choices_.push_back({s.name, s.version, s.address, {}, {}, {}, {}});
      found_.emplace_back();
      unbound_.push_back(0);
    }
  }

  bool nothing_to_do() const { return choices_.empty(); }

  void know_vdso(const LoadedImage& module) {
    if (module.image->dynamic().soname != kVdsoSoname) return;
    vdso_ = module;
    vdso_code_ = module.image->text_ranges();
    if (auto table = SymbolTable::read(*module.image, {DebugFiles::kIgnore, {}, {}})) {
      vdso_symbols_.emplace(std::move(*table));
    }
  }

  void look_into(const LoadedImage& module, const MemoryReader& memory) {
    const bool is_definer =
        module.image == definer_.image && module.bias.value == definer_.bias.value;
    std::vector<GotSlot> slots = got_slots(*module.image);
    std::erase_if(slots, [&](const GotSlot& s) { return targets(s, is_definer).empty(); });
    const auto contents = read_slots(slots, module.bias, memory);
    for (const GotSlot& slot : slots) {
      const auto it = contents.find(slot.address.value());
      if (it == contents.end()) continue;
      for (const std::size_t choice : targets(slot, is_definer)) {
        take(choice, slot, RemoteAddr(it->second), is_definer);
      }
    }
  }

  std::vector<IfuncChoice> finish() {
    for (std::size_t i = 0; i < choices_.size(); ++i) conclude(i);
    name_the_sharers();
    return std::move(choices_);
  }

 private:
  // The choices a slot tells about.
  std::vector<std::size_t> targets(const GotSlot& slot, bool is_definer) const {
    std::vector<std::size_t> out;
    if (slot.kind == SlotKind::kIrelative) {
      const auto it = by_resolver_.find(static_cast<std::uint64_t>(slot.addend));
      if (is_definer && it != by_resolver_.end()) out = it->second;
      return out;
    }
    const auto it = by_name_.find(slot.symbol);
    if (it == by_name_.end() || (slot.kind == SlotKind::kAbsolute && slot.addend != 0)) return out;
    for (const std::size_t i : it->second) {
      const bool same = slot.version == choices_[i].version;
      if (same || slot.version.empty() || choices_[i].version.empty()) out.push_back(i);
    }
    return out;
  }

  void take(std::size_t choice, const GotSlot& slot, RemoteAddr value, bool is_definer) {
    const LinkAddr link = definer_.bias.to_link(value);
    // The resolver's own address: the slot has not been relocated yet.
    if (link == choices_[choice].resolver || value == RemoteAddr()) return;
    const bool in_vdso = in_ranges(vdso_code_, vdso_.bias.to_link(value));
    if (slot.kind == SlotKind::kIrelative || in_vdso) {
      // As the file has it before relocation: resolver, which was ruled out, or PLT stub.
      if (in_vdso || !is_stub(link)) found_[choice].insert(value);
      return;
    }
    // Elsewhere: its own module's PLT, or another definition of that name.
    const bool stub = is_definer ? is_stub(link) : in_ranges(plt_, link);
    if (!in_ranges(code_, link) || stub) {
      if (slot.kind == SlotKind::kJumpSlot) ++unbound_[choice];
      return;
    }
    found_[choice].insert(value);
  }

  bool is_stub(LinkAddr link) const {
    return in_ranges(plt_, link) || is_lazy_stub(*definer_.image, link);
  }

  void conclude(std::size_t i) {
    IfuncChoice& c = choices_[i];
    if (!found_[i].empty()) {
      c.certainty = IfuncCertainty::kBound;
      c.implementations.assign(found_[i].begin(), found_[i].end());
      if (c.implementations.size() > 1) c.note = "several implementations are in use";
      return;
    }
    const std::string why =
        unbound_[i] > 0 ? "not called yet through any slot" : "no module refers to it by a slot";
    if (!frames_) frames_ = read_exception_frames(*definer_.image);
    for (const LinkAddr a : resolver_candidates(*definer_.image, symbols_, *frames_, c.resolver)) {
      c.implementations.push_back(definer_.bias.to_remote(a));
    }
    if (const auto in_vdso = vdso_function(c.name)) c.implementations.push_back(*in_vdso);
    std::ranges::sort(c.implementations);
    if (c.implementations.size() < 2) {
      c.implementations.clear();
      c.note = why + ", and the resolver does not show all that it can return";
    } else {
      c.certainty = IfuncCertainty::kCandidates;
      c.note = why + ": all " + std::to_string(c.implementations.size()) +
               " that the resolver can return";
    }
  }

  // glibc's `time` and `__gettimeofday` are the vDSO's __vdso_time and __vdso_gettimeofday.
  std::optional<RemoteAddr> vdso_function(std::string_view name) const {
    if (!vdso_symbols_) return std::nullopt;
    name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
    const auto found = vdso_symbols_->named("__vdso_" + std::string(name));
    if (found.empty()) return std::nullopt;
    return vdso_.bias.to_remote(found.front()->address);
  }

  void name_the_sharers() {
    std::map<RemoteAddr, std::vector<std::size_t>> users;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      for (const RemoteAddr a : choices_[i].implementations) users[a].push_back(i);
    }
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      std::set<std::string_view> names;
      for (const RemoteAddr a : choices_[i].implementations) {
        for (const std::size_t other : users[a]) names.insert(choices_[other].name);
      }
      names.erase(choices_[i].name);
      choices_[i].also.assign(names.begin(), names.end());
    }
  }

  const LoadedImage& definer_;
  const SymbolTable& symbols_;
  std::vector<AddressRange> code_;
  std::vector<AddressRange> plt_;
  std::vector<IfuncChoice> choices_;
  LoadedImage vdso_;
  std::vector<AddressRange> vdso_code_;
  std::optional<SymbolTable> vdso_symbols_;
  std::vector<std::set<RemoteAddr>> found_;  // by choice
  std::vector<std::size_t> unbound_;         // by choice
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_name_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_resolver_;
  std::optional<ExceptionFrames> frames_;
};

}  // namespace

std::vector<IfuncChoice> choose_ifuncs(const LoadedImage& definer, const SymbolTable& symbols,
                                       std::span<const LoadedImage> loaded,
                                       const MemoryReader& memory) {
  Chooser chooser(definer, symbols);
  if (chooser.nothing_to_do()) return {};
  for (const LoadedImage& module : loaded) chooser.know_vdso(module);
  for (const LoadedImage& module : loaded) chooser.look_into(module, memory);
  return chooser.finish();
}

namespace {

// Reads the addresses that a piece of code takes. Looks at every byte, as instruction boundaries
// are not known here: that a displacement read at a wrong place leads exactly to the start of a
// function is not to be expected.
class AddressScan {
 public:
  AddressScan(const ElfImage& image, std::span<const std::byte> code, LinkAddr address)
      : code_(code), address_(address) {
    for (const GotSlot& slot : got_slots(image, RelativeSlots::kInclude)) {
      got_.emplace(slot.address.value(), slot);
    }
  }

  // The functions that the code's byte `i` may start an instruction for; named ones by their
  // symbol.
  std::vector<LinkAddr> at(std::size_t i, const SymbolTable& symbols) const {
    std::vector<LinkAddr> out;
    if (i + 7 <= code_.size() && (byte(i) & 0xf8) == 0x48) {
      const bool rip_relative = (byte(i + 2) & 0xc7) == 0x05;
      const LinkAddr target(address_.value() + i + 7 + word(i + 3));
      // 48 8d 05 disp32: lea rax, [rip + disp32], any register
      if (byte(i + 1) == 0x8d && rip_relative) out.push_back(target);
      // 48 8b 05 disp32: mov rax, [rip + disp32], a slot of the GOT
      if (byte(i + 1) == 0x8b && rip_relative) add_slot(target, symbols, out);
      // 48 c7 c0 imm32: mov rax, imm32
      if (byte(i + 1) == 0xc7 && (byte(i + 2) & 0xf8) == 0xc0) out.push_back(LinkAddr(word(i + 3)));
    }
    // 48 0f 4x 05 disp32: cmovcc rax, [rip + disp32]
    if (i + 8 <= code_.size() && (byte(i) & 0xf8) == 0x48 && byte(i + 1) == 0x0f &&
        (byte(i + 2) & 0xf0) == 0x40 && (byte(i + 3) & 0xc7) == 0x05) {
      add_slot(LinkAddr(address_.value() + i + 8 + word(i + 4)), symbols, out);
    }
    // b8 imm32: mov eax, imm32, in programs linked below 2 GiB
    if ((byte(i) & 0xf8) == 0xb8) out.push_back(LinkAddr(word(i + 1) & 0xffffffff));
    return out;
  }

 private:
  void add_slot(LinkAddr slot, const SymbolTable& symbols, std::vector<LinkAddr>& out) const {
    const auto it = got_.find(slot.value());
    if (it == got_.end()) return;
    if (it->second.kind == SlotKind::kRelative) {
      out.push_back(LinkAddr(static_cast<std::uint64_t>(it->second.addend)));
    } else if (it->second.kind == SlotKind::kGlobDat) {
      for (const Symbol* s : symbols.named(it->second.symbol)) out.push_back(s->address);
    }
  }
  unsigned byte(std::size_t i) const { return std::to_integer<unsigned>(code_[i]); }
  std::uint64_t word(std::size_t i) const {
    return static_cast<std::uint64_t>(
        static_cast<std::int64_t>(Cursor(code_.subspan(i)).read<std::int32_t>()));
  }

  std::span<const std::byte> code_;
  LinkAddr address_;
  std::unordered_map<std::uint64_t, GotSlot> got_;
};

}  // namespace

std::vector<LinkAddr> resolver_candidates(const ElfImage& image, const SymbolTable& symbols,
                                          const ExceptionFrames& frames, LinkAddr resolver) {
  const Segment* s = image.segment_of(resolver);
  if (s == nullptr || resolver - s->memory.begin >= s->file_size) return {};
  const std::uint64_t left = s->file_size - (resolver - s->memory.begin);
  const auto range = function_range(symbols, frames, resolver);
  const std::uint64_t size =
      std::min({left, kMaxResolverSize, range ? range->size() : kDefaultResolverSize});
  auto bytes = image.bytes_at({resolver, resolver + size});
  if (!bytes) return {};
  const auto is_start = [&](LinkAddr a) {
    if (a == resolver) return false;
    if (!symbols.at(a).empty()) return true;
    const auto it = std::ranges::lower_bound(frames.functions, a, {}, &AddressRange::begin);
    return it != frames.functions.end() && it->begin == a;
  };
  const AddressScan scan(image, *bytes, resolver);
  std::set<LinkAddr> out;
  for (std::size_t i = 0; i + 5 <= bytes->size(); ++i) {
    for (const LinkAddr target : scan.at(i, symbols)) {
      if (is_start(target)) out.insert(target);
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace trapline::symbols
