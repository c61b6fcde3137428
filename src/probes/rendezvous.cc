#include "probes/rendezvous.h"

#include <linux/futex.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace trapline::probes {

namespace {

static_assert(offsetof(wire::ProbeSite, arena) == 0 && offsetof(wire::ProbeSite, alive) == 8 &&
              wire::kActive == 1 && wire::kRequestSeen == 0x80000000);

constexpr std::uint32_t kCloneThread = 0x10000;  // CLONE_THREAD

// glibc's fork() runs handlers before it calls _Fork(); older ones have no _Fork. posix_spawn() and
// those that are built on it (system, popen) call clone by a name that is not exported.
constexpr RendezvousFunction kFunctions[] = {
    {RendezvousKind::kExec, "execve"},       {RendezvousKind::kExec, "execveat"},
    {RendezvousKind::kExec, "fexecve"},      {RendezvousKind::kLoad, "_dl_debug_state"},
    {RendezvousKind::kFork, "_Fork"},        {RendezvousKind::kFork, "fork", "_Fork"},
    {RendezvousKind::kFork, "vfork"},        {RendezvousKind::kFork, "posix_spawn"},
    {RendezvousKind::kFork, "posix_spawnp"}, {RendezvousKind::kClone, "clone"},
};

// Code with jumps to places that are named.
class Code {
 public:
  Code& code(std::initializer_list<std::uint8_t> values) {
    for (const std::uint8_t value : values) bytes_.push_back(static_cast<std::byte>(value));
    return *this;
  }
  Code& u32(std::uint64_t value) {
    bytes_.resize(bytes_.size() + 4);
    put(bytes_.size() - 4, static_cast<std::uint32_t>(value));
    return *this;
  }
  Code& u8(std::uint64_t value) {
    bytes_.push_back(static_cast<std::byte>(value));
    return *this;
  }
  // The displacement of a jump.
  Code& to(std::string_view label) {
    u32(0);
    jumps_.emplace_back(bytes_.size(), label);
    return *this;
  }
  Code& label(std::string_view name) {
    labels_[name] = bytes_.size();
    return *this;
  }
  std::vector<std::byte> take() {
    for (const auto& [end, label] : jumps_) {
      TL_CHECK(labels_.contains(label));
      put(end - 4, static_cast<std::uint32_t>(labels_[label] - end));
    }
    return std::move(bytes_);
  }

 private:
  void put(std::size_t at, std::uint32_t value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(value));
  }
  std::vector<std::byte> bytes_;
  std::vector<std::pair<std::size_t, std::string_view>> jumps_;  // end of the instruction
  std::map<std::string_view, std::size_t> labels_;
};

}  // namespace

wire::Request request_of(RendezvousKind kind) {
  switch (kind) {
    case RendezvousKind::kExec:
      return wire::kExecRequest;
    case RendezvousKind::kLoad:
      return wire::kLoadRequest;
    default:
      return wire::kForkRequest;
  }
}

std::span<const RendezvousFunction> rendezvous_functions() { return kFunctions; }

