// Variables, scratch and the traced process's memory.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "interp/arithmetic.h"
#include "interp/evaluator.h"
#include "plan/layout.h"
#include "wire/key.h"

namespace trapline::interp {

using plan::Fault;
using plan::Instruction;
using plan::Op;
using plan::ValueKind;

// ----------------------------------------------------------------------------------------------------
// memory of ours

std::uint64_t Evaluator::address_of(Region region, std::uint64_t offset) {
  return (kTag | static_cast<std::uint64_t>(region) << kRegionShift) + kRegionStart + offset;
}

std::span<std::byte> Evaluator::region(Region region) {
  switch (region) {
    case Region::kConstants:
      return area_.constants_;
    case Region::kScratch:
      return area_.scratch_;
    case Region::kDynamic:
      return std::span(area_.dynamic_).first(dynamic_used_);
    case Region::kGlobals:
      return globals_;
    case Region::kSelf:
      return self_;
    case Region::kResults:
      return area_.results_;
  }
  return {};
}

std::optional<Evaluator::Place> Evaluator::place_of(std::uint64_t address) {
  if (!is_ours(address)) return std::nullopt;
  const std::uint64_t number = (address & ~kTagMask) >> kRegionShift;
  const std::uint64_t offset = address & ((std::uint64_t{1} << kRegionShift) - 1);
  if (number > static_cast<std::uint64_t>(Region::kResults) || offset < kRegionStart)
    return std::nullopt;
  return Place{static_cast<Region>(number), offset - kRegionStart};
}

std::optional<std::span<std::byte>> Evaluator::resolve(std::uint64_t address, std::uint64_t size) {
  const auto place = place_of(address);
  if (!place) return std::nullopt;
  const auto memory = region(place->region);
  if (size > memory.size() || place->offset > memory.size() - size) return std::nullopt;
  return memory.subspan(place->offset, size);
}

std::optional<std::span<std::byte>> Evaluator::resolve_writable(std::uint64_t address,
                                                                std::uint64_t size) {
  const auto place = place_of(address);
  if (!place || place->region == Region::kConstants || place->region == Region::kResults)
    return std::nullopt;
  const auto memory = resolve(address, size);
  const bool is_table =
      place->region == Region::kGlobals &&
      (size > area_.writable_globals_ || place->offset > area_.writable_globals_ - size);
  return is_table ? std::nullopt : memory;
}

// Another thread may change a global string meanwhile: the length is looked for once, within
// bounds, and kept.
std::optional<std::string_view> Evaluator::text_at(std::uint64_t address) {
  const auto place = place_of(address);
  if (!place) return std::nullopt;
  const auto memory = region(place->region);
  if (place->offset >= memory.size()) return std::nullopt;
  const std::uint64_t longest = program_.strsize == 0 ? 0 : program_.strsize - 1;
  const std::size_t limit = std::min<std::size_t>(memory.size() - place->offset, longest);
  const auto* start = reinterpret_cast<const char*>(memory.data() + place->offset);
  return std::string_view(start, ::strnlen(start, limit));
}

std::optional<std::string> Evaluator::text_operand(plan::Reg reg) {
  const std::uint64_t address = get(reg);
  if (address == 0) {
    fault(Fault::kBadAddress, 0);
    return std::nullopt;
  }
  const auto text = text_at(address);
  if (text) return std::string(*text);
  malformed();
  return std::nullopt;
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

std::uint64_t Evaluator::make_bytes(std::string_view bytes) {
  const std::uint64_t offset = area_.results_.size();
  const auto* from = reinterpret_cast<const std::byte*>(bytes.data());
  area_.results_.insert(area_.results_.end(), from, from + bytes.size());
  return address_of(Region::kResults, offset);
}

std::optional<std::uint64_t> Evaluator::dynamic_scratch(std::uint64_t size) {
  const std::uint64_t start = dynamic_used_;  // whole words
  if (size > area_.dynamic_.size() - start) return std::nullopt;
  dynamic_used_ = start + ((size + 7) & ~std::uint64_t{7});
  return address_of(Region::kDynamic, start);
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
  if (variable.offset >= kRegionStart) return std::nullopt;
  address = address_of(where, variable.offset);
  return resolve(address, plan::stored_size(variable.type));
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
    case Op::kRemoveElement:
      return store_element(in);
    case Op::kLoadMemory:
      return load_memory(in);
    case Op::kStoreMemory:
      return store_memory(in);
    case Op::kStoreString:
      return store_string(in);
    case Op::kCopyMemory:
      return copy_memory(in);
    case Op::kCopyOut:
    case Op::kCopyOutString:
      return copy_out(in);
    case Op::kAlloca:
      return allocate(in);
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
    const bool is_bytes = variable->type.kind == ValueKind::kBytes;
    return set(in.dst, is_bytes ? make_bytes(std::string(variable->type.size, 0)) : 0);
  }
  std::uint64_t address = 0;
  const auto from = storage(*variable, address);
  if (!from) return malformed();
  if (variable->type.kind == ValueKind::kBytes) return set(in.dst, address);
  if (variable->type.kind == ValueKind::kString)
    return set(in.dst, from->front() == std::byte{0} ? 0 : address + 1);
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
    case ValueKind::kString:
      return write_stored_text(*to, value) || malformed();
    default:
      return read_memory(value, *to) || fault(Fault::kBadAddress, value);
  }
}

