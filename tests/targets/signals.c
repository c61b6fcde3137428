// signals [--wait] [N [US]]: the handler of a timer that rings every US (50) microseconds calls
// probed(), while the main thread calls it too, until the main thread has done so N times: bodies
// get interrupted by bodies. Prints both counts and their sum.

#include <sys/time.h>

#include "target.h"

static volatile long sink;
static volatile long long from_handler;

PROBED long probed(long v) {
  sink = sink + v;
  return sink;
}

static void on_signal(int number) {
  const int error = errno;
  probed(number);
  from_handler = from_handler + 1;
  errno = error;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long n = number_argument(argc, argv, 1, 20000000);
  const long every = number_argument(argc, argv, 2, 50);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  struct itimerval often = {{0, every}, {0, every}}, never = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  for (long i = 0; i < n; ++i) probed(i);
  setitimer(ITIMER_REAL, &never, NULL);
  put_count("main", n);
  put_count("handler", from_handler);
  put_count("probed", n + from_handler);
  return 0;
}
