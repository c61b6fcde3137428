// ticker: says ready and calls tick(i), i = 1, 2, 3, ... every 200 us until a line comes. Prints
// how often.

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "target.h"

static atomic_int stop;
static volatile long sink;

PROBED long tick(long i) {
  sink += i;
  return i;
}

static void* listen_for_end(void* unused) {
  (void)unused;
  wait_for_line();
  stop = 1;
  return NULL;
}

int main(void) {
  pthread_t listener;
  die_with_parent();
  long i = 0;
  const struct timespec pause = {0, 200000};
  if (pthread_create(&listener, NULL, listen_for_end, NULL) != 0) return 3;
  put("ready\n");
  while (!stop) {
    tick(++i);
    nanosleep(&pause, NULL);
  }
  pthread_join(listener, NULL);
  put_count("tick", i);
  return 0;
}
