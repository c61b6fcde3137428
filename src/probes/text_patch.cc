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
  RemoteAddr end;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (runs.empty() || (pieces[i].at > end && pieces[i].at - end > kLargestGap)) {
      runs.push_back({i, i, pieces[i].at, {}});
      end = pieces[i].at;
    }
    end = std::max(end, end_of(pieces[i]));
    runs.back().last = i + 1;
    runs.back().bytes.resize(end - runs.back().start);
  }
  return runs;
}

bool stands(const Run& run, const Piece& piece, std::span<const std::byte> bytes) {
  return std::memcmp(run.bytes.data() + (piece.at - run.start), bytes.data(), bytes.size()) == 0;
}

Result<> write_turn(target::Memory& memory, std::span<Run> runs, std::span<const Piece> pieces,
                    const std::vector<bool>& replaced, Turn turn) {
  for (Run& run : runs) {
    bool changed = false;
    for (std::size_t i = run.first; i < run.last; ++i) {
      const Piece& piece = pieces[i];
      if (piece.turn != turn || !replaced[piece.group]) continue;
      std::memcpy(run.bytes.data() + (piece.at - run.start), piece.replacement.data(),
                  piece.replacement.size());
      changed = true;
    }
    if (changed) TL_TRY(memory.write(run.start, run.bytes));
  }
  return {};
}

}  // namespace

Result<std::vector<bool>> replace_pieces(target::Memory& memory, std::vector<Piece> pieces,
                                         AlreadyThere already_there) {
  if (pieces.empty()) return std::vector<bool>{};
  std::ranges::sort(pieces, {}, &Piece::at);
  std::vector<bool> replaced(std::ranges::max(pieces, {}, &Piece::group).group + 1, true);
  std::vector<Run> runs = runs_of(pieces);
  std::vector<target::ReadRequest> reads;
  for (Run& run : runs) reads.push_back({run.start, run.bytes});
  TL_TRY(memory.read_all(reads));
  for (const Run& run : runs) {
    for (std::size_t i = run.first; i < run.last; ++i) {
      const Piece& piece = pieces[i];
      const bool found =
          stands(run, piece, piece.expected) ||
          (already_there == AlreadyThere::kIsFine && stands(run, piece, piece.replacement));
      if (!found) replaced[piece.group] = false;
    }
  }
  for (const Turn turn : {Turn::kFirst, Turn::kSecond, Turn::kThird})
    TL_TRY(write_turn(memory, runs, pieces, replaced, turn));
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

std::vector<target::AddressRange> pages_of(std::vector<Piece> pieces) {
  std::ranges::sort(pieces, {}, &Piece::at);
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
