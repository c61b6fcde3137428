// nested [--wait]: who calls whom a known number of times:
// fn_a once, fn_b 5 times (from fn_a), fn_c once (from fn_a), fn_d twice (from fn_c). step(v) runs
// for v = 5 down to -8.

#include "target.h"

static volatile int sink;
PROBED void fn_d(int v) { sink += v; }
PROBED void fn_c(void) {
  fn_d(1);
  fn_d(2);
  sink += 1;
}
PROBED void fn_b(int v) { sink += v; }
PROBED void fn_a(void) {
  for (int i = 0; i < 5; ++i) fn_b(i);
  fn_c();
  sink += 1;
}
PROBED int step(int v) {
  sink += v;
  return v;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  fn_a();
  for (int v = 5; v >= -8; --v) step(v);
  put("fn_a 1\nfn_b 5\nfn_c 1\nfn_d 2\nstep 14\n");
  return 0;
}
