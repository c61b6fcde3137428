// Which implementation an IFUNC symbol stands for in a running process.
//
// Problem: strlen of libc is an STT_GNU_IFUNC: its address is a resolver that ran once, at load
// time or at the first call, and returned __strlen_avx2 or another, depending on CPU and tunables.
// A probe on `strlen` belongs at what it returned. Approach: never call or emulate the resolver;
// read what it returned. Evidence, all in the target's memory:
//   1. IRELATIVE slots of the defining module whose addend is the resolver. They are filled before
//   any code
//      of the module runs, also with lazy binding (glibc's elf_machine_lazy_rel), so libc's own
//      uses tell most of it.
//   2. GLOB_DAT and R_X86_64_64 slots, in any module, that name the symbol (and its version).
//   3. JUMP_SLOT slots likewise; one that still points into its own module's PLT is not bound and
//   tells nothing. A value of 2 or 3 outside the defining module's code and the vDSO is another
//   definition (interposition): no evidence. The vDSO counts, as glibc's `time` and `gettimeofday`
//   are IFUNCs whose resolvers return __vdso_time, ...
// Where there is no evidence, nobody has called the function through a slot yet. Then the
// candidates are what the resolver can return: function starts (by symbol or FDE) that it takes by
// `lea reg, [rip+disp]`, `mov reg, imm` or from the GOT, and the vDSO's function of that name.
// Arming all of them counts right, since only one of them will be called under this name; but it is
// not proven that the list is complete, and the result says so (kCandidates). A single candidate is
// none: the resolver has a choice, and the other part of it was not seen (kUnknown). Limits:
// implementations are shared (memcpy and memmove are one code in glibc): a probe on one counts the
// other, as with any alias in DTrace; `also` names them. A program may also keep a pointer from
// dlsym() only.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "symbols/code_facts.h"
#include "symbols/elf_image.h"
#include "symbols/symbol_table.h"

namespace trapline::symbols {

enum class IfuncCertainty : std::uint8_t {
  kBound,       // read from slots in memory
  kCandidates,  // no slot is bound: all that the resolver can return, as far as can be seen
  kUnknown,     // neither
};

struct IfuncChoice {
  std::string_view name;  // views into the defining module's table
  std::string_view version;
  LinkAddr resolver;
  IfuncCertainty certainty = IfuncCertainty::kUnknown;
  std::vector<RemoteAddr>
      implementations;                 // in the defining module or the vDSO; ascending; usually one
  std::vector<std::string_view> also;  // other IFUNC names that share one of them
  std::string note;                    // for people: the evidence, or why there is none
};

struct LoadedImage {
  const ElfImage* image = nullptr;
  LoadBias bias;
};

// One choice for each IFUNC name (and version) of `definer`; `loaded` are all modules, the definer
// among them. The memory is read through `memory` in one pass a module. Unreadable slots are no
// evidence.
std::vector<IfuncChoice> choose_ifuncs(const LoadedImage& definer, const SymbolTable& symbols,
                                       std::span<const LoadedImage> loaded,
                                       const MemoryReader& memory);

// What the resolver at `resolver` can return, read from its code; ascending, possibly empty.
std::vector<LinkAddr> resolver_candidates(const ElfImage& image, const SymbolTable& symbols,
                                          const ExceptionFrames& frames, LinkAddr resolver);

}  // namespace trapline::symbols
