// Variables, scratch and the traced process's memory.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "interp/arithmetic.h"
#include "interp/evaluator.h"
#include "wire/key.h"

namespace trapline::interp {

using plan::Fault;
using plan::Instruction;
using plan::Op;
using plan::ValueKind;

// ----------------------------------------------------------------------------------------------------
// memory of ours

std::uint64_t Evaluator::address_of(Region region, std::uint64_t offset) {
  return kTag | static_cast<std::uint64_t>(region) << kRegionShift | offset;
}

std::span<std::byte> Evaluator::region(Region region) {
  switch (region) {
    case Region::kConstants:
      return area_.constants_;
    case Region::kScratch:
      return area_.scratch_;
    case Region::kGlobals:
      return globals_;
    case Region::kSelf:
      return self_;
    case Region::kResults:
      return area_.results_;
  }
  return {};
}

std::optional<std::span<std::byte>> Evaluator::resolve(std::uint64_t address, std::uint64_t size) {
  if (!is_ours(address)) return std::nullopt;
  const std::uint64_t rest = address & ~kTagMask;
  const std::uint64_t number = rest >> kRegionShift;
  if (number > static_cast<std::uint64_t>(Region::kResults)) return std::nullopt;
  const auto memory = region(static_cast<Region>(number));
  const std::uint64_t offset = rest & ((std::uint64_t{1} << kRegionShift) - 1);
  if (size > memory.size() || offset > memory.size() - size) return std::nullopt;
  return memory.subspan(offset, size);
}

// Another thread may change a global string meanwhile: the length is looked for once, within
// bounds, and kept.
std::optional<std::string_view> Evaluator::text_at(std::uint64_t address) {
  if (!is_ours(address)) return std::nullopt;
  const std::uint64_t number = (address & ~kTagMask) >> kRegionShift;
  if (number > static_cast<std::uint64_t>(Region::kResults)) return std::nullopt;
  const auto memory = region(static_cast<Region>(number));
  const std::uint64_t offset = address & ((std::uint64_t{1} << kRegionShift) - 1);
  if (offset >= memory.size()) return std::nullopt;
  const std::uint64_t longest = program_.strsize == 0 ? 0 : program_.strsize - 1;
  const std::size_t limit = std::min<std::size_t>(memory.size() - offset, longest);
  const auto* start = reinterpret_cast<const char*>(memory.data() + offset);
  return std::string_view(start, ::strnlen(start, limit));
}

void Evaluator::write_text(std::span<std::byte> to, std::string_view text) {
  if (to.empty()) return;
  const std::size_t length = std::min(text.size(), to.size() - 1);
  std::memmove(to.data(), text.data(), length);
  to[length] = std::byte{0};
}

std::uint64_t Evaluator::make_result(std::string_view text) {
  const std::uint64_t offset = area_.results_.size();
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  const std::size_t length =
      std::min<std::size_t>(text.size(), program_.strsize == 0 ? 0 : program_.strsize - 1);
  area_.results_.insert(area_.results_.end(), bytes, bytes + length);
  area_.results_.push_back(std::byte{0});
  return address_of(Region::kResults, offset);
}

std::optional<std::uint64_t> Evaluator::dynamic_scratch(std::uint64_t size) {
  const std::uint64_t total = area_.scratch_.size() - area_.static_size_;
  const std::uint64_t start = (dynamic_used_ + 7) & ~std::uint64_t{7};
  if (start > total || size > total - start) return std::nullopt;
  dynamic_used_ = start + size;
  return address_of(Region::kScratch, area_.static_size_ + start);
}

std::optional<std::uint64_t> Evaluator::string_room(const Instruction& in) {
  if (in.scratch == plan::kNone) return dynamic_scratch(program_.strsize);
  return address_of(Region::kScratch, in.scratch);
}

bool Evaluator::read_memory(std::uint64_t address, std::span<std::byte> out) {
  if (!is_ours(address)) return environment_.read_target(RemoteAddr(address), out);
  const auto from = resolve(address, out.size());
  if (!from) return false;
  if (!out.empty()) std::memmove(out.data(), from->data(), out.size());
  return true;
}

// ----------------------------------------------------------------------------------------------------------
// variables

const plan::Variable* Evaluator::variable(const Instruction& in) const {
  return in.variable < program_.variables.size() ? &program_.variables[in.variable] : nullptr;
}

std::optional<std::span<std::byte>> Evaluator::storage(const plan::Variable& variable,
                                                       std::uint64_t& address) {
  const Region where = variable.scope == plan::Scope::kGlobal ? Region::kGlobals
                       : variable.scope == plan::Scope::kSelf ? Region::kSelf
                                                              : Region::kScratch;
  if (variable.offset >> kRegionShift != 0) return std::nullopt;
  address = address_of(where, variable.offset);
  return resolve(address, variable.type.size);
}

bool Evaluator::step_memory(const Instruction& in) {
  switch (in.op) {
    case Op::kLoad:
      return load_scalar(in);
    case Op::kStore:
      return store_scalar(in);
    case Op::kLoadElement:
      return load_element(in);
    case Op::kStoreElement:
      return store_element(in);
    case Op::kLoadMemory:
      return load_memory(in);
    case Op::kCopyIn:
      return copy_in(in);
    default:
      return copy_in_string(in);
  }
}

bool Evaluator::load_scalar(const Instruction& in) {
  const plan::Variable* variable = this->variable(in);
  if (variable == nullptr || variable->is_array) return malformed();
  if (variable->scope == plan::Scope::kSelf && self_.empty()) {
    return set(in.dst, variable->type.kind == ValueKind::kInteger ? 0 : make_result(""));
  }
  std::uint64_t address = 0;
  const auto from = storage(*variable, address);
  if (!from) return malformed();
  if (variable->type.kind != ValueKind::kInteger) return set(in.dst, address);
  if (from->size() > 8) return malformed();
  std::uint64_t raw = 0;
  std::memcpy(&raw, from->data(), from->size());
  return set(in.dst, extend(raw, variable->type.size, variable->type.is_signed));
}

bool Evaluator::store_scalar(const Instruction& in) {
  const plan::Variable* variable = this->variable(in);
  if (variable == nullptr || variable->is_array) return malformed();
  if (variable->scope == plan::Scope::kSelf && self_.empty()) return true;
  std::uint64_t address = 0;
  const auto to = storage(*variable, address);
  if (!to) return malformed();
  const std::uint64_t value = get(in.a);
  switch (variable->type.kind) {
    case ValueKind::kInteger:
      if (to->size() > 8) return malformed();
      std::memcpy(to->data(), &value, to->size());
      return true;
    case ValueKind::kString: {
      const auto text = text_at(value);
      if (!text) return malformed();
      write_text(*to, *text);
      return true;
    }
    default:
      return read_memory(value, *to) || fault(Fault::kBadAddress, value);
  }
}

Evaluator::KeyResult Evaluator::build_key(const Instruction& in, bool with_thread) {
  auto& key = area_.key_;
  key.resize(wire::kMaxKeySize / 8);
  wire::KeyWriter writer(key.data(), static_cast<std::uint32_t>(key.size()));
  if (with_thread) writer.append_integer(environment_.thread_key());
  for (const auto& operand : in.operands) {
    const std::uint64_t value = get(operand.reg);
    if (operand.type.kind == ValueKind::kInteger) {
      writer.append_integer(extend(value, operand.type.size, operand.type.is_signed));
      continue;
    }
    if (operand.type.kind != ValueKind::kString) return KeyResult::kFault;
    const auto text = text_at(value);
    if (!text) return KeyResult::kFault;
    const std::string copy(*text);  // KeyWriter looks for the NUL
    writer.append_string(copy.c_str(), static_cast<std::uint32_t>(copy.size()) + 1);
  }
  if (writer.failed()) return KeyResult::kTooLong;
  key.resize(writer.count());
  return KeyResult::kOk;
}

std::optional<wire::DynvarTable> Evaluator::table(const plan::Variable& variable) {
  const std::uint64_t size = std::uint64_t{variable.capacity} * variable.cell_size;
  const std::uint64_t least = sizeof(wire::DynvarCell) + wire::round_up_to_word(variable.type.size);
  if (variable.capacity == 0 || (variable.capacity & (variable.capacity - 1)) != 0 ||
      variable.cell_size % 8 != 0 || variable.cell_size < least || variable.offset % 8 != 0 ||
      size > globals_.size() || variable.offset > globals_.size() - size) {
    return std::nullopt;
  }
  return wire::DynvarTable{reinterpret_cast<unsigned char*>(globals_.data() + variable.offset),
                           variable.capacity, variable.cell_size, variable.type.size};
}

bool Evaluator::load_element(const Instruction& in) {
  const plan::Variable* variable = this->variable(in);
  if (variable == nullptr || !variable->is_array) return malformed();
  const auto table = this->table(*variable);
  const KeyResult built = build_key(in, variable->scope == plan::Scope::kSelf);
  if (!table || built == KeyResult::kFault) return malformed();
  const auto count = static_cast<std::uint32_t>(area_.key_.size());
  std::vector<std::uint64_t> value(variable->type.size / 8 + 1, 0);
  if (built == KeyResult::kOk && wire::dynvar_key_fits(*table, count)) {
    const wire::DynvarKey key{area_.key_.data(), count,
                              wire::hash_key(area_.key_.data(), count, 0)};
    const auto form = variable->type.kind == ValueKind::kString ? wire::DynvarForm::kText
                                                                : wire::DynvarForm::kBytes;
    const auto result = wire::dynvar_load(*table, key, value.data(), form);
    if (result == wire::DynvarResult::kContended) environment_.dynamic_drop();
    if (result != wire::DynvarResult::kDone) std::fill(value.begin(), value.end(), 0);
  }
  if (variable->type.kind == ValueKind::kInteger) {
    return set(in.dst, extend(value[0], variable->type.size, variable->type.is_signed));
  }
  const std::string_view bytes(reinterpret_cast<const char*>(value.data()), variable->type.size);
  if (variable->type.kind == ValueKind::kString) {
    return set(in.dst, make_result(bytes.substr(0, bytes.find('\0'))));
  }
  const std::uint64_t offset = area_.results_.size();
  const auto* from = reinterpret_cast<const std::byte*>(bytes.data());
  area_.results_.insert(area_.results_.end(), from, from + bytes.size());
  return set(in.dst, address_of(Region::kResults, offset));
}

bool Evaluator::store_element(const Instruction& in) {
  const plan::Variable* variable = this->variable(in);
  if (variable == nullptr || !variable->is_array) return malformed();
  const auto table = this->table(*variable);
  const KeyResult built = build_key(in, variable->scope == plan::Scope::kSelf);
  if (!table || built == KeyResult::kFault) return malformed();
  const auto count = static_cast<std::uint32_t>(area_.key_.size());
  if (built == KeyResult::kTooLong || !wire::dynvar_key_fits(*table, count)) {
    environment_.dynamic_drop();
    return true;
  }
  const wire::DynvarKey key{area_.key_.data(), count, wire::hash_key(area_.key_.data(), count, 0)};
  const std::uint64_t value = get(in.a);
  wire::DynvarResult result;
  if (variable->type.kind == ValueKind::kInteger) {
    const std::uint64_t word = extend(value, variable->type.size, variable->type.is_signed);
    result = word == 0 ? wire::dynvar_remove(*table, key)
                       : wire::dynvar_store(*table, key, &word, wire::DynvarForm::kBytes);
  } else {
    // Copied first, into whole words: the table's routines read up to value_size bytes.
    std::vector<std::uint64_t> words(variable->type.size / 8 + 1, 0);
    const auto to = std::as_writable_bytes(std::span(words)).first(variable->type.size);
    if (variable->type.kind == ValueKind::kString) {
      const auto text = text_at(value);
      if (!text) return malformed();
      write_text(to, *text);
      result = wire::dynvar_store(*table, key, words.data(), wire::DynvarForm::kText);
    } else {
      if (!read_memory(value, to)) return fault(Fault::kBadAddress, value);
      result = wire::dynvar_store(*table, key, words.data(), wire::DynvarForm::kBytes);
    }
  }
  if (result == wire::DynvarResult::kFull || result == wire::DynvarResult::kContended) {
    environment_.dynamic_drop();
  }
  return true;
}

// ------------------------------------------------------------------------------------------ the
// traced process's memory

bool Evaluator::load_memory(const Instruction& in) {
  if (in.size == 0 || in.size > 8) return malformed();
  std::uint64_t raw = 0;
  const std::uint64_t address = get(in.a);
  if (!read_memory(address, std::as_writable_bytes(std::span(&raw, 1)).first(in.size))) {
    return fault(Fault::kBadAddress, address);
  }
  return set(in.dst, extend(raw, in.size, in.is_signed));
}

bool Evaluator::copy_in(const Instruction& in) {
  const std::uint64_t size = get(in.b);
  const auto address = dynamic_scratch(size);
  if (!address) return fault(Fault::kNoScratch);
  const auto to = resolve(*address, size);
  if (!to) return malformed();
  if (!read_memory(get(in.a), *to)) return fault(Fault::kBadAddress, get(in.a));
  return set(in.dst, *address);
}

// The NUL counts among the bytes copied, as for the kernel's own copyinstr: a limit of n gives n -
// 1 characters.
bool Evaluator::copy_in_string(const Instruction& in) {
  const std::uint64_t from = get(in.a);
  const std::uint64_t wanted = in.b == plan::kNoReg ? program_.strsize : get(in.b);
  const std::uint64_t size = std::min<std::uint64_t>(wanted, program_.strsize);
  if (size == 0) return fault(Fault::kBadAddress, from);
  const auto address = string_room(in);
  if (!address) return fault(Fault::kNoScratch);
  const auto to = resolve(*address, program_.strsize);
  if (!to) return malformed();
  if (is_ours(from)) {
    const auto text = text_at(from);
    if (!text) return fault(Fault::kBadAddress, from);
    write_text(to->first(size), *text);
    return set(in.dst, *address);
  }
  const auto length = environment_.read_target_string(RemoteAddr(from), to->first(size - 1));
  if (!length) return fault(Fault::kBadAddress, from);
  (*to)[std::min<std::uint64_t>(*length, size - 1)] = std::byte{0};
  return set(in.dst, *address);
}

}  // namespace trapline::interp
