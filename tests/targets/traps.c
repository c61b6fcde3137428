// traps [--wait] [N]: raises SIGTRAP and executes int3 N times each, with a handler of its own,
// between calls of a function that is probed by breakpoints. Prints how often each arrived. With
// `--handler` first, the handler is there before it says "ready".

#include "target.h"

static volatile sig_atomic_t arrived;

static void on_trap(int signal) {
  (void)signal;
  ++arrived;
}

PROBED long probed(long n) { return n * 3 + 1; }

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--handler") == 0) {
    signal(SIGTRAP, on_trap);
    ++argv;
    --argc;
  }
  start(&argc, &argv);
  signal(SIGTRAP, on_trap);
  const long n = number_argument(argc, argv, 1, 100);
  long sum = 0;
  for (long i = 0; i < n; ++i) {
    sum += probed(i);
    raise(SIGTRAP);
    sum += probed(i);
    __asm__ volatile("int3");
  }
  put_count("arrived", arrived);
  put_count("sum", sum);
  return 0;
}
