// libwork.so, whose file the tests damage before a program loads it: a few functions of the usual
// shapes (recursion, a switch, a loop, a tail call), and one exported one that calls them all.

#define PROBED __attribute__((noipa, used))

PROBED static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

PROBED static unsigned choose(unsigned which, unsigned value) {
  switch (which % 8) {
    case 0:
      return value + 1;
    case 1:
      return value * 3;
    case 2:
      return value ^ 0x5a5a;
    case 3:
      return value >> 3;
    case 4:
      return value - 77;
    case 5:
      return value | 0x11;
    case 6:
      return ~value;
    default:
      return value & 0x7fffff;
  }
}

PROBED static unsigned mix(const unsigned char* bytes, unsigned count) {
  unsigned hash = 2166136261u;
  for (unsigned i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 16777619u;
  return hash;
}

PROBED static unsigned finish(unsigned value) { return value ^ value >> 15; }

PROBED static unsigned pass_on(unsigned value) { return finish(value + 12345); }

PROBED unsigned work(unsigned seed) {
  unsigned char bytes[64];
  for (unsigned i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)(seed + i * 7);
  unsigned value = mix(bytes, sizeof bytes) + fib(seed % 8);
  for (unsigned i = 0; i < 16; ++i) value = choose(i + seed, value);
  return pass_on(value);
}