// A string with the byte in front of it that says whether it is NULL.
bool Evaluator::write_stored_text(std::span<std::byte> to, std::uint64_t value) {
  if (value == 0) {
    to.front() = std::byte{0};
    return true;
  }
  const auto text = text_at(value);
  if (!text) return false;
  write_text(to.subspan(1), *text);
  to.front() = std::byte{1};
  return true;
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
    if (operand.type.kind == ValueKind::kBytes) {
      const auto bytes = resolve(value, operand.type.size);
      if (!bytes) return KeyResult::kFault;
      writer.append_bytes(reinterpret_cast<const unsigned char*>(bytes->data()), operand.type.size);
      continue;
    }
    if (value == 0) return KeyResult::kNull;
    const auto text = text_at(value);
    if (!text) return KeyResult::kFault;
    const std::string copy(*text);  // KeyWriter looks for the NUL
    writer.append_string(copy.c_str(), static_cast<std::uint32_t>(copy.size()) + 1);
  }
  if (writer.failed()) return KeyResult::kTooLong;
  key.resize(writer.count());
  return KeyResult::kOk;
}

bool Evaluator::key_fault(KeyResult result) {
  if (result == KeyResult::kFault) malformed();
  if (result == KeyResult::kNull) fault(Fault::kBadAddress, 0);
  return result == KeyResult::kFault || result == KeyResult::kNull;
}

std::optional<wire::DynvarTable> Evaluator::table(const plan::Variable& variable) {
  const std::uint64_t size = std::uint64_t{variable.capacity} * variable.cell_size;
  const auto value = static_cast<std::uint32_t>(plan::stored_size(variable.type));
  const std::uint64_t least = sizeof(wire::DynvarCell) + wire::round_up_to_word(value);
  if (variable.capacity == 0 || (variable.capacity & (variable.capacity - 1)) != 0 ||
      variable.cell_size % 8 != 0 || variable.cell_size < least || variable.offset % 8 != 0 ||
      size > globals_.size() || variable.offset > globals_.size() - size) {
    return std::nullopt;
  }
  return wire::DynvarTable{reinterpret_cast<unsigned char*>(globals_.data() + variable.offset),
                           variable.capacity, variable.cell_size, value};
}

bool Evaluator::load_element(const Instruction& in) {
  const plan::Variable* variable = this->variable(in);
  if (variable == nullptr || !variable->is_array) return malformed();
  const auto table = this->table(*variable);
  if (!table) return malformed();
  const KeyResult built = build_key(in, variable->scope == plan::Scope::kSelf);
  if (key_fault(built)) return false;
  const auto count = static_cast<std::uint32_t>(area_.key_.size());
  std::vector<std::uint64_t> value(plan::storage_size(variable->type) / 8, 0);
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
  const std::string_view bytes(reinterpret_cast<const char*>(value.data()),
                               plan::stored_size(variable->type));
  if (variable->type.kind == ValueKind::kString) {
    const std::string_view text = bytes.substr(1);
    return set(in.dst, bytes[0] == 0 ? 0 : make_result(text.substr(0, text.find('\0'))));
  }
  // In scratch, where it can be changed.
  if (in.scratch == plan::kNone) return malformed();
  const std::uint64_t address =
      address_of(Region::kScratch, in.scratch + plan::key_area(*variable));
  const auto to = resolve(address, bytes.size());
  if (!to) return malformed();
  std::memcpy(to->data(), bytes.data(), bytes.size());
  return set(in.dst, address);
}

