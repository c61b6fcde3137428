#include "target/thread_pointer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace trapline::target {
namespace {

constexpr std::size_t kSearched = 0x800;

}  // namespace

Result<ThreadPointers> read_thread_pointers(StoppedProcess& process) {
  ThreadPointers out;
  std::vector<std::uint32_t> candidates;
  bool first = true;
  for (const StoppedThread& t : process.threads()) {
    const RemoteAddr pointer(t.registers.fs_base());
    ThreadPointers::Entry entry{t.tid, pointer, false};
    if (pointer.value() == 0) {
      out.threads.push_back(entry);
      continue;
    }
    std::array<std::uint32_t, kSearched / 4> words{};
    const auto got = process.memory().read_some(pointer, std::as_writable_bytes(std::span(words)));
    if (!got) return got.error();
    const std::size_t count = *got / 4;
    std::uint64_t self = 0;
    if (*got >= sizeof self) std::memcpy(&self, words.data(), sizeof self);
    entry.self_pointer = self == pointer.value();
    out.threads.push_back(entry);
    if (first) {
      for (std::size_t i = 2; i < count; ++i) candidates.push_back(static_cast<std::uint32_t>(i));
      first = false;
    }
    std::erase_if(candidates, [&](std::uint32_t i) {
      return i >= count || words[i] != static_cast<std::uint32_t>(t.tid.value);
    });
  }
  if (candidates.size() == 1) out.tid_offset = candidates.front() * 4;
  return out;
}

}  // namespace trapline::target
