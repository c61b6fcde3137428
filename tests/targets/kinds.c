// kinds KIND: a process that is special in one way, and then calls probed() 1,000 times; prints
// `calls 1000` and `right 1` if each call gave what it must.

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "target.h"

enum { kCalls = 1000, kStack = 1 << 16, kWords = 64 << 20 };

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

PROBED int probed(int n) { return n + 1; }

static int right = 1;
static int calls;

static void call(void) {
  if (probed(calls) != calls + 1) right = 0;
  ++calls;
}

static void plain(void) {
  for (int i = 0; i < kCalls; ++i) call();
}

static void limit(int resource, rlim_t value) {
  const struct rlimit both = {value, value};
  if (setrlimit(resource, &both) != 0) _exit(4);
}

static void use_all_descriptors(void) {
  struct rlimit some;
  getrlimit(RLIMIT_NOFILE, &some);
  some.rlim_cur = 32;
  setrlimit(RLIMIT_NOFILE, &some);
  while (dup(0) >= 0) {
  }
}

static void need(int result) {
  if (result != 0) {
    put("cannot\nready\n");
    _exit(77);
  }
}

// Stacks that no thread started on.
#ifndef NO_CONTEXTS
static ucontext_t outside, inside;
static void coroutine(void) {
  for (;;) {
    call();
    swapcontext(&inside, &outside);
  }
}
static void coroutines(void) {
  getcontext(&inside);
  inside.uc_stack.ss_sp = malloc(kStack);
  inside.uc_stack.ss_size = kStack;
  makecontext(&inside, coroutine, 0);
  for (int i = 0; i < kCalls; ++i) swapcontext(&outside, &inside);
}
#endif

static void handler(int signal) {
  (void)signal;
  call();
}
static void on_signal_stack(void) {
  const stack_t stack = {.ss_sp = malloc(kStack), .ss_size = kStack};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < kCalls; ++i) raise(SIGUSR1);
}

static void* one_call(void* unused) {
  call();
  return unused;
}
// Many short lives: each thread is a new one for the tracer.
static void short_threads(void) {
  for (int i = 0; i < kCalls; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, one_call, NULL) != 0) _exit(5);
    pthread_join(thread, NULL);
  }
}

int main(int argc, char** argv) {
  die_with_parent();
  const char* kind = argc > 1 ? argv[1] : "plain";
  void (*work)(void) = plain;
  if (strcmp(kind, "no_file_size") == 0) limit(RLIMIT_FSIZE, 0);
  if (strcmp(kind, "no_descriptors") == 0) use_all_descriptors();
  if (strcmp(kind, "no_descriptors_ever") == 0) {
    limit(RLIMIT_NOFILE, 32);
    use_all_descriptors();
  }
  if (strcmp(kind, "little_address_space") == 0) limit(RLIMIT_AS, kWords);
  if (strcmp(kind, "no_core") == 0) limit(RLIMIT_CORE, 0);
  if (strcmp(kind, "no_new_executable_memory") == 0) need(prctl(PR_SET_MDWE, 1, 0, 0, 0));
  if (strcmp(kind, "locked_memory") == 0) need(mlockall(MCL_CURRENT | MCL_FUTURE));
  if (strcmp(kind, "not_dumpable") == 0) need(prctl(PR_SET_DUMPABLE, 0));
  if (strcmp(kind, "own_mounts") == 0) need(unshare(CLONE_NEWNS));
  if (strcmp(kind, "other_root") == 0) need(chroot(argc > 2 ? argv[2] : "/") || chdir("/"));
  if (strcmp(kind, "signal_stack") == 0) work = on_signal_stack;
  if (strcmp(kind, "short_threads") == 0) work = short_threads;
#ifndef NO_CONTEXTS
  if (strcmp(kind, "coroutines") == 0) work = coroutines;
#endif
  put("ready\n");
  wait_for_line();
  work();
  put_count("calls", calls);
  put_count("right", right);
  return 0;
}
