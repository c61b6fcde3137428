// spinners: three threads, named one, two and three, each of which spins in a function of its own,
// while the main thread sends the first one signals that queue, and counts those that arrive.
//
// Writes the address of each function, then `ready`; after a line `signals lost N` and ends.

#include <pthread.h>
#include <stdatomic.h>
#include <sys/poll.h>

#include "target.h"

static atomic_int stop;
static atomic_llong handled;
static volatile unsigned long turns[3];

static void on_signal(int number) {
  (void)number;
  atomic_fetch_add(&handled, 1);
}

PROBED void spin_one(void) {
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) ++turns[0];
}
PROBED void spin_two(void) {
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) ++turns[1];
}
PROBED void spin_three(void) {
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) ++turns[2];
}

static void* run(void* function) {
  ((void (*)(void))function)();
  return NULL;
}

int main(void) {
  die_with_parent();
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGRTMIN, &action, NULL);
  void (*functions[])(void) = {spin_one, spin_two, spin_three};
  const char* names[] = {"one", "two", "three"};
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    pthread_create(&threads[i], NULL, run, (void*)functions[i]);
    pthread_setname_np(threads[i], names[i]);
    char line[64];
    snprintf(line, sizeof line, "%s %p\n", names[i], (void*)functions[i]);
    put(line);
  }
  put("ready\n");
  long long sent = 0;
  struct pollfd in = {.fd = 0, .events = POLLIN};
  while (poll(&in, 1, 1) == 0) {
    if (sent - atomic_load(&handled) < 100 &&
        pthread_sigqueue(threads[0], SIGRTMIN, (union sigval){.sival_int = 0}) == 0)
      ++sent;
  }
  wait_for_line();
  for (int i = 0; i < 5000 && atomic_load(&handled) != sent; ++i) poll(NULL, 0, 1);
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  put_count("signals lost", sent - handled);
  return 0;
}
