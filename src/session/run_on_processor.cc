#include "session/run_on_processor.h"

#include <algorithm>
#include <cstddef>

namespace trapline::session {

namespace {

// The kernel wants a mask for as many processors as it was built for; nobody has more than this.
constexpr std::size_t kMostProcessors = 1 << 16;
constexpr std::size_t kSets = kMostProcessors / CPU_SETSIZE;
constexpr std::size_t kBytes = kSets * sizeof(cpu_set_t);

std::vector<cpu_set_t> affinity() {
  std::vector<cpu_set_t> mask(kSets);
  if (::sched_getaffinity(0, kBytes, mask.data()) != 0) mask.clear();
  return mask;
}

}  // namespace

RunOnProcessor::RunOnProcessor(std::uint32_t processor) {
  std::vector<cpu_set_t> before = affinity();
  if (processor >= kMostProcessors || before.empty()) return;
  std::vector<cpu_set_t> only(kSets);
  CPU_SET_S(processor, kBytes, only.data());
  if (::sched_setaffinity(0, kBytes, only.data()) != 0) return;
  before_ = std::move(before);
  moved_ = true;
}

RunOnProcessor::~RunOnProcessor() {
  if (moved_) (void)::sched_setaffinity(0, kBytes, before_.data());
}

std::vector<std::uint32_t> allowed_processors() {
  const std::vector<cpu_set_t> mask = affinity();
  std::vector<std::uint32_t> allowed;
  if (mask.empty()) return allowed;
  for (std::uint32_t cpu = 0; cpu < kMostProcessors; ++cpu) {
    if (CPU_ISSET_S(cpu, kBytes, mask.data())) allowed.push_back(cpu);
  }
  return allowed;
}

}  // namespace trapline::session
