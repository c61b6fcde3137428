// Facts about a module's code that a patcher must know and that symbols do not tell.
//
// Problem: a jump laid over instructions must not cover a place that control reaches in another
// way: a landing pad of an exception, the abort handler of a restartable sequence, a PLT stub.
// Approach: .eh_frame's FDEs give the extent of every function with unwind information, and their
// LSDAs the landing pads; `__rseq_cs` gives the restartable sequences; the section table gives the
// PLTs. Limits: landing pads come from .eh_frame only (not .debug_frame), at most kMaxFrames FDEs;
// what could not be decoded is counted in `undecoded`, so that a caller can be careful instead of
// wrong. Sources: LSB "Exception Frames"; Itanium C++ ABI exception tables (LSDA); x86-64
// psABI 4.2.4; rseq(2).

#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "symbols/elf_image.h"

namespace trapline::symbols {

struct RseqSection {
  AddressRange code;       // [start_ip, start_ip + post_commit_offset)
  LinkAddr abort_handler;  // the 4 bytes before it are the signature: never to be patched
};

struct ExceptionFrames {
  std::vector<AddressRange>
      functions;  // the FDEs' ranges, ascending; one function may have several (.cold)
  std::vector<LinkAddr> landing_pads;  // ascending, no duplicates
  std::uint64_t undecoded = 0;         // FDEs or LSDAs that could not be read
};

struct CodeFacts {
  ExceptionFrames frames;
  std::vector<AddressRange> plt;  // .plt, .plt.sec, .plt.got, .iplt; ascending
  std::vector<RseqSection> rseq;
};

inline constexpr std::uint64_t kMaxFrames = 4'000'000;

// Never fails: what is missing or broken shows as empty lists and `undecoded`.
ExceptionFrames read_exception_frames(const ElfImage& image);
std::vector<AddressRange> plt_ranges(const ElfImage& image);
std::vector<RseqSection> rseq_sections(const ElfImage& image);
CodeFacts read_code_facts(const ElfImage& image);
// Whether Go's compiler made its code, or some of it: it has Go's table of functions.
bool is_go(const ElfImage& image);

}  // namespace trapline::symbols
