// The thing to beat: a malloc that is interposed with LD_PRELOAD and keeps a power-of-two histogram
// a thread.

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static __thread uint64_t histogram[65] __attribute__((tls_model("initial-exec")));
static void* (*next_malloc)(size_t);

__attribute__((constructor)) static void find_next(void) {
  *(void**)&next_malloc = dlsym(RTLD_NEXT, "malloc");
}

void* malloc(size_t size) {
  histogram[size == 0 ? 0 : 64 - __builtin_clzll(size)]++;
  if (__builtin_expect(next_malloc == NULL, 0)) find_next();
  return next_malloc(size);
}
