#include "probes/rendezvous.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "wire/arena.h"

namespace trapline::probes {

namespace {

static_assert(offsetof(wire::ProbeSite, arena) == 0 && offsetof(wire::ProbeSite, alive) == 8 &&
              wire::kActive == 1);

class Bytes {
 public:
  Bytes& code(std::initializer_list<std::uint8_t> values) {
    for (const std::uint8_t value : values) bytes_.push_back(static_cast<std::byte>(value));
    return *this;
  }
  Bytes& u32(std::uint64_t value) {
    const auto narrow = static_cast<std::uint32_t>(value);
    bytes_.resize(bytes_.size() + 4);
    std::memcpy(bytes_.data() + bytes_.size() - 4, &narrow, 4);
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> rendezvous_stub() {
  constexpr std::uint64_t state = offsetof(wire::Header, state);
  constexpr std::uint64_t pid = offsetof(wire::Header, pid);
  constexpr std::uint64_t request = offsetof(wire::Header, exec_request);
  constexpr std::uint64_t wait_ns = std::chrono::nanoseconds(kRendezvousWait).count();
  Bytes b;
  b.code({0x50, 0x51, 0x52, 0x56, 0x57});               // push rax, rcx, rdx, rsi, rdi
  b.code({0x41, 0x50, 0x41, 0x52});                     // push r8, r10
  b.code({0x49, 0x8b, 0x42, 0x08});                     // mov rax, [r10+8]          alive
  b.code({0x83, 0x38, 0x00, 0x74, 0x5c});               // cmp dword [rax], 0; je out
  b.code({0x4d, 0x8b, 0x02});                           // mov r8, [r10]             the arena
  b.code({0x41, 0xf6, 0x80}).u32(state).code({0x01});   // test byte [r8+state], kActive
  b.code({0x74, 0x4f});                                 // je out
  b.code({0xb8}).u32(39).code({0x0f, 0x05});            // mov eax, getpid; syscall
  b.code({0x41, 0x3b, 0x80}).u32(pid);                  // cmp eax, [r8+pid]
  b.code({0x75, 0x3f});                                 // jne out
  b.code({0xb8}).u32(186).code({0x0f, 0x05});           // mov eax, gettid; syscall
  b.code({0x89, 0xc2, 0x31, 0xc0});                     // mov edx, eax; xor eax, eax
  b.code({0xf0, 0x41, 0x0f, 0xb1, 0x90}).u32(request);  // lock cmpxchg [r8+request], edx
  b.code({0x75, 0x29});  // jne out                   another thread is at it
  b.code({0x68}).u32(wait_ns).code({0x6a, 0x00});  // push ns; push 0           struct timespec
  b.code({0x49, 0x8d, 0xb8}).u32(request);         // lea rdi, [r8+request]
  b.code({0x31, 0xf6, 0x49, 0x89, 0xe2});          // xor esi, esi (FUTEX_WAIT); mov r10, rsp
  b.code({0xb8}).u32(202).code({0x0f, 0x05});      // mov eax, futex; syscall
  b.code({0x58, 0x58});                            // pop rax, rax
  b.code({0x89, 0xd0, 0x31, 0xc9});                // mov eax, edx; xor ecx, ecx
  b.code({0xf0, 0x41, 0x0f, 0xb1, 0x88})
      .u32(request);                             // lock cmpxchg [r8+request], ecx: nobody came
  b.code({0x41, 0x5a, 0x41, 0x58});              // out: pop r10, r8
  b.code({0x5f, 0x5e, 0x5a, 0x59, 0x58, 0xc3});  // pop rdi, rsi, rdx, rcx, rax; ret
  return b.take();
}

}  // namespace trapline::probes
