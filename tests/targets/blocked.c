// blocked: a thread each in read, nanosleep, epoll_wait, futex, sigtimedwait, poll, semtimedop and
// recv with a timeout, while the main thread waits for a line. A tracer that comes and goes must
// not make any of these calls return: each says `interrupted NAME` if it failed with EINTR, and
// `early NAME` if it returned otherwise before the line came. Ends with `woken N`.
//
// Writes `ready` once all of them block (as /proc says).

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/poll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "target.h"

enum { kSeconds = 600 };

static int wake_read[2], wake_socket[2], wake_event, semaphore;
static atomic_int futex_word, woken;
static atomic_int released;

static long block_read(void) {
  char c;
  return read(wake_read[0], &c, 1);
}
static long block_nanosleep(void) {
  struct timespec t = {1, 0};
  long result = 0;
  while (!released && result == 0) result = nanosleep(&t, NULL);
  return result;
}
static long block_epoll(void) {
  struct epoll_event event = {.events = EPOLLIN};
  const int fd = epoll_create1(0);
  epoll_ctl(fd, EPOLL_CTL_ADD, wake_event, &event);
  return epoll_wait(fd, &event, 1, kSeconds * 1000);
}
static long block_futex(void) {
  struct timespec t = {kSeconds, 0};
  const long result = syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, &t, NULL, 0);
  return result < 0 && errno == EAGAIN ? 0 : result;
}
static long block_sigtimedwait(void) {
  struct timespec t = {kSeconds, 0};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return sigtimedwait(&set, NULL, &t);
}
static long block_poll(void) {
  struct pollfd fd = {.fd = wake_event, .events = POLLIN};
  return poll(&fd, 1, kSeconds * 1000);
}
static long block_semtimedop(void) {
  struct timespec t = {kSeconds, 0};
  struct sembuf operation = {0, -1, 0};
  return semtimedop(semaphore, &operation, 1, &t);
}
static long block_recv(void) {
  struct timeval t = {kSeconds, 0};
  char c;
  setsockopt(wake_socket[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  return recv(wake_socket[0], &c, 1, 0);
}

static const struct {
  const char* name;
  long (*call)(void);
} kCalls[] = {{"read", block_read},
              {"nanosleep", block_nanosleep},
              {"epoll_wait", block_epoll},
              {"futex", block_futex},
              {"sigtimedwait", block_sigtimedwait},
              {"poll", block_poll},
              {"semtimedop", block_semtimedop},
              {"recv", block_recv}};
enum { kCount = sizeof kCalls / sizeof kCalls[0] };
static atomic_int tids[kCount];

static void* work(void* argument) {
  const size_t i = (size_t)argument;
  char line[64];
  tids[i] = (int)syscall(SYS_gettid);
  const long result = kCalls[i].call();
  const int error = errno;
  if (result < 0 && error == EINTR) {
    snprintf(line, sizeof line, "interrupted %s\n", kCalls[i].name);
    put(line);
  } else if (result < 0) {
    snprintf(line, sizeof line, "failed %s: %s\n", kCalls[i].name, strerror(error));
    put(line);
  } else if (!released) {
    snprintf(line, sizeof line, "early %s\n", kCalls[i].name);
    put(line);
  } else {
    ++woken;
  }
  return NULL;
}

static int is_blocked(int tid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  const int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* state = strrchr(text, ')');
  return state != NULL && state[2] == 'S';
}

int main(void) {
  pthread_t threads[kCount];
  sigset_t set;
  die_with_parent();
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  sigprocmask(SIG_BLOCK, &set, NULL);
  if (pipe(wake_read) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, wake_socket) != 0) return 3;
  wake_event = eventfd(0, 0);
  semaphore = semget(IPC_PRIVATE, 1, 0600);
  if (semaphore < 0) return 3;
  for (size_t i = 0; i < kCount; ++i) {
    if (pthread_create(&threads[i], NULL, work, (void*)i) != 0) return 3;
  }
  for (int i = 0; i < kCount; ++i) {
    while (tids[i] == 0 || !is_blocked(tids[i])) sched_yield();
  }
  put("ready\n");
  wait_for_line();
  released = 1;
  struct sembuf up = {0, 1, 0};
  const unsigned long long one = 1;
  futex_word = 1;
  syscall(SYS_futex, &futex_word, FUTEX_WAKE, 1, NULL, NULL, 0);
  if (write(wake_read[1], "x", 1) != 1 || write(wake_socket[1], "x", 1) != 1 ||
      write(wake_event, &one, sizeof one) != sizeof one || semop(semaphore, &up, 1) != 0) {
    return 3;
  }
  kill(getpid(), SIGUSR2);
  for (int i = 0; i < kCount; ++i) pthread_join(threads[i], NULL);
  semctl(semaphore, 0, IPC_RMID);
  put_count("woken", woken);
  return woken == kCount ? 0 : 4;
}
