// storm: eight threads allocate, fill, check and free without pause until a line comes. Says ready;
// prints the rounds and `intact 1` if no block was ever found changed.

#include <pthread.h>
#include <stdatomic.h>

#include "target.h"

enum { kThreads = 8, kBlocks = 16 };

static atomic_int stop, damaged;
static atomic_llong total;

static void* work(void* argument) {
  unsigned seed = (unsigned)(size_t)argument * 2654435761u + 1;
  unsigned char* blocks[kBlocks] = {0};
  unsigned sizes[kBlocks] = {0};
  long long rounds = 0;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    seed = seed * 1664525u + 1013904223u;
    const unsigned at = (seed >> 8) % kBlocks;
    if (blocks[at] != NULL) {
      if (blocks[at][0] != (unsigned char)at || blocks[at][sizes[at] - 1] != (unsigned char)at)
        damaged = 1;
      free(blocks[at]);
    }
    sizes[at] = 1 + (seed >> 16) % 3000;
    blocks[at] = malloc(sizes[at]);
    if (blocks[at] == NULL) _exit(3);
    blocks[at][0] = blocks[at][sizes[at] - 1] = (unsigned char)at;
    ++rounds;
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  total += rounds;
  return NULL;
}

int main(void) {
  pthread_t threads[kThreads];
  die_with_parent();
  for (size_t i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], NULL, work, (void*)i) != 0) return 3;
  }
  put("ready\n");
  wait_for_line();
  stop = 1;
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  put_count("rounds", total);
  put_count("intact", !damaged);
  return damaged ? 4 : 0;
}
