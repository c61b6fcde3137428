// own_functions [--wait]: three dozen functions of as many shapes, each called a known number of
// times. Prints the calls. Each fn_ is written so that its machine code has the property its name
// says, at -O2 at least: a loop back to the first instruction, a jump table, a tail call, a cold
// part, an early return, arguments on the stack, and so on.

#include <alloca.h>
#include <math.h>
#include <stdarg.h>

#include "target.h"

static volatile long sink;
static long table[64];

struct Pair {
  long a, b;
};
struct Large {
  long values[16];
};

PROBED long fn_constant(void) { return 42; }
PROBED long fn_identity(long v) { return v; }
PROBED void fn_empty(void) { __asm__ volatile(""); }
PROBED long fn_add(long a, long b) { return a + b; }
PROBED void fn_store_global(long v) { sink = v; }  // a RIP-relative operand first
PROBED long fn_load_global(void) { return sink; }
PROBED long* fn_address(void) { return table; }  // lea of a RIP-relative address first
PROBED long fn_branch(long v) { return v > 3 ? sink + 1 : v * 3; }
PROBED long fn_early_return(long v) {
  if (v == 0) return 0;
  for (long i = 0; i < v; ++i) sink += i;
  return sink;
}
PROBED long fn_loop(long v) {
  long sum = 0;
  for (long i = 0; i < v; ++i) sum += table[i & 63] ^ i;
  return sum;
}
PROBED long fn_loop_at_entry(long v) {  // the first instruction is the loop's head
  do {
    v = v * 3 / 4 - 1;
  } while (v > 0);
  return v;
}
PROBED long fn_switch(long v) {
  switch (v) {
    case 0:
      return sink;
    case 1:
      return sink * 3;
    case 2:
      fn_empty();
      return 7;
    case 3:
      return table[3];
    case 4:
      return -sink;
    case 5:
      fn_empty();
      return sink ^ 5;
    case 6:
      return v << 3;
    case 7:
      return sink + table[7];
    default:
      return 9;
  }
}
PROBED long fn_calls(long v) { return fn_add(fn_identity(v), 1) + 1; }
PROBED long fn_tail_call(long v) { return fn_add(v, 2); }
PROBED long fn_tail_call_conditional(long v) { return v & 1 ? fn_add(v, 2) : fn_identity(v); }
PROBED long fn_tail_call_pointer(long (*f)(long), long v) { return f(v); }
PROBED long fn_recursive(long v) {
  return v <= 0 ? 0 : 1 + fn_recursive(v - 1) * (sink == -1 ? 2 : 1);
}
PROBED long fn_eight_arguments(long a, long b, long c, long d, long e, long f, long g, long h) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
PROBED struct Pair fn_pair(long a) { return (struct Pair){a, a + 1}; }
PROBED struct Large fn_large(long a) {
  struct Large large = {{a, a + 1}};
  return large;
}
PROBED long fn_by_value(struct Large large) { return large.values[0] + large.values[1]; }
PROBED long fn_variadic(int count, ...) {
  va_list list;
  long sum = 0;
  va_start(list, count);
  for (int i = 0; i < count; ++i) sum += va_arg(list, long);
  va_end(list);
  return sum;
}
PROBED double fn_double(double v) { return v * 1.5 + 1; }
PROBED float fn_float(float v, int n) { return v * (float)n; }
PROBED double fn_sqrt(double v) { return sqrt(v); }
PROBED long fn_alloca(long n) {
  volatile char* block = alloca((size_t)n);
  block[0] = 1;
  block[n - 1] = 2;
  return block[0] + block[n - 1];
}
PROBED long fn_frame(long v) {
  volatile char block[8000];
  block[v] = 3;
  return block[v];
}
PROBED long fn_red_zone(long a, long b) {
  volatile long local[4] = {a, b, a + b, a - b};
  return local[0] + local[1] + local[2] + local[3];
}
PROBED __attribute__((cold)) void fn_cold(void) { sink += 1000; }
PROBED long fn_with_cold_part(long v) {
  if (__builtin_expect(v < 0, 0)) {
    fn_cold();
    return sink;
  }
  return table[v & 63] + v;
}
PROBED static long fn_static(long v) { return v - 1; }
PROBED __attribute__((aligned(1))) char fn_char(char c) { return (char)(c + 1); }
PROBED unsigned char fn_bool(long v) { return v != 0; }
PROBED long fn_division(long a, long b) { return a / b; }
PROBED long fn_callee_saved(long v) {
  const long a = fn_identity(v), b = fn_identity(v + 1), c = fn_identity(v + 2);
  return a * b * c;
}
PROBED const char* fn_string(long v) { return v ? "one" : "none"; }
PROBED long fn_copy(void) {
  long local[64];
  memcpy(local, table, sizeof local);
  __asm__ volatile("" : : "r"(local) : "memory");
  return local[5];
}
PROBED long fn_atomic(void) { return __atomic_fetch_add(&table[1], 1, __ATOMIC_SEQ_CST); }

