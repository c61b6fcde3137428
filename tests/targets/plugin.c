// A library that is loaded and unloaded: its constructor, its run() and its destructor call
// plugin_step, which counts itself in the program that has loaded it.

#include "target.h"

extern long long plugin_steps;

PROBED void plugin_step(int n) {
  (void)n;
  __atomic_fetch_add(&plugin_steps, 1, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void begin(void) {
  for (int i = 0; i < 10; ++i) plugin_step(i);
}

__attribute__((destructor)) static void end(void) {
  for (int i = 0; i < 3; ++i) plugin_step(i);
}

void plugin_run(int n) {
  for (int i = 0; i < n; ++i) plugin_step(i);
}
