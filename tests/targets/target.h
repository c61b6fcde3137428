// What every target does: die with its parent, wait for the word to go, print without allocating.

#pragma once

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

// A function that is really called wherever the source calls it: not inlined, cloned, or known to
// have no effect.
#ifdef __clang__
#define PROBED __attribute__((noinline, used))
#else
#define PROBED __attribute__((noipa, used))
#endif

static inline void die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static inline void put(const char* text) {
  size_t left = strlen(text);
  while (left > 0) {
    ssize_t n = write(1, text, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(3);
    text += n;
    left -= (size_t)n;
  }
}

// "name number\n". snprintf of numbers and strings does not allocate.
static inline void put_count(const char* name, long long count) {
  char line[256];
  snprintf(line, sizeof line, "%s %lld\n", name, count);
  put(line);
}

// One line from stdin, or its end.
static inline void wait_for_line(void) {
  char c;
  for (;;) {
    ssize_t n = read(0, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || c == '\n') return;
  }
}

// Takes "--wait" off the arguments if it comes first, and then says "ready" and waits for a line.
static inline void start(int* argc, char*** argv) {
  die_with_parent();
  if (*argc > 1 && strcmp((*argv)[1], "--wait") == 0) {
    (*argv)[1] = (*argv)[0];
    ++*argv;
    --*argc;
    put("ready\n");
    wait_for_line();
  }
}

static inline long number_argument(int argc, char** argv, int index, long otherwise) {
  return argc > index ? strtol(argv[index], NULL, 10) : otherwise;
}
