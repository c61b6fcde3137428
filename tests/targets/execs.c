// execs [--wait] PROGRAM [ARGUMENT...]: calls before_exec(7) and becomes PROGRAM.

#include "target.h"

static volatile int sink;

PROBED void before_exec(int v) { sink += v; }

int main(int argc, char** argv) {
  start(&argc, &argv);
  if (argc < 2) return 2;
  before_exec(7);
  execvp(argv[1], argv + 1);
  return 3;
}
