// forks [--wait] [N]: N children, one after another, by fork and vfork in turn, each allocating 77
// bytes on its own (fork only), while four threads of the parent allocate 55 bytes without pause.
// Prints the parent's calls of malloc(55) and the children's of malloc(77), which must not be
// counted in the parent.

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "target.h"

enum { kThreads = 4 };
static atomic_int stop;
static atomic_llong mallocs;

static void* work(void* unused) {
  (void)unused;
  long long n = 0;
  while (!stop) {
    void* volatile block = malloc(55);
    free(block);
    ++n;
  }
  mallocs += n;
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[kThreads];
  start(&argc, &argv);
  const long n = number_argument(argc, argv, 1, 200);
  long failed = 0, forked = 0;
  for (int i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 3;
  }
  for (long i = 0; i < n; ++i) {
    const int by_vfork = i % 4 == 3;
    const pid_t child = by_vfork ? vfork() : fork();
    if (child == 0) {
      if (!by_vfork) {
        void* volatile block = malloc(77);
        free(block);
      }
      _exit(9);
    }
    forked += !by_vfork;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    failed += child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 9;
  }
  stop = 1;
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  put_count("55", mallocs);
  put_count("children", forked);
  put_count("failed", failed);
  return failed ? 4 : 0;
}
