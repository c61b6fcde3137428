// What the library costs a program that traces itself: the time of each call, while threads of the
// program work, beside a plain fork + exec + wait of /bin/true in the same run; and the memory that
// the library itself takes.
//
// Usage: TRAPLINE_COMMAND=build/release/bin/trapline library_cost [THREADS [ROUNDS]]

#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <trapline/trapline.hpp>
#include <vector>

#include "statistics.h"

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(const std::function<void()>& action) {
  const auto start = Clock::now();
  action();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void spawn_true() {
  char name[] = "true";
  char* const argv[] = {name, nullptr};
  pid_t pid = 0;
  if (::posix_spawn(&pid, "/bin/true", nullptr, nullptr, argv, environ) == 0)
    ::waitpid(pid, nullptr, 0);
}

// KiB of private memory in mappings of the library's file.
long library_private_kib() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  long kib = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') != std::string::npos && line.find(':') > 12)
      ours = line.find("libtrapline") != std::string::npos;
    if (ours && line.rfind("Private_", 0) == 0) kib += std::atol(line.c_str() + line.find(':') + 1);
  }
  return kib;
}

struct Figures {
  std::vector<double> spawn, connect, compile_first, start_first, compile_next, start_next,
      snapshot, stop;
};

void one_round(Figures& f) {
  f.spawn.push_back(milliseconds(spawn_true));
  std::optional<trapline::Session> session;
  f.connect.push_back(milliseconds([&] { session.emplace(trapline::Session::self()); }));
  f.compile_first.push_back(milliseconds([&] {
    session->compile("pid$target:libc:malloc:entry { @sizes = quantize(arg0); @ = count(); }");
  }));
  f.start_first.push_back(milliseconds([&] { session->start(); }));
  session->stop();
  f.compile_next.push_back(
      milliseconds([&] { session->compile("pid$target:libc:free:entry { @[tid] = count(); }"); }));
  f.start_next.push_back(milliseconds([&] { session->start(); }));
  for (int n = 0; n < 10; ++n)
    f.snapshot.push_back(milliseconds([&] { (void)session->snapshot(trapline::Text::kNone); }));
  f.stop.push_back(milliseconds([&] { session->stop(); }));
}

void report(const char* name, const std::vector<double>& values, double unit) {
  const trapline::bench::Summary summary = trapline::bench::summarize(values);
  std::printf("%-40s %9.2f %9.2f..%9.2f %9.2f\n", name, summary.median, summary.low, summary.high,
              summary.median / unit);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  std::atomic<bool> end = false;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      while (!end) {
        void* volatile block = std::malloc(100);
        std::free(block);
      }
    });
  }
  Figures f;
  for (int n = 0; n < rounds; ++n) one_round(f);
  end = true;
  for (std::thread& worker : workers) worker.join();
  const double unit = trapline::bench::summarize(f.spawn).median;
  std::printf("%d threads work, %d rounds\n%-40s %9s %20s %9s\n", threads, rounds, "", "median ms",
              "quartiles", "ratio");
  report("fork + exec + wait of /bin/true", f.spawn, unit);
  report("self(): the helper is there", f.connect, unit);
  report("compile, first", f.compile_first, unit);
  report("start to armed, first", f.start_first, unit);
  report("compile, the next program", f.compile_next, unit);
  report("start to armed, the next program", f.start_next, unit);
  report("snapshot", f.snapshot, unit);
  report("stop", f.stop, unit);
  std::printf("private memory of the library's mappings: %ld KiB\n", library_private_kib());
  return 0;
}
