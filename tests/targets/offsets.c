// offsets [--wait] [N]: calls functions whose every instruction is probed, N times each, and prints
// one number that all of their results went into. What each instruction is executed how often does
// not depend on anything but N.

#include <stdint.h>

#include "target.h"

long o_loop(long), o_counted(long), o_straight(long), o_calls(long), o_branches(long), o_tail(long);

PROBED long o_switch(long n) {
  switch (n % 9) {
    case 0:
      return n + 11;
    case 1:
      return n * 3;
    case 2:
      return n ^ 0x55;
    case 3:
      return n - 7;
    case 4:
      return n << 3;
    case 5:
      return ~n;
    case 6:
      return n / 5;
    default:
      return n;
  }
}

PROBED double o_floating(double x, int n) {
  double sum = 0;
  for (int i = 1; i <= n; ++i) {
    sum += x / i;
    x = x * 0.5 + sum;
  }
  return sum;
}

PROBED long o_recursive(long n) { return n < 2 ? n : o_recursive(n - 1) + o_recursive(n - 2); }

PROBED uint64_t o_hash(const char* text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < length; ++i) {
    hash ^= (unsigned char)text[i];
    hash *= 0x100000001b3;
    if (hash & 0x10) hash ^= hash >> 7;
  }
  return hash;
}

PROBED void o_sort(long* values, int count) {
  for (int i = 1; i < count; ++i) {
    const long v = values[i];
    int j = i;
    for (; j > 0 && values[j - 1] > v; --j) values[j] = values[j - 1];
    values[j] = v;
  }
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long n = number_argument(argc, argv, 1, 20);
  uint64_t all = 0;
  for (long i = 1; i <= n; ++i) {
    long values[9];
    for (int k = 0; k < 9; ++k) values[k] = (i * 7919 + k * 104729) % 1000;
    o_sort(values, 9);
    for (int k = 0; k < 9; ++k) all = all * 31 + (uint64_t)values[k];
    all = all * 31 + (uint64_t)(o_loop(i % 5 + 1) + o_counted(i % 4) + o_calls(i) + o_tail(i));
    all = all * 31 + (uint64_t)o_straight(i * 0x10001);
    all = all * 31 + (uint64_t)(o_branches(i) + o_switch(i) + o_recursive(i % 7));
    const double x = o_floating((double)i, (int)(i % 6));
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    all = all * 31 + bits;
    all ^= o_hash("a text to be hashed", (size_t)(i % 19));
  }
  char line[64];
  snprintf(line, sizeof line, "result %llx\n", (unsigned long long)all);
  put(line);
  return 0;
}
