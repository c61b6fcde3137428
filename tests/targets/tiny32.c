// tiny32: a 32-bit program, linked with nothing. It sleeps until it is killed or its parent dies.

static int call(int number, int a, int b) {
  int result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(0) : "memory");
  return result;
}

__attribute__((noinline)) int tiny_function(int v) { return v + 1; }

void _start(void) {
  static const int kPrctl = 172, kSetDeathSignal = 1, kKill = 9, kWrite = 4, kPause = 29;
  call(kPrctl, kSetDeathSignal, kKill);
  __asm__ volatile("int $0x80" : : "a"(kWrite), "b"(1), "c"("ready\n"), "d"(6) : "memory");
  for (int v = 0;; v = tiny_function(v)) call(kPause, 0, 0);
}
