#include "probes/in_use.h"

#include <algorithm>
#include <cstdint>

namespace trapline::probes {
namespace {

// Bodies call nothing of the target's, and no window holds a call. So an address of ours on a stack
// is alive only if a signal interrupted the thread there: as the saved PC of a signal frame.
// Anything else is a word that was left behind by an earlier call. In the kernel's frame
// (arch/x86/include/asm/sigframe.h, struct sigcontext) the flags and then the code segment follow
// the PC, and the latter is 0x33 for 64-bit code.
constexpr std::uint64_t kSegmentsAfterPc = 16;
constexpr std::uint16_t kUserCodeSegment = 0x33;

}  // namespace

bool is_alive(const target::ScanHit& hit, const target::Memory& memory) {
  if (hit.where == target::ScanHit::Where::kPc) return true;
  const auto segment = memory.read_value<std::uint16_t>(hit.location + kSegmentsAfterPc);
  return segment && *segment == kUserCodeSegment;
}

Result<std::map<pid_t, Presence>> presence(target::StoppedProcess& process,
                                           std::span<const target::AddressRange> ranges) {
  TL_TRY_ASSIGN(const target::ScanResult scan, target::scan_threads(process, ranges));
  std::map<pid_t, Presence> found;
  for (const target::ScanHit& hit : scan.hits) {
    if (!is_alive(hit, process.memory())) continue;
    Presence& known = found[hit.tid.value];
    const bool at_pc = hit.where == target::ScanHit::Where::kPc;
    known = std::max(known, at_pc ? Presence::kPassing : Presence::kInterrupted);
  }
  if (!scan.complete) {
    for (const target::StoppedThread& thread : process.threads())
      found[thread.tid.value] = Presence::kInterrupted;
  }
  return found;
}

Result<bool> nobody_inside(target::StoppedProcess& process,
                           std::span<const target::AddressRange> ranges) {
  TL_TRY_ASSIGN(const target::ScanResult scan, target::scan_threads(process, ranges));
  const auto alive = [&](const target::ScanHit& hit) { return is_alive(hit, process.memory()); };
  return scan.complete && std::ranges::none_of(scan.hits, alive);
}

}  // namespace trapline::probes
