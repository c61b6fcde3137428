// Probes with arguments of every form, each a known function of a number. In the program and, once
// more, in a library.

#include "target.h"
#include "usdt.h"

struct record {
  char byte;
  short half;
  int word;
  long long wide;
  int table[8];
};

int usdt_counter;
static long long usdt_totals[4];
__attribute__((used, visibility("hidden"),
               section(".probes"))) unsigned short usdt_guarded_semaphore;

PROBED void registers(int i) {
  int negative = -i;
  long long wide = 0x1122334455667788 + i;
  unsigned char byte = (unsigned char)(200 + i);
  short half = (short)(-3 - i);
  USDT_PROBE("registers", "0", "-4@%0 8@%1 1@%b2 -2@%w3", "r"(negative), "r"(wide), "r"(byte),
             "r"(half));
}

PROBED void memory(int i) {
  struct record record = {(char)-i, (short)(i - 100), -i, 1ll << 40 | i, {0}};
  record.table[i & 7] = i * 3;
  long long index = i & 7;
  USDT_PROBE("memory", "0", "-1@%0 -2@%1 -4@%2 8@%3 -4@%4", "m"(record.byte), "m"(record.half),
             "m"(record.word), "m"(record.wide), "m"(record.table[index]));
}

// Named in the note as symbols.
PROBED void symbols(int i) {
  usdt_counter = i * 5;
  usdt_totals[1] = -i;
  USDT_PROBE("symbols", "0", "-4@%0 8@%1", "m"(usdt_counter), "m"(usdt_totals[1]));
}

PROBED void constants(int i) {
  (void)i;
  USDT_PROBE("constants", "0", "-4@%0 4@%1 8@%2 -1@%3", "n"(-7), "n"(-7), "n"(0x7fffffff),
             "n"(255));
}

// Each register of an argument holds another argument; and there are more than fit into registers.
PROBED void permuted(int i) {
  register long long a __asm__("r9") = i;
  register long long b __asm__("r8") = i + 1;
  register long long c __asm__("rcx") = i + 2;
  register long long d __asm__("rdx") = i + 3;
  register long long e __asm__("rsi") = i + 4;
  register long long f __asm__("rdi") = i + 5;
  register long long g __asm__("rax") = i + 6;
  register long long h __asm__("r10") = i + 7;
  register long long j __asm__("r11") = i + 8;
  register long long k __asm__("rbx") = i + 9;
  USDT_PROBE("permuted", "0", "8@%0 8@%1 8@%2 8@%3 8@%4 8@%5 8@%6 8@%7 8@%8 8@%9", "r"(a), "r"(b),
             "r"(c), "r"(d), "r"(e), "r"(f), "r"(g), "r"(h), "r"(j), "r"(k));
}

PROBED void floating(int i) {
  double wide = i + 0.5;
  float narrow = (float)i;
  USDT_PROBE("floating", "0", "8f@%0 4f@%1", "x"(wide), "x"(narrow));
}

// What is there is not what the note says.
PROBED void strange(int i) { USDT_PROBE("strange", "0", "4@%%fs:0(%0)", "r"((long long)i)); }

PROBED int text__of(const char* text) {
  USDT_PROBE("text__of", "0", "8@%0", "r"(text));
  return text[0];
}

// Two sites of one probe, behind a semaphore; what happens is only counted where somebody listens.
PROBED int guarded(int i) {
  int listened = 0;
  if (__builtin_expect(*(volatile unsigned short*)&usdt_guarded_semaphore, 0)) {
    listened = 1;
    USDT_PROBE("guarded", "usdt_guarded_semaphore", "-4@%0 -4@%1", "nor"(i), "nor"(1));
  }
  __asm__ volatile("nopl 64(%%rax)" ::: "memory");
  if (__builtin_expect(*(volatile unsigned short*)&usdt_guarded_semaphore, 0))
    USDT_PROBE("guarded", "usdt_guarded_semaphore", "-4@%0 -4@%1", "nor"(i), "nor"(2));
  return listened;
}

int usdt_semaphore(void) { return *(volatile unsigned short*)&usdt_guarded_semaphore; }

int usdt_fire(int rounds) {
  int listened = 0;
  for (int i = 1; i <= rounds; ++i) {
    registers(i);
    memory(i);
    symbols(i);
    constants(i);
    permuted(i);
    floating(i);
    strange(i);
    text__of(i & 1 ? "odd" : "even");
    listened += guarded(i);
  }
  return listened;
}
