// manykeys [--wait] [N]: each(i) for i from 0 to N - 1.

#include "target.h"

static volatile long sink;

PROBED void each(long i) { sink += i; }

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long n = number_argument(argc, argv, 1, 100000);
  for (long i = 0; i < n; ++i) each(i);
  put_count("each", n);
  return 0;
}
