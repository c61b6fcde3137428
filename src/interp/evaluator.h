// The evaluator behind run(): one clause, one firing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "interp/run.h"
#include "wire/dynvar.h"

namespace trapline::interp {

class Evaluator {
 public:
  Evaluator(const plan::Program& program, std::uint32_t clause, Environment& environment,
            ThisArea& area);
  Outcome run();

 private:
  // Memory of ours that a register may point to. An address is kTag | region << 40 | offset: not
  // canonical on x86-64, nor a user-space address on any machine; so it cannot be one of the traced
  // process's.
  enum class Region : std::uint8_t { kConstants, kScratch, kDynamic, kGlobals, kSelf, kResults };
  static constexpr std::uint64_t kTag = 0x5eed'0000'0000'0000;
  static constexpr std::uint64_t kTagMask = 0xffff'0000'0000'0000;
  static constexpr unsigned kRegionShift = 40;
  // Offsets begin here, so that what lies before a region's start is in none.
  static constexpr std::uint64_t kRegionStart = std::uint64_t{1} << 32;

  static std::uint64_t address_of(Region region, std::uint64_t offset);
  static bool is_ours(std::uint64_t address) { return (address & kTagMask) == kTag; }
  std::span<std::byte> region(Region region);
  struct Place {
    Region region;
    std::uint64_t offset;
  };
  static std::optional<Place> place_of(std::uint64_t address);
  // `size` bytes at an address of ours; nullopt: not inside.
  std::optional<std::span<std::byte>> resolve(std::uint64_t address, std::uint64_t size);
  std::optional<std::span<std::byte>> resolve_writable(std::uint64_t address, std::uint64_t size);
  // The string at an address of ours, at most strsize - 1 bytes.
  std::optional<std::string_view> text_at(std::uint64_t address);
  // A string operand that may not be NULL; nullopt: a fault was reported.
  std::optional<std::string> text_operand(plan::Reg reg);
  std::uint64_t make_result(std::string_view text);
  std::uint64_t make_bytes(std::string_view bytes);
  bool write_stored_text(std::span<std::byte> to, std::uint64_t value);
  // Writes text, cut to size - 1, and its NUL.
  static void write_text(std::span<std::byte> to, std::string_view text);

  // One instruction. false: the clause has ended.
  bool step(const plan::Instruction& in);
  bool step_value(const plan::Instruction& in);
  bool step_memory(const plan::Instruction& in);
  bool step_string(const plan::Instruction& in);
  bool step_effect(const plan::Instruction& in);
  bool step_process(const plan::Instruction& in);
  bool step_speculation(const plan::Instruction& in);
  bool call(const plan::Instruction& in);
  bool call_with_texts(const plan::Instruction& in, std::span<std::byte> out,
                       std::span<const std::string> texts);
  bool call_with_bytes(const plan::Instruction& in, std::span<std::byte> out);
  bool token(const plan::Instruction& in, std::span<std::byte> out);
  bool jump(const plan::Instruction& in);
  bool builtin(const plan::Instruction& in);
  bool load_scalar(const plan::Instruction& in);
  bool store_scalar(const plan::Instruction& in);
  bool load_element(const plan::Instruction& in);
  bool store_element(const plan::Instruction& in);
  bool load_memory(const plan::Instruction& in);
  bool store_memory(const plan::Instruction& in);
  bool store_string(const plan::Instruction& in);
  bool copy_memory(const plan::Instruction& in);
  bool copy_out(const plan::Instruction& in);
  bool allocate(const plan::Instruction& in);
  bool copy_in(const plan::Instruction& in);
  bool copy_in_string(const plan::Instruction& in);
  bool string_join(const plan::Instruction& in);
  bool store_field(const plan::Instruction& in);
  bool aggregate(const plan::Instruction& in);
  bool end();

  const plan::Variable* variable(const plan::Instruction& in) const;
  std::optional<std::span<std::byte>> storage(const plan::Variable& variable,
                                              std::uint64_t& address);
  std::optional<wire::DynvarTable> table(const plan::Variable& variable);
  enum class KeyResult : std::uint8_t { kOk, kTooLong, kNull, kFault };
  bool key_fault(KeyResult result);
  std::optional<std::span<std::uint32_t>> speculations();
  KeyResult build_key(const plan::Instruction& in, bool with_thread);
  bool read_memory(std::uint64_t address, std::span<std::byte> out);
  // Where a string result goes: the instruction's static scratch, else dynamic scratch. nullopt: no
  // room.
  std::optional<std::uint64_t> string_room(const plan::Instruction& in);
  std::optional<std::uint64_t> dynamic_scratch(std::uint64_t size);

  bool has_register(plan::Reg reg) const { return reg < registers_.size(); }
  std::uint64_t get(plan::Reg reg) const { return has_register(reg) ? registers_[reg] : 0; }
  bool set(plan::Reg reg, std::uint64_t value);
  bool fault(plan::Fault fault, std::uint64_t address = 0);
  bool malformed() { return fault(plan::Fault::kIllegalOperation); }

  const plan::Program& program_;
  const plan::Clause& clause_;
  std::uint32_t clause_index_;
  Environment& environment_;
  ThisArea& area_;
  std::span<std::uint64_t> registers_;
  std::span<std::byte> globals_;
  std::span<std::byte> self_;
  std::uint32_t pc_ = 0;
  std::uint32_t next_ = 0;
  std::uint64_t dynamic_used_ = 0;
  bool reserved_ = false;
  std::uint32_t speculation_ = 0;            // the token of what speculate() named
  std::optional<std::int64_t> exit_status_;  // holds once the clause ends without a fault
  Outcome outcome_ = Outcome::kDone;
};

}  // namespace trapline::interp
