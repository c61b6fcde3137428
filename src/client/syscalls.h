// System calls without libc: the wrappers of libc may be probed by the very session that makes
// them, are cancellation points, and write errno, which a child that shares our memory must not do.
//
// Each returns what the kernel returns: a negative value is -errno.
// Source: the kernel's calling convention, System V AMD64 ABI, A.2.1.

#pragma once

#include <sys/syscall.h>

#include <cstdint>

#if !defined(__x86_64__)
#error "libtrapline runs on x86-64 only"
#endif

namespace trapline::client {

inline long system_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                        long f = 0) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

inline long as_long(const volatile void* pointer) { return reinterpret_cast<long>(pointer); }

inline int current_process() { return static_cast<int>(system_call(SYS_getpid)); }

inline std::intptr_t thread_pointer() {
  std::intptr_t pointer;
  asm("mov %%fs:0, %0" : "=r"(pointer));
  return pointer;
}

}  // namespace trapline::client
