#include "session/user_registers.h"

#include <ucontext.h>

namespace trapline::session {

std::optional<std::uint64_t> register_of(const ::user_regs_struct& r, plan::UserRegister which) {
  using enum plan::UserRegister;
  switch (which) {
    case kR15:
      return r.r15;
    case kR14:
      return r.r14;
    case kR13:
      return r.r13;
    case kR12:
      return r.r12;
    case kRbp:
      return r.rbp;
    case kRbx:
      return r.rbx;
    case kR11:
      return r.r11;
    case kR10:
      return r.r10;
    case kR9:
      return r.r9;
    case kR8:
      return r.r8;
    case kRax:
      return r.rax;
    case kRcx:
      return r.rcx;
    case kRdx:
      return r.rdx;
    case kRsi:
      return r.rsi;
    case kRdi:
      return r.rdi;
    case kError:
      return r.orig_rax;
    case kRip:
      return r.rip;
    case kCs:
      return r.cs;
    case kFlags:
      return r.eflags;
    case kRsp:
      return r.rsp;
    case kSs:
      return r.ss;
    case kDs:
      return r.ds;
    case kEs:
      return r.es;
    case kFs:
      return r.fs;
    case kGs:
      return r.gs;
    case kTrap:
      return std::nullopt;
  }
  return std::nullopt;
}

::user_regs_struct own_registers() {
  ::ucontext_t context{};
  (void)::getcontext(&context);
  const auto& g = context.uc_mcontext.gregs;
  const auto word = [&](int number) { return static_cast<unsigned long long>(g[number]); };
  ::user_regs_struct r{};
  r.r15 = word(REG_R15);
  r.r14 = word(REG_R14);
  r.r13 = word(REG_R13);
  r.r12 = word(REG_R12);
  r.rbp = word(REG_RBP);
  r.rbx = word(REG_RBX);
  r.r9 = word(REG_R9);
  r.r8 = word(REG_R8);
  r.rcx = word(REG_RCX);
  r.rdx = word(REG_RDX);
  r.rsi = word(REG_RSI);
  r.rdi = word(REG_RDI);
  r.rip = word(REG_RIP);
  r.rsp = word(REG_RSP);
  r.orig_rax = ~0ULL;  // it is in no system call
  // What getcontext() leaves out.
  asm volatile("mov %%rax, %0" : "=m"(r.rax));
  asm volatile("mov %%r10, %0" : "=m"(r.r10));
  asm volatile("mov %%r11, %0" : "=m"(r.r11));
  r.eflags = __builtin_ia32_readeflags_u64();
  const auto segments = [&](auto& cs, auto& ss, auto& ds, auto& es, auto& fs, auto& gs) {
    asm volatile("mov %%cs, %k0" : "=r"(cs));
    asm volatile("mov %%ss, %k0" : "=r"(ss));
    asm volatile("mov %%ds, %k0" : "=r"(ds));
    asm volatile("mov %%es, %k0" : "=r"(es));
    asm volatile("mov %%fs, %k0" : "=r"(fs));
    asm volatile("mov %%gs, %k0" : "=r"(gs));
  };
  segments(r.cs, r.ss, r.ds, r.es, r.fs, r.gs);
  return r;
}

std::int64_t kernel_priority(const target::TaskStat& stat) { return stat.priority + 100; }

}  // namespace trapline::session
