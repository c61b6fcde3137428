// See stack_bound.h.

#include "codegen/stack_bound.h"

#include <algorithm>

namespace trapline::codegen {
namespace {

constexpr std::uint32_t kReturnAddress = 8;
constexpr unsigned kMaxDepth = 16;

Result<std::uint32_t> bound(const std::string& function, const CallGraph& calls,
                            const std::map<std::string, std::uint32_t>& frames, unsigned depth) {
  if (depth > kMaxDepth)
    return Error(ErrorCode::kInternal, "code generation: calls nested without end");
  const auto frame = frames.find(function);
  const auto called = calls.find(function);
  if (frame == frames.end() || called == calls.end()) {
    return Error(ErrorCode::kInternal,
                 "code generation: the stack that " + function + " uses is unknown");
  }
  std::uint32_t deepest = 0;
  for (const std::string& callee : called->second) {
    TL_TRY_ASSIGN(const std::uint32_t below, bound(callee, calls, frames, depth + 1));
    deepest = std::max(deepest, below);
  }
  return kReturnAddress + frame->second + deepest;
}

}  // namespace

Result<std::uint32_t> stack_bound(const std::string& body, const CallGraph& calls,
                                  const std::map<std::string, std::uint32_t>& frames) {
  return bound(body, calls, frames, 0);
}

}  // namespace trapline::codegen
