// scribbler SEED: calls probed() without pause in two threads, while a third writes nonsense into
// every shared memory that it did not map itself: what a hostile program would do to its tracer.
// Says ready; ends at a line, or by a fault of its own making.

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "target.h"

static atomic_int stop;
static volatile long sink;

PROBED long probed(long v) {
  sink = sink + v;
  return sink;
}

static void* call(void* unused) {
  (void)unused;
  for (long i = 0; !stop; ++i) probed(i % 1000);
  return NULL;
}

static uint64_t next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

// A number that may mean something: an index, a size, an offset, an address, or none of these.
static uint64_t nonsense(uint64_t* state) {
  switch (next(state) % 6) {
    case 0:
      return next(state) % 64;
    case 1:
      return UINT64_MAX - next(state) % 4096;
    case 2:
      return (uint64_t)1 << next(state) % 64;
    case 3:
      return next(state) % 65536 * 8;
    case 4:
      return (next(state) % 256) << 32 | next(state) % 256;
    default:
      return next(state);
  }
}

// Some writes at the start (the header), some in its first part (slots), some anywhere.
static void scribble(volatile uint64_t* words, uint64_t count, uint64_t* state) {
  const uint64_t spans[] = {64, 16384, count};
  for (int i = 0; i < 200; ++i) {
    const uint64_t span = spans[next(state) % 3];
    words[next(state) % (span < count ? span : count)] = nonsense(state);
  }
}

static void* scribble_all(void* argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument * 2654435761u + 1;
  while (!stop) {
    FILE* maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
      uint64_t begin, end;
      char mode[8];
      if (sscanf(line, "%lx-%lx %7s", &begin, &end, mode) != 3) continue;
      if (strcmp(mode, "rw-s") == 0) scribble((volatile uint64_t*)begin, (end - begin) / 8, &state);
    }
    if (maps != NULL) fclose(maps);
    usleep(2000);
  }
  return NULL;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long seed = number_argument(argc, argv, 1, 1);
  pthread_t threads[3];
  put("ready\n");
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, call, NULL);
  pthread_create(&threads[2], NULL, scribble_all, (void*)seed);
  wait_for_line();
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  put("end\n");
  return 0;
}
