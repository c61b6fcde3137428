// What an attach costs: the time until probes are armed, and for how long the target stands still
// meanwhile.
//
// The pause is what the target itself sees: a thread that reads the clock without rest reports its
// longest jump. The first row is such a jump with no tracer about (the scheduler's noise). Probes
// are of libc; its module has to be in the target, whose size does not matter otherwise.
//
// Usage: attach_cost [--trapline PATH] [--rounds N]

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "statistics.h"
#include "workload_client.h"

namespace trapline::bench {
namespace {

using namespace std::chrono_literals;

struct Case {
  std::string name;
  std::string program;  // empty: no tracer
  std::chrono::milliseconds watched;
};

std::vector<Case> cases() {
  return {{"no tracer", "", 1000ms},
          {"no probe in the target", "tick-1s { exit(0); }", 2000ms},
          {"malloc:entry", "pid$target:libc.so.6:malloc:entry { @ = count(); }", 2000ms},
          {"malloc:entry and return, free",
           "pid$target:libc.so.6:malloc: { @ = count(); } "
           "pid$target:libc.so.6:free:entry { @f = count(); }",
           2000ms},
          {"every function of libc: entry",
           "pid$target:libc.so.6::entry { @[probefunc] = count(); }", 15000ms}};
}

struct Row {
  std::vector<double> armed_ms;
  std::vector<double> pause_us;
  std::string problem;
};

void one_round(const Programs& programs, const Case& what, Row& row) {
  // A fresh target each time: nothing of the round before is mapped already.
  Workload workload(programs, 1);
  if (!workload.ready()) {
    row.problem = "the workload does not start";
    return;
  }
  workload.start_gap(what.watched);
  if (what.program.empty()) {
    if (const auto gap = workload.longest_gap_us()) row.pause_us.push_back(*gap);
    return;
  }
  Tracer tracer(programs, what.program, workload.pid());
  const auto armed = tracer.wait_until_armed();
  if (armed) {
    row.armed_ms.push_back(*armed);
  } else {
    row.problem = tracer.errors().substr(0, 200);
  }
  const auto gap = workload.longest_gap_us();
  if (armed && gap) row.pause_us.push_back(*gap);
  if (armed && !tracer.stop()) row.problem = "did not end well: " + tracer.errors().substr(0, 200);
}

int run(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  std::string trapline;
  int rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--trapline") trapline = argv[i + 1];
    if (std::string(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
  }
  const Programs programs = find_programs(trapline);
  const std::vector<Case> all = cases();
  std::vector<Row> rows(all.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) one_round(programs, all[i], rows[i]);
    std::fprintf(stderr, "round %d of %d\n", round + 1, rounds);
  }
  std::printf("%-32s %14s %14s %22s\n", "", "armed after ms", "longest stop us", "quartiles");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Summary pause = summarize(rows[i].pause_us);
    std::printf("%-32s %14.1f %15.0f %10.0f..%10.0f  %s\n", all[i].name.c_str(),
                summarize(rows[i].armed_ms).median, pause.median, pause.low, pause.high,
                rows[i].problem.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace trapline::bench

int main(int argc, char** argv) { return trapline::bench::run(argc, argv); }
