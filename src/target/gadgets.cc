#include "target/gadgets.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trapline::target {
namespace {

constexpr std::size_t kMaxSearched = 32u << 20;
constexpr std::size_t kBlock = 256 * 1024;
constexpr std::size_t kOverlap = 16;

using namespace std::string_view_literals;
constexpr auto kSyscall = "\x0f\x05"sv;
constexpr auto kSyscallReturn = "\x0f\x05\xc3"sv;
constexpr auto kSigreturn = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"sv;  // mov $15,%rax; syscall
constexpr auto kPopRaxReturn = "\x58\xc3"sv;

bool complete(const Gadgets& g) {
  return g.syscall.value() != 0 && g.syscall_return.value() != 0 &&
         (g.sigreturn.value() != 0 || g.pop_rax_return.value() != 0);
}

void search(std::string_view bytes, RemoteAddr at, Gadgets& g) {
  const auto look = [&](std::string_view what, RemoteAddr& where) {
    if (where.value() != 0) return;
    const auto found = bytes.find(what);
    if (found != bytes.npos) where = at + found;
  };
  look(kSyscall, g.syscall);
  look(kSyscallReturn, g.syscall_return);
  look(kSigreturn, g.sigreturn);
  look(kPopRaxReturn, g.pop_rax_return);
}

// Where the instructions most likely are, first.
int rank(const Mapping& m) {
  if (m.path == "[vdso]") return 0;
  const auto name = std::string_view(m.path).substr(m.path.rfind('/') + 1);
  if (name.starts_with("libc.") || name.starts_with("libc-") || name.starts_with("ld-musl"))
    return 1;
  if (name.starts_with("ld-") || name.starts_with("ld.")) return 2;
  return 3;
}

}  // namespace

Gadgets find_gadgets(const Memory& memory, std::span<const Mapping> maps) {
  std::vector<const Mapping*> candidates;
  for (const Mapping& m : maps) {
    if (m.executable && m.readable && (m.is_file() || m.path == "[vdso]")) candidates.push_back(&m);
  }
  std::ranges::sort(candidates, {}, [](const Mapping* m) { return std::pair(rank(*m), m); });
  Gadgets found;
  std::size_t searched = 0;
  std::string block(kBlock + kOverlap, '\0');
  for (const Mapping* m : candidates) {
    for (RemoteAddr at = m->range.start; at < m->range.end; at += kBlock) {
      if (complete(found) || searched > kMaxSearched) return found;
      const std::size_t size = std::min<std::size_t>(m->range.end - at, block.size());
      const auto n = memory.read_some(at, std::as_writable_bytes(std::span(block.data(), size)));
      if (!n) return found;
      searched += *n;
      search(std::string_view(block.data(), *n), at, found);
    }
  }
  return found;
}

bool still_there(const Memory& memory, const Gadgets& g) {
  const auto is = [&](RemoteAddr at, std::string_view what) {
    if (at.value() == 0) return true;
    std::string bytes(what.size(), '\0');
    return memory.read(at, std::as_writable_bytes(std::span(bytes))) && bytes == what;
  };
  return g.syscall.value() != 0 && is(g.syscall, kSyscall) &&
         is(g.syscall_return, kSyscallReturn) && is(g.sigreturn, kSigreturn) &&
         is(g.pop_rax_return, kPopRaxReturn);
}

}  // namespace trapline::target
