// sigqueues: a child queues real-time signals with rising values; each must arrive once, in order.
// Other threads sleep, and wait with a timeout: neither may end early or fail. A line ends it; then
// both sides compare counts. Says ready; prints the count and `intact 1`.

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

#include "target.h"

static atomic_int stop, damaged;
static volatile sig_atomic_t received, out_of_order;

static void on_signal(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  if (info->si_value.sival_int != received) out_of_order = 1;
  received = received + 1;
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void* sleeper(void* unused) {
  (void)unused;
  while (!stop) {
    const int64_t begin = now_ns();
    const struct timespec time = {0, 3000000};
    if (nanosleep(&time, NULL) != 0 || now_ns() - begin < 3000000) damaged = 1;
  }
  return NULL;
}

static void* waiter(void* unused) {
  (void)unused;
  const int set = epoll_create1(0);
  sigset_t other;
  sigemptyset(&other);
  sigaddset(&other, SIGUSR2);
  while (!stop) {
    struct epoll_event event;
    if (epoll_wait(set, &event, 1, 2) != 0) damaged = 2;
    const struct timespec time = {0, 2000000};
    if (sigtimedwait(&other, NULL, &time) != -1 || errno != EAGAIN) damaged = 3;
  }
  close(set);
  return NULL;
}

// Until `end` is closed at its other side; then writes how many it has sent to `result`.
static void send_signals(pid_t to, int end, int result) {
  die_with_parent();
  int sent = 0;
  struct pollfd ended = {end, POLLIN, 0};
  const struct timespec pause = {0, 200000};
  while (poll(&ended, 1, 0) == 0) {
    const union sigval value = {.sival_int = sent};
    if (sigqueue(to, SIGRTMIN, value) == 0) ++sent;
    nanosleep(&pause, NULL);
  }
  _exit(write(result, &sent, sizeof sent) != sizeof sent);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  int end[2], result[2];
  if (pipe(end) != 0 || pipe(result) != 0) return 3;
  sigset_t queued, before;
  sigemptyset(&queued);
  sigaddset(&queued, SIGRTMIN);
  pthread_sigmask(SIG_BLOCK, &queued, &before);  // the threads never take it
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGRTMIN, &action, NULL);
  const pid_t self = getpid(), child = fork();
  if (child == 0) {
    close(end[1]);
    send_signals(self, end[0], result[1]);
  }
  close(end[0]);
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, sleeper, NULL);
  pthread_create(&threads[1], NULL, waiter, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  put("ready\n");
  wait_for_line();
  close(end[1]);
  int sent = -1, status = -1;
  while (read(result[0], &sent, sizeof sent) < 0 && errno == EINTR) {
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  stop = 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  put_count("sent", sent);
  put_count("received", received);
  put_count("damaged", damaged);
  put_count("intact", sent > 0 && sent == received && !out_of_order && !damaged && status == 0);
  return 0;
}
