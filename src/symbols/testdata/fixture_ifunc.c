// IFUNCs: one that the library itself calls (IRELATIVE), one that only others call.

typedef int (*Function)(int);

static volatile int want_second = 1;

int fixture_pick_first(int n) { return n + 100; }
int fixture_pick_second(int n) { return n + 200; }

static Function resolve_pick(void) {
  return want_second ? fixture_pick_second : fixture_pick_first;
}

int fixture_pick(int n) __attribute__((ifunc("resolve_pick")));
// A hidden alias, as glibc calls its own; in C, gcc would take it for the resolver and inline that.
__asm__(
    ".hidden fixture_pick_inside\n"
    ".globl fixture_pick_inside\n"
    ".type fixture_pick_inside, @gnu_indirect_function\n"
    ".set fixture_pick_inside, resolve_pick\n");
extern int fixture_pick_inside(int n) __attribute__((visibility("hidden")));
int fixture_call_pick(int n) { return fixture_pick_inside(n) + 1; }

static int outside_first(int n) { return n * 3; }
static int outside_second(int n) { return n * 5; }
static Function resolve_outside(void) { return want_second ? outside_second : outside_first; }
int fixture_outside(int n) __attribute__((ifunc("resolve_outside")));
