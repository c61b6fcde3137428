#include "session/ancestors.h"

namespace trapline::session {

std::vector<std::int32_t> ancestors(Pid pid) {
  std::vector<std::int32_t> all;
  while (pid.value > 0 && all.size() < wire::kAncestors) {
    all.push_back(pid.value);
    const auto stat = target::read_stat(pid);
    if (!stat) break;
    pid = stat->parent;
  }
  return all;
}

}  // namespace trapline::session
