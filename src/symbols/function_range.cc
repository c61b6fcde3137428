#include <algorithm>

#include "symbols/symbol_table.h"

namespace trapline::symbols {

std::optional<AddressRange> function_range(const SymbolTable& symbols,
                                           const ExceptionFrames& frames, LinkAddr address) {
  const auto named = symbols.at(address);
  for (const Symbol& s : named) {
    if (s.size > 0 && !s.size_guessed) return s.range();
  }
  const auto frame = std::ranges::lower_bound(frames.functions, address, {}, &AddressRange::begin);
  if (frame != frames.functions.end() && frame->begin == address) return *frame;
  for (const Symbol& s : named) {
    if (s.size > 0) return s.range();
  }
  return std::nullopt;
}

}  // namespace trapline::symbols
