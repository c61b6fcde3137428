#include "consume/merge.h"

#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace trapline::consume {

std::vector<Record> merge_by_time(std::vector<std::vector<Record>> sources) {
  if (sources.size() == 1) return std::move(sources.front());
  using Next = std::tuple<std::uint64_t, std::size_t, std::size_t>;  // time, source, index in it
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  std::size_t total = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    total += sources[i].size();
    if (!sources[i].empty()) queue.emplace(sources[i].front().tsc, i, 0);
  }
  std::vector<Record> out;
  out.reserve(total);
  while (!queue.empty()) {
    const auto [tsc, source, index] = queue.top();
    queue.pop();
    out.push_back(std::move(sources[source][index]));
    if (index + 1 < sources[source].size()) {
      queue.emplace(sources[source][index + 1].tsc, source, index + 1);
    }
  }
  return out;
}

}  // namespace trapline::consume
