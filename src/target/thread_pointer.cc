#include "target/thread_pointer.h"

#include <sys/ptrace.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace trapline::target {
namespace {

constexpr std::size_t kSearched = 0x800;

// struct rseq's cpu_id; cpu_id_start comes first.
constexpr std::int64_t kCpuInRseq = 4;

// From the thread pointer to cpu_id of a stopped thread; 0: none.
std::int32_t cpu_offset_of(Tid tid, RemoteAddr pointer) {
  __ptrace_rseq_configuration rseq{};
  if (::ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid.value, sizeof rseq, &rseq) < 0) return 0;
  if (rseq.rseq_abi_pointer == 0) return 0;
  const std::int64_t offset =
      static_cast<std::int64_t>(rseq.rseq_abi_pointer - pointer.value()) + kCpuInRseq;
  return static_cast<std::int32_t>(offset) == offset ? static_cast<std::int32_t>(offset) : 0;
}

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
    const std::int32_t cpu_offset = cpu_offset_of(t.tid, pointer);
    out.cpu_offset = first || cpu_offset == out.cpu_offset ? cpu_offset : 0;
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
