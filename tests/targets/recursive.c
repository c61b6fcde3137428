// recursive [--wait] [N]: fib(N) by recursion and down(N), a chain of N + 1 nested calls. Prints
// how often each ran.

#include "target.h"

PROBED __attribute__((optimize("no-optimize-sibling-calls"))) int fib(int n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

PROBED __attribute__((optimize("no-optimize-sibling-calls"))) int down(int n) {
  volatile int here = n;
  return n == 0 ? 0 : down(n - 1) + (here != n) + 1;
}

// Calls that fib(n) makes, itself included: 2 * fib(n + 1) - 1.
static long long calls(int n) {
  long long a = 0, b = 1;
  for (int i = 0; i <= n; ++i) {
    const long long next = a + b;
    a = b;
    b = next;
  }
  return 2 * a - 1;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const int n = (int)number_argument(argc, argv, 1, 20);
  put_count("result", fib(n));
  put_count("fib", calls(n));
  put_count("depth", down(n));
  put_count("down", n + 1);
  return 0;
}
