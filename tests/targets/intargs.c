// intargs [--wait]: take_int(-5), (0), (1), (8); take_long of the same; take_many with ten
// arguments of many widths; give_int(v) returns v as a 32-bit int, give_char as a char.

#include "target.h"

static volatile long sink;
static volatile int zero;  // makes room for a jump before the return
PROBED void take_int(int v) { sink += v; }
PROBED void take_long(long v) { sink += v; }
PROBED void take_many(signed char a, short b, unsigned c, long d, unsigned char e, int f, int g,
                      long h, int i, long j) {
  sink += a + b + (long)c + d + e + f + g + h + i + j;
}
PROBED int give_int(int v) { return v + zero; }
PROBED signed char give_char(int v) { return (signed char)(v + zero); }

int main(int argc, char** argv) {
  static const int kValues[] = {-5, 0, 1, 8};
  start(&argc, &argv);
  for (int i = 0; i < 4; ++i) {
    take_int(kValues[i]);
    take_long(kValues[i]);
    sink += give_int(kValues[i]);
    sink += give_char(kValues[i]);
  }
  take_many(-1, -2, 3000000000u, -4, 250, -6, -7, -8, 9, 10);
  put_count("calls", 4);
  return 0;
}