// r8: the arena. [rsp]: struct timespec, the deadline; [rsp+16]: this thread's id; [rsp+20]:
// whether the deadline was put off.
std::vector<std::byte> rendezvous_stub(RendezvousKind kind) {
  constexpr std::uint64_t state = offsetof(wire::Header, state);
  constexpr std::uint64_t pid = offsetof(wire::Header, pid);
  constexpr std::uint64_t bell = offsetof(wire::Header, doorbell);
  const std::uint64_t word =
      offsetof(wire::Header, requests) + request_of(kind) * sizeof(wire::RequestWord);
  const std::uint64_t thread = word + offsetof(wire::RequestWord, thread);
  const std::uint64_t missed = word + offsetof(wire::RequestWord, missed);
  constexpr std::uint64_t wait_ns = std::chrono::nanoseconds(kRendezvousWait).count();
  constexpr std::uint64_t second = 1'000'000'000;
  Code c;
  c.code({0x50, 0x51, 0x52, 0x56, 0x57});              // push rax, rcx, rdx, rsi, rdi
  c.code({0x41, 0x50, 0x41, 0x51, 0x41, 0x52});        // push r8, r9, r10
  c.code({0x49, 0x8b, 0x42, 0x08});                    // mov rax, [r10+8]          alive
  c.code({0x83, 0x38, 0x00, 0x0f, 0x84}).to("out");    // cmp dword [rax], 0; je out
  c.code({0x4d, 0x8b, 0x02});                          // mov r8, [r10]             the arena
  c.code({0x41, 0xf6, 0x80}).u32(state).code({0x01});  // test byte [r8+state], kActive
  c.code({0x0f, 0x84}).to("out");                      // je out
  if (kind == RendezvousKind::kClone) {
    c.code({0xf7, 0xc2}).u32(kCloneThread);  // test edx, CLONE_THREAD
    c.code({0x0f, 0x85}).to("out");          // jne out
  }
  c.code({0xb8}).u32(39).code({0x0f, 0x05});                  // mov eax, getpid; syscall
  c.code({0x41, 0x3b, 0x80}).u32(pid);                        // cmp eax, [r8+pid]
  c.code({0x0f, 0x85}).to("out");                             // jne out
  c.code({0x41, 0x81, 0xb8}).u32(missed).u32(kMissesInARow);  // cmp dword [r8+missed], misses
  c.code({0x0f, 0x83}).to("out");                             // jae out
  c.code({0x48, 0x83, 0xec, 0x20});                           // sub rsp, 32
  c.code({0xb8}).u32(186).code({0x0f, 0x05});                 // mov eax, gettid; syscall
  c.code({0x89, 0x44, 0x24, 0x10});                           // mov [rsp+16], eax
  c.code({0xc7, 0x44, 0x24, 0x14}).u32(0);                    // mov dword [rsp+20], 0
  c.code({0xb8}).u32(228).code({0xbf}).u32(1);                // mov eax, clock_gettime; mov edi, 1
  c.code({0x48, 0x89, 0xe6, 0x0f, 0x05});                     // mov rsi, rsp; syscall
  c.code({0x48, 0x81, 0x44, 0x24, 0x08}).u32(wait_ns);        // add qword [rsp+8], wait
  c.code({0x48, 0x81, 0x7c, 0x24, 0x08}).u32(second);         // cmp qword [rsp+8], 1e9
  c.code({0x0f, 0x82}).to("claim");                           // jb claim
  c.code({0x48, 0x81, 0x6c, 0x24, 0x08}).u32(second);         // sub qword [rsp+8], 1e9
  c.code({0x48, 0x83, 0x04, 0x24, 0x01});                     // add qword [rsp], 1
  c.label("claim");
  c.code({0x31, 0xc0, 0x8b, 0x54, 0x24, 0x10});        // xor eax, eax; mov edx, [rsp+16]
  c.code({0xf0, 0x41, 0x0f, 0xb1, 0x90}).u32(thread);  // lock cmpxchg [r8+thread], edx
  c.code({0x0f, 0x84}).to("ring");                     // je ring
  c.code({0x89, 0xc2, 0xe8}).to("wait");               // mov edx, eax; call wait
  c.code({0x83, 0xf8}).u8(static_cast<std::uint8_t>(-ETIMEDOUT));  // cmp eax, -ETIMEDOUT
  c.code({0x0f, 0x85}).to("claim");                                // jne claim
  c.code({0xe9}).to("miss");                                       // jmp miss
  c.label("ring");
  c.code({0xf0, 0x41, 0x83, 0x80}).u32(bell).code({0x01});  // lock add dword [r8+bell], 1
  c.code({0x49, 0x8d, 0xb8}).u32(bell);                     // lea rdi, [r8+bell]
  c.code({0xbe}).u32(FUTEX_WAKE);                           // mov esi, FUTEX_WAKE (edx >= 1)
  c.code({0xb8}).u32(202).code({0x0f, 0x05});               // mov eax, futex; syscall
  c.label("look");
  c.code({0x41, 0x8b, 0x90}).u32(thread);                         // mov edx, [r8+thread]
  c.code({0x89, 0xd0, 0x25}).u32(~wire::kRequestSeen);            // mov eax, edx; and eax, ~seen
  c.code({0x3b, 0x44, 0x24, 0x10, 0x0f, 0x85}).to("done");        // cmp eax, [rsp+16]; jne done
  c.code({0x85, 0xd2, 0x0f, 0x89}).to("stay");                    // test edx, edx; jns stay
  c.code({0x83, 0x7c, 0x24, 0x14, 0x00, 0x0f, 0x85}).to("stay");  // cmp dword [rsp+20], 0; jne stay
  c.code({0xc7, 0x44, 0x24, 0x14}).u32(1);                        // mov dword [rsp+20], 1
  c.code({0x48, 0x83, 0x04, 0x24}).u8(kSeenWait.count());         // add qword [rsp], seen wait
  c.label("stay");
  c.code({0xe8}).to("wait");                                       // call wait
  c.code({0x83, 0xf8}).u8(static_cast<std::uint8_t>(-ETIMEDOUT));  // cmp eax, -ETIMEDOUT
  c.code({0x0f, 0x85}).to("look");                                 // jne look
  c.code({0x89, 0xd0, 0x31, 0xc9});                                // mov eax, edx; xor ecx, ecx
  c.code({0xf0, 0x41, 0x0f, 0xb1, 0x88}).u32(thread);              // lock cmpxchg [r8+thread], ecx
  c.code({0x0f, 0x85}).to("look");                                 // jne look      seen just now
  c.label("miss");
  c.code({0xf0, 0x41, 0x83, 0x80}).u32(missed).code({0x01});  // lock add dword [r8+missed], 1
  c.label("done");
  c.code({0x48, 0x83, 0xc4, 0x20});  // add rsp, 32
  c.label("out");
  c.code({0x41, 0x5a, 0x41, 0x59, 0x41, 0x58});  // pop r10, r9, r8
  c.code({0x5f, 0x5e, 0x5a, 0x59, 0x58, 0xc3});  // pop rdi, rsi, rdx, rcx, rax; ret
  // Waits while the word is edx; the answer in eax. The deadline lies above the return address.
  c.label("wait");
  c.code({0x49, 0x8d, 0xb8}).u32(thread);                       // lea rdi, [r8+thread]
  c.code({0xbe}).u32(FUTEX_WAIT_BITSET);                        // mov esi, FUTEX_WAIT_BITSET
  c.code({0x4c, 0x8d, 0x54, 0x24, 0x08});                       // lea r10, [rsp+8]
  c.code({0x41, 0xb9}).u32(FUTEX_BITSET_MATCH_ANY);             // mov r9d, any
  c.code({0xb8}).u32(202).code({0x0f, 0x05});                   // mov eax, futex; syscall
  c.code({0x85, 0xc0, 0x0f, 0x84}).to("waited");                // test eax, eax; je waited
  c.code({0x83, 0xf8}).u8(static_cast<std::uint8_t>(-EINTR));   // cmp eax, -EINTR
  c.code({0x0f, 0x84}).to("waited");                            // je waited
  c.code({0x83, 0xf8}).u8(static_cast<std::uint8_t>(-EAGAIN));  // cmp eax, -EAGAIN
  c.code({0x0f, 0x84}).to("waited");                            // je waited
  c.code({0xb8}).u32(static_cast<std::uint32_t>(-ETIMEDOUT));   // mov eax, -ETIMEDOUT
  c.label("waited");
  c.code({0xc3});  // ret
  return c.take();
}

}  // namespace trapline::probes
