#include "interp/environment.h"

#include <algorithm>
#include <cstring>

namespace trapline::interp {
namespace {
constexpr std::uint64_t kPage = 4096;
}

std::optional<std::size_t> Environment::read_target_string(RemoteAddr address,
                                                           std::span<std::byte> out) {
  std::size_t have = 0;
  while (have < out.size()) {
    // No read crosses a page: what follows the string may not be mapped.
    const std::uint64_t at = address.value() + have;
    const auto piece =
        out.subspan(have, std::min<std::size_t>(out.size() - have, kPage - at % kPage));
    if (!read_target(RemoteAddr(at), piece)) return std::nullopt;
    if (const void* nul = std::memchr(piece.data(), 0, piece.size())) {
      return have + static_cast<std::size_t>(static_cast<const std::byte*>(nul) - piece.data());
    }
    have += piece.size();
  }
  return have;
}

}  // namespace trapline::interp
