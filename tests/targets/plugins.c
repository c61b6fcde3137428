// plugins [--wait] LIBRARY [TIMES [THREADS]]: loads LIBRARY (as plugin.c) with dlopen, runs it and
// unloads it, TIMES times on each thread. Prints how often plugin_step was called. TIMES 0: loads
// it once, keeps it and runs it without pause until a line comes.

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "target.h"

enum { kMostThreads = 16, kRuns = 5 };
long long plugin_steps;
static const char* library;
static long times;
static atomic_int failed;
static atomic_int over;

static void* open_library(void (**run)(int)) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    put(dlerror());
    put("\n");
    failed = 1;
    return NULL;
  }
  *run = (void (*)(int))dlsym(handle, "plugin_run");
  return handle;
}

static void* work(void* unused) {
  (void)unused;
  for (long i = 0; i < times; ++i) {
    void (*run)(int) = NULL;
    void* const handle = open_library(&run);
    if (handle == NULL) break;
    run(kRuns);
    dlclose(handle);
  }
  return NULL;
}

static void* run_on(void* run) {
  while (!over) ((void (*)(int))run)(1);
  return NULL;
}

// linux/filter.h, which not every C library's headers come with: one instruction, ret ALLOW.
static int filter(void) {
  struct {
    unsigned short code;
    unsigned char jt, jf;
    unsigned k;
  } allow = {0x06, 0, 0, 0x7fff0000};
  const struct {
    unsigned short length;
    void* instructions;
  } program = {1, &allow};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, &program) == 0;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--filtered") != 0) continue;
    if (!filter()) return 3;
    for (int j = i; j < argc; ++j) argv[j] = argv[j + 1];
    --argc;
    break;
  }
  start(&argc, &argv);
  if (argc < 2) return 2;
  library = argv[1];
  times = number_argument(argc, argv, 2, 1);
  const long count = number_argument(argc, argv, 3, 1);
  pthread_t threads[kMostThreads];
  if (times == 0) {
    void (*run)(int) = NULL;
    void* const handle = open_library(&run);
    if (handle == NULL) return 3;
    if (pthread_create(&threads[0], NULL, run_on, (void*)run) != 0) return 3;
    put("loaded\n");
    wait_for_line();
    over = 1;
    pthread_join(threads[0], NULL);
    dlclose(handle);
  } else {
    for (long i = 0; i < count && i < kMostThreads; ++i)
      if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 3;
    for (long i = 0; i < count && i < kMostThreads; ++i) pthread_join(threads[i], NULL);
  }
  put_count("steps", plugin_steps);
  return failed;
}
