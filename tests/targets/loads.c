// loads LIBRARY...: loads each library, as libwork.so is, with dlopen, says ready, and calls its
// work() without pause until a line comes. Prints what it called, and whether the results were
// always the same.

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "target.h"

enum { kMost = 256, kSeeds = 32 };
typedef unsigned (*Work)(unsigned);
static Work works[kMost];
static unsigned expected[kSeeds];
static int libraries;
static atomic_int over;
static atomic_int wrong;
static long long rounds;

static void* run(void* unused) {
  (void)unused;
  while (!atomic_load(&over)) {
    for (int i = 0; i < libraries; ++i)
      for (unsigned seed = 0; seed < kSeeds; ++seed)
        if (works[i](seed) != expected[seed]) atomic_store(&wrong, 1);
    ++rounds;
  }
  return NULL;
}

int main(int argc, char** argv) {
  die_with_parent();
  for (int i = 1; i < argc && libraries < kMost; ++i) {
    void* const library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      put(dlerror());
      put("\n");
      return 3;
    }
    works[libraries] = (Work)dlsym(library, "work");
    if (works[libraries++] == NULL) return 3;
  }
  if (libraries == 0) return 3;
  for (unsigned seed = 0; seed < kSeeds; ++seed) expected[seed] = works[0](seed);
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) != 0) return 3;
  put("ready\n");
  wait_for_line();
  atomic_store(&over, 1);
  pthread_join(thread, NULL);
  put_count("rounds", rounds);
  put_count("right", !atomic_load(&wrong));
  return 0;
}
