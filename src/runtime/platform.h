// What the runtime has instead of a C library: attributes, system calls, the thread pointer, the
// processor's number.
//
// The runtime is compiled by clang to LLVM bitcode and inlined into probe bodies, which run in the
// traced process at any instruction of it: no library, no thread-local variable, no lock, no vector
// register, little stack.

#pragma once

#include <stdint.h>

#include "wire/arena.h"

// Inlined into every body. The functions that bodies call have C names, tl_*.
#define TL_INLINE extern "C" inline __attribute__((always_inline, used))
// A slow path of something fast, or a small function: it saves the registers that it uses, so that
// the body saves none for it.
#define TL_SLOW extern "C" __attribute__((preserve_most, noinline, used))
// A large function. The body saves all registers before it calls one, once; so the two together use
// less stack.
#define TL_LARGE extern "C" __attribute__((noinline, used))

// What the code generator fills in; all reads of it fold into constants.
extern "C" __attribute__((visibility("hidden"))) const trapline::wire::Layout tl_layout;

namespace trapline::runtime {

// Linux x86-64, asm/unistd_64.h.
inline constexpr long kSysGettid = 186;
inline constexpr long kSysClockGettime = 228;
inline constexpr long kSysProcessVmReadv = 310;
inline constexpr long kClockMonotonic = 1;
inline constexpr long kClockThreadCputime = 3;

inline __attribute__((always_inline)) long system_call(long number) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
  return result;
}
inline __attribute__((always_inline)) long system_call(long number, long a, void* b) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
  return result;
}
inline __attribute__((always_inline)) long system_call(long number, long a, const void* b, long c,
                                                       const void* d, long e, long f) {
  long result;
  register long r10 asm("r10") = reinterpret_cast<long>(d);
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

// Keeps the compiler from moving memory accesses across; the processor keeps stores in order by
// itself.
inline __attribute__((always_inline)) void compiler_barrier() { asm volatile("" ::: "memory"); }

// One instruction: a signal handler on the same thread that adds to the same word in between loses
// nothing.
inline __attribute__((always_inline)) void add_in_place(uint64_t* word, uint64_t amount) {
  asm volatile("addq %1, %0" : "+m"(*word) : "er"(amount) : "cc");
}

// glibc and musl keep the thread pointer at its own address, fs:0.
inline __attribute__((always_inline)) uint64_t thread_pointer() {
  using FsWord = const uint64_t __attribute__((address_space(257)));
  return *reinterpret_cast<FsWord*>(uint64_t{0});
}
inline __attribute__((always_inline)) uint32_t thread_control_word(int64_t offset) {
  using FsWord = const volatile uint32_t __attribute__((address_space(257)));
  return *reinterpret_cast<FsWord*>(offset);
}

inline __attribute__((always_inline)) uint64_t read_tsc() {
  uint32_t low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t{high} << 32) | low;
}

inline __attribute__((always_inline)) wire::Header* header_of(const wire::ProbeSite* site) {
  return reinterpret_cast<wire::Header*>(site->arena);
}

}  // namespace trapline::runtime
