// bench_workload THREADS: what is measured. It says ready, then obeys one command a line:
//   run MS           every thread does malloc + free for MS milliseconds; prints `ns X`,
//   nanoseconds a pair, mean of threads burst N TIMES    every thread does N pairs, then rests 20
//   ms, TIMES times; prints the same, of the working time alone gap MS           watches the clock
//   without pause for MS milliseconds; prints `gap X`, the longest jump in microseconds,
//                    which is how long this process was stopped (or the CPU given to another)
// Thread i is bound to CPU i (modulo). Ends with its input.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kMaxThreads = 64, kPairsBetweenLooks = 512 };

static const size_t kSizes[8] = {16, 24, 32, 48, 64, 100, 200, 500};

struct Order {
  char kind;  // r, b
  long amount;
  long times;
};
static struct Order order;
struct Result {
  double wall, cpu;  // ns a pair
};
static struct Result results[kMaxThreads];
static pthread_barrier_t begin, end;

static double read_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double now(void) { return read_clock(CLOCK_MONOTONIC); }
static double cpu_now(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

__attribute__((noinline)) static void pairs(long count) {
  for (long i = 0; i < count; ++i) {
    void* volatile block = malloc(kSizes[i & 7]);
    free(block);
  }
}

static struct Result run_for(long milliseconds) {
  const double cpu_start = cpu_now(), start = now(), stop = start + (double)milliseconds * 1e6;
  double t = start;
  long done = 0;
  while (t < stop) {
    pairs(kPairsBetweenLooks);
    done += kPairsBetweenLooks;
    t = now();
  }
  return (struct Result){(t - start) / (double)done, (cpu_now() - cpu_start) / (double)done};
}

static struct Result run_bursts(long count, long times) {
  const struct timespec rest = {0, 20000000};
  double busy = 0, cpu = 0;
  for (long i = 0; i < times; ++i) {
    const double cpu_start = cpu_now(), start = now();
    pairs(count);
    busy += now() - start;
    cpu += cpu_now() - cpu_start;
    nanosleep(&rest, NULL);
  }
  return (struct Result){busy / (double)(count * times), cpu / (double)(count * times)};
}

static void* work(void* argument) {
  const size_t me = (size_t)argument;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(me % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
  sched_setaffinity(0, sizeof set, &set);
  for (;;) {
    pthread_barrier_wait(&begin);
    results[me] = order.kind == 'r' ? run_for(order.amount) : run_bursts(order.amount, order.times);
    pthread_barrier_wait(&end);
  }
  return NULL;
}

static double longest_gap(long milliseconds) {
  const double stop = now() + (double)milliseconds * 1e6;
  double last = now(), longest = 0;
  while (last < stop) {
    const double t = now();
    if (t - last > longest) longest = t - last;
    last = t;
  }
  return longest / 1e3;
}

int main(int argc, char** argv) {
  const long threads = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
  char line[128];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (threads < 1 || threads > kMaxThreads) return 2;
  pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
  pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
  for (long i = 0; i < threads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void*)i) != 0) return 3;
  }
  setvbuf(stdout, NULL, _IOLBF, 4096);
  puts("ready");
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (strncmp(line, "gap ", 4) == 0) {
      printf("gap %.1f\n", longest_gap(strtol(line + 4, NULL, 10)));
      continue;
    }
    char kind[16];
    order.times = 1;
    if (sscanf(line, "%15s %ld %ld", kind, &order.amount, &order.times) < 2) return 2;
    order.kind = kind[0];
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    struct Result sum = {0, 0};
    for (long i = 0; i < threads; ++i) {
      sum.wall += results[i].wall;
      sum.cpu += results[i].cpu;
    }
    printf("ns %.4f %.4f\n", sum.wall / (double)threads, sum.cpu / (double)threads);
  }
  return 0;
}