// fn_add, fn_identity and fn_empty are called by others too: their totals are counted where they
// are called.
static long long adds, identities, empties;

int main(int argc, char** argv) {
  start(&argc, &argv);
  struct Large large = {{1, 2}};
#define CALL(times, name, expression)                            \
  for (long i = 0; i < (times); ++i) sink += (long)(expression); \
  put_count(#name, times)
#define RUN(times, name, statement)             \
  for (long i = 0; i < (times); ++i) statement; \
  put_count(#name, times)
  CALL(3, fn_constant, fn_constant());
  RUN(23, fn_store_global, fn_store_global(i));
  CALL(33, fn_load_global, fn_load_global());
  CALL(43, fn_address, (fn_address() == table));
  CALL(53, fn_branch, fn_branch(i));
  CALL(63, fn_early_return, fn_early_return(i & 3));
  CALL(73, fn_loop, fn_loop(i));
  CALL(83, fn_loop_at_entry, fn_loop_at_entry(i));
  CALL(80, fn_switch, fn_switch(i & 7));
  empties += 20;
  CALL(103, fn_calls, fn_calls(i));
  identities += 103;
  adds += 103;
  CALL(113, fn_tail_call, fn_tail_call(i));
  adds += 113;
  CALL(120, fn_tail_call_conditional, fn_tail_call_conditional(i));
  adds += 60;
  identities += 60;
  CALL(133, fn_tail_call_pointer, fn_tail_call_pointer(fn_identity, i));
  identities += 133;
  for (long i = 0; i < 10; ++i) sink += fn_recursive(i);
  put_count("fn_recursive", 55);
  CALL(153, fn_eight_arguments, fn_eight_arguments(i, 1, 2, 3, 4, 5, 6, 7));
  CALL(163, fn_pair, fn_pair(i).b);
  CALL(173, fn_large, fn_large(i).values[1]);
  CALL(183, fn_by_value, fn_by_value(large));
  CALL(193, fn_variadic, fn_variadic(3, 1L, 2L, i));
  CALL(203, fn_double, fn_double((double)i));
  CALL(213, fn_float, fn_float(1.5f, 2));
  CALL(223, fn_sqrt, fn_sqrt((double)i));
  CALL(233, fn_alloca, fn_alloca(i + 1));
  CALL(243, fn_frame, fn_frame(i));
  CALL(253, fn_red_zone, fn_red_zone(i, 1));
  CALL(263, fn_with_cold_part, fn_with_cold_part(i < 7 ? -1 : i));
  put_count("fn_cold", 7);
  CALL(273, fn_static, fn_static(i));
  CALL(283, fn_char, fn_char('a'));
  CALL(293, fn_bool, fn_bool(i));
  CALL(303, fn_division, fn_division(1000, i + 1));
  CALL(313, fn_callee_saved, fn_callee_saved(i));
  identities += 3 * 313;
  CALL(323, fn_string, (fn_string(i & 1)[0] == 'o'));
  CALL(333, fn_copy, fn_copy());
  CALL(343, fn_atomic, fn_atomic());
  for (long i = 0; i < 7; ++i) sink += fn_add(i, i);
  put_count("fn_add", adds + 7);
  for (long i = 0; i < 7; ++i) sink += fn_identity(i);
  put_count("fn_identity", identities + 7);
  for (long i = 0; i < 7; ++i) fn_empty();
  put_count("fn_empty", empties + 7);
  return 0;
}
