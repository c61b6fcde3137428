#include "target/stack_scan.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include "target/text.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kRedZone = 128;
constexpr std::size_t kBlockWords = 64 * 1024;
// cs, gs, fs, ss of 64-bit code as they lie in a signal frame's sigcontext; rsp is 3 words before,
// rip 2.
constexpr std::uint64_t kFrameSegments = 0x002b'0000'0000'0033;
constexpr std::size_t kMaxStacks = 16;  // of one thread: signal frames may nest
constexpr auto kMovePause = 5us;        // longer by this with each try
constexpr auto kMoveTimeout = 1s;

std::optional<std::size_t> range_of(std::span<const AddressRange> ranges, RemoteAddr value) {
  const auto it = std::ranges::upper_bound(ranges, value, {}, &AddressRange::start);
  if (it == ranges.begin() || !std::prev(it)->contains(value)) return std::nullopt;
  return static_cast<std::size_t>(std::prev(it) - ranges.begin());
}

class Scanner {
 public:
  Scanner(const Memory& memory, std::span<const Mapping> maps, std::span<const AddressRange> ranges,
          const ScanOptions& options)
      : memory_(memory), maps_(maps), ranges_(ranges), options_(options), words_(kBlockWords) {
    if (!ranges.empty())
      lowest_ = ranges.front().start.value(), span_ = ranges.back().end.value() - lowest_;
  }

  void thread(const StoppedThread& t);
  void memory(Tid tid, AddressRange range);
  ScanResult take() { return std::move(result_); }

 private:
  void block(Tid tid, RemoteAddr at, std::span<const std::uint64_t> words);
  void stack(Tid tid, RemoteAddr sp);
  void pc(Tid tid, RemoteAddr value);

  const Memory& memory_;
  std::span<const Mapping> maps_;
  std::span<const AddressRange> ranges_;
  const ScanOptions& options_;
  std::uint64_t lowest_ = 0, span_ = 0;
  std::vector<std::uint64_t> words_;
  std::vector<RemoteAddr>
      more_stacks_;  // stack pointers saved in signal frames of the thread being scanned
  std::set<RemoteAddr> scanned_;  // mappings of its stacks
  ScanResult result_;
};

void Scanner::pc(Tid tid, RemoteAddr value) {
  if (const auto range = range_of(ranges_, value)) {
    result_.hits.push_back({tid, ScanHit::Where::kPc, value, RemoteAddr(0), *range});
  }
}

void Scanner::thread(const StoppedThread& t) {
  pc(t.tid, t.registers.pc());
  if (t.registers.restarts_system_call()) pc(t.tid, t.registers.resume_pc());
  scanned_.clear();
  more_stacks_.assign(1, t.registers.sp());
  for (std::size_t i = 0; i < more_stacks_.size(); ++i) {
    if (i == kMaxStacks) {
      result_.complete = false;
      break;
    }
    stack(t.tid, more_stacks_[i]);
  }
}

// From the red zone to the end of the mapping. A stack pointer that leads to no memory (a thread
// about to be killed by it) has nothing to be scanned.
void Scanner::stack(Tid tid, RemoteAddr sp) {
  const Mapping* m = find_mapping(maps_, sp);
  if (m == nullptr) m = find_mapping(maps_, sp - 1);  // empty: at the very end of its memory
  if (m == nullptr || !scanned_.insert(m->range.start).second) return;
  const RemoteAddr from = std::max(m->range.start, RemoteAddr((sp.value() - kRedZone) & ~7ull));
  memory(tid, {from, m->range.end});
}

void Scanner::memory(Tid tid, AddressRange range) {
  if (range.size() > options_.max_stack) {
    range.end = range.start + options_.max_stack;
    result_.complete = false;
  }
  for (RemoteAddr at = range.start; at < range.end;) {
    const std::size_t want = std::min<std::size_t>((range.end - at) / 8, words_.size());
    if (want == 0) return;
    const auto got = memory_.read_some(at, std::as_writable_bytes(std::span(words_.data(), want)));
    if (!got || *got < 8) {
      result_.complete = false;
      return;
    }
    block(tid, at, {words_.data(), *got / 8});
    at += *got / 8 * 8;
  }
}

void Scanner::block(Tid tid, RemoteAddr at, std::span<const std::uint64_t> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t w = words[i];
    if (w - lowest_ < span_) {
      if (const auto range = range_of(ranges_, RemoteAddr(w))) {
        result_.hits.push_back({tid, ScanHit::Where::kStack, RemoteAddr(w), at + i * 8, *range});
      }
    }
    if (w == kFrameSegments) {
      // A signal frame; the stack that the handler interrupted may be another one.
      const auto sp = memory_.read_value<std::uint64_t>(at + i * 8 - 24);
      if (sp) more_stacks_.push_back(RemoteAddr(*sp));
    }
  }
}

bool inside(std::span<const AddressRange> windows, RemoteAddr pc) {
  const auto i = range_of(windows, pc);
  return i && windows[*i].start != pc;
}

// The threads that have to move, and can.
std::vector<Tid> movable(const StoppedProcess& process, std::span<const AddressRange> windows,
                         std::vector<Tid>& stuck) {
  std::vector<Tid> out;
  stuck.clear();
  for (const StoppedThread& t : process.threads()) {
    if (!inside(windows, t.registers.pc()) && !inside(windows, t.registers.resume_pc())) continue;
    const bool stays = t.group_stopped || t.registers.restarts_system_call();
    (stays ? stuck : out).push_back(t.tid);
  }
  return out;
}

}  // namespace

Result<ScanResult> scan_threads(StoppedProcess& process, std::span<const AddressRange> ranges,
                                const ScanOptions& options) {
  TL_TRY_ASSIGN(const auto maps, process.maps());
  Scanner scanner(process.memory(), maps, ranges, options);
  for (const StoppedThread& t : process.threads()) scanner.thread(t);
  for (const AddressRange& range : options.more_memory) scanner.memory(Tid{0}, range);
  return scanner.take();
}

// Not by single steps: if the tracer died at one, its SIGTRAP would kill the target; and a SIGTRAP
// that is blocked or ignored would lose its handler.
Result<std::vector<Tid>> move_out(StoppedProcess& process, std::span<const AddressRange> windows,
                                  int max_tries) {
  std::vector<Tid> stuck;
  for (int i = 0;; ++i) {
    const std::vector<Tid> moving = movable(process, windows, stuck);
    if (i == max_tries) stuck.insert(stuck.end(), moving.begin(), moving.end());
    if (i == max_tries || moving.empty()) return stuck;
    for (const Tid tid : moving) {
      const auto ran =
          process.tracees().run_briefly(tid, kMovePause * i, Clock::now() + kMoveTimeout);
      if (!ran && ran.error().code() != ErrorCode::kTargetGone) return ran.error();
    }
    TL_TRY(process.settle());
  }
}

}  // namespace trapline::target
