// The numbers of uregs[]: those of Oracle's DTrace, the order of the kernel's struct pt_regs.

#pragma once

#include <cstdint>

namespace trapline::plan {

enum class UserRegister : std::uint8_t {
  kR15,
  kR14,
  kR13,
  kR12,
  kRbp,
  kRbx,
  kR11,
  kR10,
  kR9,
  kR8,
  kRax,
  kRcx,
  kRdx,
  kRsi,
  kRdi,
  kError,  // of the last system call or fault: the kernel's orig_rax
  kRip,
  kCs,
  kFlags,
  kRsp,
  kSs,
  kDs,
  kEs,
  kFs,
  kGs,
  kTrap,  // the last trap's number
};
inline constexpr std::uint32_t kUserRegisters = 26;

}  // namespace trapline::plan
