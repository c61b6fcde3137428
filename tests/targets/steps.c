// steps FIRST LAST PROGRAM ARGUMENTS...: how often each instruction of [FIRST, LAST) (in
// hexadecimal) is executed, found out by single steps: what offset probes are compared with. Prints
// a line "address count" each on stderr; the program's own output stays its own.

#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "target.h"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  die_with_parent();
  const uint64_t first = strtoull(argv[1], NULL, 16);
  const uint64_t last = strtoull(argv[2], NULL, 16);
  unsigned long* counts = calloc(last - first, sizeof *counts);
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execv(argv[3], argv + 3);
    _exit(127);
  }
  int status = 0;
  int signal = 0;
  waitpid(child, &status, 0);
  while (WIFSTOPPED(status)) {
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, child, NULL, &registers);
    if (signal == 0 && registers.rip >= first && registers.rip < last)
      ++counts[registers.rip - first];
    ptrace(PTRACE_SINGLESTEP, child, NULL, signal);
    waitpid(child, &status, 0);
    signal = WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
  }
  for (uint64_t at = first; at < last; ++at) {
    if (counts[at - first] != 0)
      fprintf(stderr, "%llx %lu\n", (unsigned long long)at, counts[at - first]);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
