// mallocs [--wait] [THREADS [ROUNDS]]: every thread does ROUNDS rounds of malloc(4), malloc(24)
// twice, malloc(100) and malloc(5000), each freed at once. Threads are made before --wait is
// answered, so that their own allocations are not among what is counted after it. Prints the calls
// of each size.

#include <pthread.h>

#include "target.h"

static const size_t kSizes[] = {4, 24, 24, 100, 5000};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0], kMaxThreads = 64 };

static pthread_barrier_t start_line;
static long rounds;

static void* work(void* unused) {
  (void)unused;
  pthread_barrier_wait(&start_line);
  for (long i = 0; i < rounds; ++i) {
    for (int k = 0; k < kSizeCount; ++k) {
      char* volatile block = malloc(kSizes[k]);
      if (block == NULL) _exit(3);
      block[0] = 1;
      free(block);
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[kMaxThreads];
  const int waits = argc > 1 && strcmp(argv[1], "--wait") == 0;
  const long count = number_argument(argc, argv, 1 + waits, 8);
  rounds = number_argument(argc, argv, 2 + waits, 10000);
  if (count < 1 || count > kMaxThreads) return 2;
  pthread_barrier_init(&start_line, NULL, (unsigned)count + 1);
  for (long i = 0; i < count; ++i) {
    if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 3;
  }
  start(&argc, &argv);
  pthread_barrier_wait(&start_line);
  for (long i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  put_count("4", count * rounds);
  put_count("24", count * rounds * 2);
  put_count("100", count * rounds);
  put_count("5000", count * rounds);
  return 0;
}
