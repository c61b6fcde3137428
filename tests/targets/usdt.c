// usdt ROUNDS             fires its probes so many times, says how often somebody listened
// usdt --load FILE ROUNDS the same with those of a library that it loads first
// usdt --wait             says `ready`, then does what it is told, a line each: `fire`,
// `semaphore`,
//                         `fork` (a child, which says its own semaphore at SIGUSR1), `end`

#include <dlfcn.h>
#include <sys/wait.h>

#include "target.h"

int usdt_fire(int rounds);
int usdt_semaphore(void);

static volatile sig_atomic_t asked;
static void ask(int number) {
  (void)number;
  asked = 1;
}

static void be_child(void) {
  die_with_parent();
  put_count("child", getpid());
  for (;;) {
    while (!asked) usleep(1000);
    asked = 0;
    put_count("child semaphore", usdt_semaphore());
  }
}

static void serve(void) {
  pid_t child = 0;
  char line[64];
  signal(SIGUSR1, ask);
  put("ready\n");
  while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0) {
    if (strcmp(line, "fire\n") == 0) put_count("listened", usdt_fire(10));
    if (strcmp(line, "semaphore\n") == 0) put_count("semaphore", usdt_semaphore());
    if (strcmp(line, "fork\n") == 0 && (child = fork()) == 0) be_child();
  }
  if (child > 0) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  put_count("semaphore at the end", usdt_semaphore());
}

int main(int argc, char** argv) {
  die_with_parent();
  setvbuf(stdin, NULL, _IONBF, 0);
  if (argc == 2 && strcmp(argv[1], "--wait") == 0) {
    serve();
    return 0;
  }
  int (*fire)(int) = usdt_fire;
  int (*semaphore)(void) = usdt_semaphore;
  int rounds = argc > 1 ? atoi(argv[argc - 1]) : 0;
  if (argc == 4 && strcmp(argv[1], "--load") == 0) {
    void* library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 2;
    fire = (int (*)(int))dlsym(library, "usdt_fire");
    semaphore = (int (*)(void))dlsym(library, "usdt_semaphore");
  }
  put_count("semaphore", semaphore());
  put_count("listened", fire(rounds));
  return 0;
}
