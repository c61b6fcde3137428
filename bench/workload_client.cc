#include "workload_client.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>

namespace trapline::bench {

using namespace std::chrono_literals;

Programs find_programs(const std::string& trapline_or_empty) {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return {trapline_or_empty.empty() ? (here / "trapline").string() : trapline_or_empty,
          (here / "bench_workload").string(), (here / "bench_interposer.so").string()};
}

Workload::Workload(const Programs& programs, int threads, const std::string& preload)
    : process_({programs.workload, std::to_string(threads)}, preload) {}

bool Workload::ready() { return process_.read_until("ready", 10s).has_value(); }

std::optional<Workload::Cost> Workload::cost_answer() {
  const auto line = process_.read_until("ns ", 120s);
  if (!line) return std::nullopt;
  char* rest = nullptr;
  const double wall = std::strtod(line->c_str() + 3, &rest);
  return Cost{wall, std::strtod(rest, nullptr)};
}

std::optional<Workload::Cost> Workload::run(std::chrono::milliseconds time) {
  process_.write_line("run " + std::to_string(time.count()));
  return cost_answer();
}

std::optional<Workload::Cost> Workload::burst(long pairs, long times) {
  process_.write_line("burst " + std::to_string(pairs) + " " + std::to_string(times));
  return cost_answer();
}

void Workload::start_gap(std::chrono::milliseconds time) {
  process_.write_line("gap " + std::to_string(time.count()));
}

std::optional<double> Workload::longest_gap_us() {
  const auto line = process_.read_until("gap ", 120s);
  if (!line) return std::nullopt;
  return std::strtod(line->c_str() + 4, nullptr);
}

Tracer::Tracer(const Programs& programs, const std::string& d_program, pid_t pid)
    : start_(std::chrono::steady_clock::now()),
      process_({programs.trapline, "-q", "-n", "BEGIN { printf(\"armed\\n\"); } " + d_program, "-p",
                std::to_string(pid)}) {}

std::optional<double> Tracer::wait_until_armed() {
  if (!process_.read_until("armed", 60s)) return std::nullopt;
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
      .count();
}

bool Tracer::stop() {
  process_.signal(SIGINT);
  return process_.wait(60s) == 0;
}

}  // namespace trapline::bench
