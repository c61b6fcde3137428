#include "probes/text_patch.h"

#include <algorithm>
#include <cstring>

#include "wire/arena.h"

namespace trapline::probes {

namespace {

constexpr std::uint64_t kPage = wire::kPageSize;
// Pieces further apart than this are not written in one run.
constexpr std::uint64_t kLargestGap = 2 * kPage;

// Consecutive pieces that are read and written together.
struct Run {
  std::size_t first = 0;  // pieces [first, last)
  std::size_t last = 0;
  RemoteAddr start;
  std::vector<std::byte> bytes;
};

RemoteAddr end_of(const Piece& piece) { return piece.at + piece.expected.size(); }

std::vector<Run> runs_of(std::span<const Piece> pieces) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (runs.empty() || pieces[i].at - end_of(pieces[i - 1]) > kLargestGap) {
      runs.push_back({i, i, pieces[i].at, {}});
    }
    runs.back().last = i + 1;
  }
  for (Run& run : runs) run.bytes.resize(end_of(pieces[run.last - 1]) - run.start);
  return runs;
}

}  // namespace

Result<std::vector<bool>> replace_pieces(target::Memory& memory, std::span<const Piece> pieces) {
  std::vector<bool> replaced(pieces.size(), false);
  std::vector<Run> runs = runs_of(pieces);
  std::vector<target::ReadRequest> reads;
  for (Run& run : runs) reads.push_back({run.start, run.bytes});
  TL_TRY(memory.read_all(reads));
  for (Run& run : runs) {
    bool changed = false;
    for (std::size_t i = run.first; i < run.last; ++i) {
      const Piece& piece = pieces[i];
      std::byte* at = run.bytes.data() + (piece.at - run.start);
      if (std::memcmp(at, piece.expected.data(), piece.expected.size()) != 0) continue;
      std::memcpy(at, piece.replacement.data(), piece.replacement.size());
      replaced[i] = true;
      changed = true;
    }
    if (changed) TL_TRY(memory.write(run.start, run.bytes));
  }
  return replaced;
}

void copy_pages_early(target::Memory& memory, std::span<const QuietByte> bytes) {
  std::vector<std::byte> present(bytes.size());
  std::vector<target::ReadRequest> reads;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    reads.push_back({bytes[i].at, std::span(present).subspan(i, 1)});
  if (!memory.read_all(reads)) return;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (present[i] == bytes[i].value)
      (void)memory.write(bytes[i].at, std::span(&bytes[i].value, 1));
  }
}

std::vector<target::AddressRange> pages_of(std::span<const Piece> pieces) {
  std::vector<target::AddressRange> pages;
  for (const Piece& piece : pieces) {
    const RemoteAddr start(piece.at.value() / kPage * kPage);
    const RemoteAddr end((end_of(piece).value() + kPage - 1) / kPage * kPage);
    if (!pages.empty() && start <= pages.back().end) {
      pages.back().end = std::max(pages.back().end, end);
    } else {
      pages.push_back({start, end});
    }
  }
  return pages;
}

}  // namespace trapline::probes
