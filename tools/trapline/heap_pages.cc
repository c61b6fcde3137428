#include "heap_pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace trapline::tool {

// malloc is made to take a large piece of the data segment at once, and to keep it; that piece is
// then advised. Sources: mallopt(3), madvise(2), Documentation/admin-guide/mm/transhuge.rst.
void use_large_pages() {
  constexpr std::uintptr_t kLargePage = 2 << 20;
  constexpr int kHeap = 64 << 20;
  constexpr int kLargestBlock = 32 << 20;  // the greatest M_MMAP_THRESHOLD there is
  if (mallopt(M_MMAP_THRESHOLD, kLargestBlock) == 0 || mallopt(M_TRIM_THRESHOLD, 2 * kHeap) == 0 ||
      mallopt(M_TOP_PAD, kHeap) == 0) {
    return;
  }
  void* volatile grow = std::malloc(kLargePage);
  std::free(grow);
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0)) / kLargePage * kLargePage;
  const std::uintptr_t start = end - kHeap;
  (void)madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
}

}  // namespace trapline::tool
