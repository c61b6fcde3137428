// registers [--wait] SEED [N] [harm NAME]: does an instrumented function leave every register, flag
// and byte of the stack as it would without probes? r_subject and r_plain are the same code. Both
// are run N times from the same random state (general, vector, mask and x87 registers, flags,
// control words, red zone), and the states in which they leave off are compared. With `harm`, a
// spoilt copy stands for r_subject, which must be found out. Sources: System V ABI 3.2.1, 3.2.2.

#include <cpuid.h>
#include <stdint.h>
#include <sys/mman.h>

#include "target.h"

// registers.S knows the offsets.
struct state {
  uint64_t general[16];  // as numbered in machine code
  uint64_t flags;
  uint64_t stack;  // where the return address stands
  uint32_t mxcsr;
  uint32_t pad[3];
  uint8_t x87[128];  // FNSAVE, 108 bytes
  uint8_t vectors[32][64];
  uint64_t masks[8];
};

enum { kRedZone = 128, kStackSize = 64 * 1024, kCarryToSign = 0x8d5, kDirection = 0x400 };

extern void r_run(void* code, struct state* state);
extern char r_subject[], r_plain[], r_buffer[];
extern uint32_t r_level;
extern uint64_t r_top;
#define HARMS(X) \
  X(r11)         \
  X(carry) X(direction) X(adjust) X(overflow) X(redzone) X(below) X(xmm) X(x87) X(control) X(mxcsr)
#define DECLARE(name) extern char r_harm_##name[];
HARMS(DECLARE)

static uint64_t seed;

static uint64_t random_word(void) {  // splitmix64
  uint64_t z = (seed += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

static void random_bytes(void* to, size_t size) {
  for (size_t i = 0; i < size; ++i) ((uint8_t*)to)[i] = (uint8_t)random_word();
}

// 0: xmm, 1: ymm, 2: zmm and masks.
static uint32_t vector_level(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1) || !(c >> 28 & 1)) return 0;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6) return 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 16 & 1) && (low & 0xe6) == 0xe6) return 2;
  return 1;
}

static void random_state(struct state* s, uint8_t* stack) {
  memset(s, 0, sizeof *s);
  random_bytes(s->general, sizeof s->general);
  s->flags = 2 | (random_word() & (kCarryToSign | (random_word() & 7 ? 0 : kDirection)));
  s->stack = (uint64_t)(stack + kStackSize - 1024 - (random_word() & 0xf0) - 8);
  s->mxcsr = 0x1f80 | (uint32_t)(random_word() & 0xe07f);
  random_bytes(s->vectors, sizeof s->vectors);
  random_bytes(s->masks, sizeof s->masks);
  const uint16_t control = 0x7f | (uint16_t)(random_word() & 0xc00) | 0x300;
  // Condition bits, the top of the stack 0; all registers are in use.
  const uint16_t words[14] = {control, 0, (uint16_t)(random_word() & 0x4700)};
  memcpy(s->x87, words, sizeof words);
  for (int i = 0; i < 8; ++i) {
    const long double value = (long double)(int64_t)random_word() / 65536;
    memcpy(s->x87 + 28 + 10 * i, &value, 10);
  }
}

// Of the x87 state, not where its last instruction and operand were.
static void drop_addresses(struct state* s) { memset(s->x87 + 12, 0, 16); }

static int differ(const char* what, int number, const void* a, const void* b, size_t size) {
  if (memcmp(a, b, size) == 0) return 0;
  char line[128];
  snprintf(line, sizeof line, "damaged: %s %d\n", what, number);
  put(line);
  return 1;
}

static int compare(struct state* a, struct state* b) {
  int n = 0;
  drop_addresses(a);
  drop_addresses(b);
  for (int i = 0; i < 16; ++i)
    n += differ("general register", i, a->general + i, b->general + i, 8);
  const uint64_t kept = kCarryToSign | kDirection;
  const uint64_t flags[2] = {a->flags & kept, b->flags & kept};
  n += differ("flags", 0, flags, flags + 1, 8);
  n += differ("mxcsr", 0, &a->mxcsr, &b->mxcsr, 4);
  n += differ("x87 control", 0, a->x87, b->x87, 2);
  n += differ("x87 status", 0, a->x87 + 4, b->x87 + 4, 2);
  n += differ("x87 tags", 0, a->x87 + 8, b->x87 + 8, 2);
  for (int i = 0; i < 8; ++i) n += differ("st", i, a->x87 + 28 + 10 * i, b->x87 + 28 + 10 * i, 10);
  for (int i = 0; i < 32; ++i) n += differ("vector register", i, a->vectors[i], b->vectors[i], 64);
  for (int i = 0; i < 8; ++i) n += differ("mask register", i, a->masks + i, b->masks + i, 8);
  return n;
}

// What a run leaves on the stack and in memory.
struct memory {
  uint8_t stack[kRedZone + 8 + 64];  // from the red zone's begin to above the return address
  uint8_t buffer[128];
};

static void run(void* code, struct state* s, uint8_t* stack, const uint8_t* pattern,
                struct memory* out) {
  memcpy(stack, pattern, kStackSize);
  memset(r_buffer, 0x5a, 128);
  uint8_t* const zone = (uint8_t*)s->stack - kRedZone;
  memcpy(&r_top, (uint8_t*)s->stack - 8, 8);
  r_run(code, s);
  memcpy(out->stack, zone, sizeof out->stack);
  memcpy(out->buffer, r_buffer, 128);
}

static void* subject(const char* harm) {
#define FIND(name) \
  if (harm && strcmp(harm, #name) == 0) return r_harm_##name;
  HARMS(FIND)
  return harm ? NULL : r_subject;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  seed = (uint64_t)number_argument(argc, argv, 1, 1);
  const long n = number_argument(argc, argv, 2, 1000);
  void* const code = subject(argc > 4 && strcmp(argv[3], "harm") == 0 ? argv[4] : NULL);
  if (code == NULL) return 2;
  r_level = vector_level();
  uint8_t* const stack =
      mmap(NULL, kStackSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint8_t* const pattern = malloc(kStackSize);
  random_bytes(pattern, kStackSize);
  static struct state plain, probed;
  static struct memory plain_memory, probed_memory;
  for (long i = 0; i < n; ++i) {
    random_state(&plain, stack);
    probed = plain;
    run(r_plain, &plain, stack, pattern, &plain_memory);
    run(code, &probed, stack, pattern, &probed_memory);
    int damage = compare(&plain, &probed);
    damage +=
        differ("stack", 0, plain_memory.stack, probed_memory.stack, sizeof plain_memory.stack);
    damage += differ("memory", 0, plain_memory.buffer, probed_memory.buffer, 128);
    if (damage == 0) continue;
    put_count("at", i);
    return 4;
  }
  put_count(r_level == 2 ? "intact with zmm" : r_level == 1 ? "intact with ymm" : "intact", n);
  return 0;
}
