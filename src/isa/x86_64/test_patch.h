// For tests only: patches code of this very process and takes the patches back.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isa/x86_64/encode.h"

namespace trapline::isa {

// A sanitizer's runtime lives in the libraries that would be patched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// What a counting body writes; r10 points to it.
struct alignas(64) Counter {
  std::uint64_t hits = 0;
  std::uint64_t last_rdi = 0;
  std::uint64_t last_rsp = 0;  // in the body, the return address on top
};

// inc [r10]; mov [r10+8], rdi; mov [r10+16], rsp; r11 and all flags overwritten; ret.
inline std::vector<std::uint8_t> counting_body() {
  return {0x49, 0xff, 0x02,                          // inc qword [r10]
          0x49, 0x89, 0x7a, 0x08,                    // mov [r10+8], rdi
          0x49, 0x89, 0x62, 0x10,                    // mov [r10+16], rsp
          0x49, 0xc7, 0xc3, 0xad, 0xde, 0xad, 0x5e,  // mov r11, 0x5eaddead
          0x4d, 0x0f, 0xaf, 0xdb,                    // imul r11, r11: CF and OF
          0x49, 0x83, 0xc3, 0x01,                    // add r11, 1: the rest
          0xc3};
}

// Writable and executable pages within reach of `near`.
class CodeArena {
 public:
  CodeArena(std::uint64_t near, std::size_t size) : size_(size) {
    for (std::uint64_t distance = 1 << 20; distance < 0x70000000; distance += 1 << 20) {
      for (const std::uint64_t hint : {near - distance, near + distance}) {
        void* p = ::mmap(reinterpret_cast<void*>(hint & ~std::uint64_t{4095}), size,
                         PROT_READ | PROT_WRITE | PROT_EXEC,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == MAP_FAILED) continue;
        base_ = static_cast<std::byte*>(p);
        return;
      }
    }
  }
  ~CodeArena() {
    if (base_ != nullptr) ::munmap(base_, size_);
  }
  CodeArena(const CodeArena&) = delete;
  CodeArena& operator=(const CodeArena&) = delete;

  bool valid() const { return base_ != nullptr; }
  std::size_t left() const { return size_ - used_; }
  RemoteAddr next() const { return RemoteAddr(reinterpret_cast<std::uint64_t>(base_ + used_)); }
  RemoteAddr add(std::span<const std::byte> bytes) {
    const RemoteAddr at = next();
    std::memcpy(base_ + used_, bytes.data(), bytes.size());
    used_ = (used_ + bytes.size() + 15) & ~std::size_t{15};
    return at;
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
};

// Makes text of this process writable; whole pages around the range.
inline bool make_writable(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t first = begin & ~std::uint64_t{4095};
  const std::uint64_t last = (end + 4095) & ~std::uint64_t{4095};
  return ::mprotect(reinterpret_cast<void*>(first), last - first,
                    PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}

// Without a call in between: what is being patched may be memcpy.
inline void write_patch(std::uint64_t at, std::span<const std::byte> bytes) {
  auto* to = reinterpret_cast<volatile std::byte*>(at);
  for (std::size_t n = 0; n < bytes.size(); ++n) to[n] = bytes[n];
}

struct Patch {
  std::uint64_t at = 0;
  std::vector<std::byte> bytes;
};

// What is to be written for a site, in this order: its island, then the site. Empty: out of reach.
inline std::vector<Patch> patches_of(const SitePlan& plan, LoadBias bias, RemoteAddr trampoline) {
  std::vector<Patch> out;
  if (plan.form == SiteForm::kIsland) {
    const auto island = encode_island(plan, bias, trampoline);
    if (!island) return {};
    out.push_back({bias.to_remote(plan.island.at).value(), *island});
  }
  const auto patch = encode_patch(plan, bias, trampoline);
  if (!patch) return {};
  out.push_back({bias.to_remote(plan.site).value(), *patch});
  return out;
}

// The order in which sites are patched: hosts before what they host.
inline bool goes_first(const SitePlan& plan) { return plan.form != SiteForm::kIsland; }

}  // namespace trapline::isa
