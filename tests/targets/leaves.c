// leaves [--wait] [MS]: the main thread calls probed() for MS milliseconds (3000) while a timer's
// handler interrupts it every 100 milliseconds and leaves by siglongjmp: out of the program's code,
// and out of what a tracer has put there. Prints how often the function was begun, and `left`.

#include <setjmp.h>
#include <sys/time.h>
#include <time.h>

#include "target.h"

static sigjmp_buf again;
static volatile long long calls, left;
static volatile long sink;

PROBED long probed(long v) {
  sink = sink + v;
  return sink;
}

static void on_signal(int number) {
  (void)number;
  ++left;
  siglongjmp(again, 1);
}

static long long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  static long long end;
  end = now_ms() + number_argument(argc, argv, 1, 3000);
  struct sigaction action = {.sa_handler = on_signal};
  struct itimerval often = {{0, 100000}, {0, 100000}}, never = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  sigsetjmp(again, 1);
  while (now_ms() < end) {
    for (int i = 0; i < 1000; ++i) {
      calls = calls + 1;
      probed(i);
    }
  }
  setitimer(ITIMER_REAL, &never, NULL);
  put_count("calls", calls);
  put_count("left", left);
  return 0;
}
