// Changing many small pieces of a process's text in one go, while it is stopped.
//
// A system call a piece would take too long with thousands of them, so pages are read and written
// in runs: what lies between the pieces is written back as it was read, a moment before.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/memory.h"
#include "target/process.h"

namespace trapline::probes {

// When a piece is written, within the one stop: a jump is never there before what it leads to.
enum class Turn : std::uint8_t { kFirst, kSecond, kThird };

struct Piece {
  RemoteAddr at;
  std::span<const std::byte>
      expected;  // bytes that must be there, at least as many as the replacement
  std::span<const std::byte> replacement;
  std::uint32_t group = 0;  // those of one group are replaced together or not at all
  Turn turn = Turn::kFirst;
};

// Whether a piece counts as found where its replacement stands already.
enum class AlreadyThere : std::uint8_t { kIsForeign, kIsFine };

// Replaces the pieces of each group whose expected bytes are all there. `pieces` come in any order;
// their replacements do not overlap. Returns, by group (0 to the highest), whether it was replaced.
// Errors: a page could not be read or written (what was written before that is found by reading
// again).
Result<std::vector<bool>> replace_pieces(target::Memory& memory, std::vector<Piece> pieces,
                                         AlreadyThere already_there = AlreadyThere::kIsForeign);

// A byte of text that nobody but us would ever change: inside an instruction, where no breakpoint
// is laid.
struct QuietByte {
  RemoteAddr at;
  std::byte value{};
};

// Makes the pages' private copies while the process runs, by writing each byte as it is: with
// thousands of sites that takes milliseconds, which are then not spent while it is stopped. Bytes
// that are not as expected are left alone; failures are left to the patching itself.
void copy_pages_early(target::Memory& memory, std::span<const QuietByte> bytes);

// The whole pages that the pieces lie in, merged.
std::vector<target::AddressRange> pages_of(std::vector<Piece> pieces);

}  // namespace trapline::probes