bool Evaluator::store_element(const Instruction& in) {
  const plan::Variable* variable = this->variable(in);
  if (variable == nullptr || !variable->is_array) return malformed();
  const auto table = this->table(*variable);
  if (!table) return malformed();
  const KeyResult built = build_key(in, variable->scope == plan::Scope::kSelf);
  if (key_fault(built)) return false;
  const auto count = static_cast<std::uint32_t>(area_.key_.size());
  if (built == KeyResult::kTooLong || !wire::dynvar_key_fits(*table, count)) {
    environment_.dynamic_drop();
    return true;
  }
  const wire::DynvarKey key{area_.key_.data(), count, wire::hash_key(area_.key_.data(), count, 0)};
  const std::uint64_t value = get(in.a);
  wire::DynvarResult result;
  if (in.op == Op::kRemoveElement) {
    result = wire::dynvar_remove(*table, key);
  } else if (variable->type.kind == ValueKind::kInteger) {
    const std::uint64_t word = extend(value, variable->type.size, variable->type.is_signed);
    result = word == 0 ? wire::dynvar_remove(*table, key)
                       : wire::dynvar_store(*table, key, &word, wire::DynvarForm::kBytes);
  } else {
    // Copied first, into whole words: the table's routines read up to value_size bytes.
    std::vector<std::uint64_t> words(plan::storage_size(variable->type) / 8, 0);
    const auto to =
        std::as_writable_bytes(std::span(words)).first(plan::stored_size(variable->type));
    if (variable->type.kind == ValueKind::kString) {
      if (!write_stored_text(to, value)) return malformed();
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

bool Evaluator::store_memory(const Instruction& in) {
  if (in.size == 0 || in.size > 8) return malformed();
  const auto to = resolve_writable(get(in.a), in.size);
  if (!to) return fault(Fault::kBadAddress, get(in.a));
  const std::uint64_t value = get(in.b);
  std::memcpy(to->data(), &value, in.size);
  return true;
}

bool Evaluator::store_string(const Instruction& in) {
  if (in.immediate <= 0) return malformed();
  const auto to = resolve_writable(get(in.a), static_cast<std::uint64_t>(in.immediate));
  if (!to) return fault(Fault::kBadAddress, get(in.a));
  const auto text = text_operand(in.b);
  if (!text) return false;
  write_text(*to, *text);
  return true;
}

bool Evaluator::copy_memory(const Instruction& in) {
  if (in.operands.empty()) return malformed();
  const std::uint64_t destination = get(in.operands.front().reg);
  const std::uint64_t size = get(in.b);
  if (size == 0) return true;
  const auto to = resolve_writable(destination, size);
  if (!to) {
    const bool begins_well = resolve_writable(destination, 1).has_value();
    return begins_well ? fault(Fault::kBadSize, size) : fault(Fault::kBadAddress, destination);
  }
  const std::uint64_t source = get(in.a);
  if (read_memory(source, *to)) return true;
  return resolve(source, 1) ? fault(Fault::kBadSize, size) : fault(Fault::kBadAddress, source);
}

bool Evaluator::copy_out(const Instruction& in) {
  if (in.operands.empty()) return malformed();
  const std::uint64_t destination = get(in.operands.front().reg);
  std::uint64_t size = get(in.b);
  std::vector<std::byte> bytes;
  if (in.op == Op::kCopyOutString) {
    const auto text = text_operand(in.a);
    if (!text) return false;
    size = std::min<std::uint64_t>(size, text->size() + 1);
    bytes.resize(text->size() + 1);
    std::memcpy(bytes.data(), text->c_str(), bytes.size());
    bytes.resize(size);
  } else {
    if (size > plan::kMaxCopyOut) return fault(Fault::kBadSize, size);
    bytes.resize(size);
    if (!read_memory(get(in.a), bytes)) return fault(Fault::kBadAddress, get(in.a));
  }
  if (size == 0) return true;
  if (is_ours(destination) || !environment_.write_target(RemoteAddr(destination), bytes))
    return fault(Fault::kBadAddress, destination);
  return true;
}

bool Evaluator::allocate(const Instruction& in) {
  const std::uint64_t size = get(in.a);
  const auto address = dynamic_scratch(size);
  if (!address) return fault(Fault::kNoScratch);
  const auto memory = resolve(*address, size);
  if (!memory) return malformed();
  std::ranges::fill(*memory, std::byte{0});
  return set(in.dst, *address);
}

bool Evaluator::copy_in(const Instruction& in) {
  const std::uint64_t size = get(in.b);
  if (in.scratch != plan::kNone && size > static_cast<std::uint64_t>(in.immediate))
    return fault(Fault::kBadSize, size);
  const std::optional<std::uint64_t> address =
      in.scratch != plan::kNone ? address_of(Region::kScratch, in.scratch) : dynamic_scratch(size);
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
