// Does one instruction for a thread that stands before it, instead of the thread itself.
//
// A breakpoint hides the instruction that it stands on. Most functions begin and end with one of a
// few, whose effect is on registers and on the thread's own stack alone; these are done here, and
// the thread never has to be stepped:
//   nop endbr64 push pop pushfq leave ret call jmp jcc loop jrcxz
//   mov movzx movsx movsxd lea add sub cmp and or xor test, on registers, immediates and (to read)
//   operands that rsp leads to
// Everything else is kUnknown. So is each other access to memory, although it would be simple: the
// thread's would be one access, where ours are copies that another thread could see half done.
// Source: Intel SDM vol. 2. AF after and, or, xor and test is undefined there; it is cleared.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trapline::isa {

struct MachineState {
  std::array<std::uint64_t, 16> general{};  // as decode.h numbers them
  std::uint64_t pc = 0;
  std::uint64_t flags = 0;
};

// The stack of the thread; false: not there, or not as wanted.
class MachineStack {
 public:
  virtual ~MachineStack() = default;
  virtual bool read(std::uint64_t address, std::span<std::byte> out) = 0;
  virtual bool write(std::uint64_t address, std::span<const std::byte> bytes) = 0;
};

// kNoStack: the stack cannot be accessed; the thread itself would perhaps fault, or the stack grow.
enum class Emulated : std::uint8_t { kDone, kUnknown, kNoStack };

// The instruction at state.pc, which `bytes` begin with. Whatever is not kDone has changed nothing.
Emulated emulate(std::span<const std::byte> bytes, MachineState& state, MachineStack& stack);

// For a direct branch: whether it would be taken. Other instructions: true.
bool is_taken(std::span<const std::byte> bytes, const MachineState& state);

}  // namespace trapline::isa
