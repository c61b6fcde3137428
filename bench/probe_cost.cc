// What a probe costs the traced program: nanoseconds added to a malloc + free pair.
//
// One run measures everything it compares: the plain loop, an LD_PRELOAD interposer, Trapline with
// several programs and, where installed and allowed, bpftrace. Rounds are interleaved, so that a
// change of the machine's speed hits all alike, and each measurement is paired with one of the same
// process untraced just before. Reported: the median over rounds of the difference, its quartiles,
// and its ratio to the interposer's.
//
// Usage: probe_cost [--trapline PATH] [--rounds N] [--threads N]... [--only TEXT]

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "statistics.h"
#include "workload_client.h"

namespace trapline::bench {
namespace {

using namespace std::chrono_literals;

constexpr auto kRunTime = 150ms;
// Records have to fit into the buffer until they are drained: bursts, with rests between them.
constexpr long kBurstPairs = 10000;
constexpr long kBurstCount = 5;
constexpr long kWarmingBursts = 5;

enum class Kind { kPlain, kInterposer, kTrapline, kBpftrace };
// kFirstTouch: bursts into memory of the buffer that nobody has touched yet, as right after arming.
// kBursts: into memory that was used before, as from then on.
enum class Pace { kSteady, kFirstTouch, kBursts };

struct Variant {
  std::string name;
  Kind kind = Kind::kPlain;
  std::string program;  // D, or bpftrace's
  Pace pace = Pace::kSteady;
};

struct Measured {
  std::vector<double> total;  // ns a pair, traced
  std::vector<double> added;  // minus the untraced run beside it
  std::string problem;        // of the last round that failed
};

struct Settings {
  std::string trapline;
  int rounds = 9;
  std::vector<int> threads;
  std::string only;
  bool wall = false;
};

std::vector<Variant> variants() {
  const std::string entry = "pid$target:libc.so.6:malloc:entry ";
  return {
      {"plain loop, again", Kind::kPlain, ""},
      {"LD_PRELOAD interposer", Kind::kInterposer, ""},
      {"entry, count()", Kind::kTrapline, entry + "{ @ = count(); }"},
      {"entry, quantize(arg0)", Kind::kTrapline, entry + "{ @ = quantize(arg0); }"},
      {"entry, predicate false", Kind::kTrapline, entry + "/arg0 == 7/ { @ = count(); }"},
      {"entry, @[arg0] = count()", Kind::kTrapline, entry + "{ @[arg0] = count(); }"},
      {"entry, @[probefunc] = count()", Kind::kTrapline, entry + "{ @[probefunc] = count(); }"},
      {"entry, global = timestamp", Kind::kTrapline, entry + "{ t = timestamp; }"},
      {"return, quantize(arg1)", Kind::kTrapline,
       "pid$target:libc.so.6:malloc:return { @ = quantize(arg1); }"},
      {"entry + return, time between", Kind::kTrapline,
       entry + "{ self->t = timestamp; } pid$target:libc.so.6:malloc:return /self->t/ "
               "{ @ = quantize(timestamp - self->t); self->t = 0; }"},
      {"entry, printf of one number", Kind::kTrapline,
       "\n#pragma D option switchrate=5ms\n" + entry + "{ printf(\"%d\\n\", arg0); }",
       Pace::kBursts},
      {"the same, into fresh memory", Kind::kTrapline, entry + "{ printf(\"%d\\n\", arg0); }",
       Pace::kFirstTouch},
      {"bpftrace, hist(arg0)", Kind::kBpftrace,
       "uprobe:/lib/x86_64-linux-gnu/libc.so.6:malloc /pid == PID/ { @ = hist(arg0); }"},
  };
}

bool can_bpftrace() { return ::geteuid() == 0 && std::filesystem::exists("/usr/bin/bpftrace"); }

using Cost = Workload::Cost;

std::optional<Cost> measure(Workload& workload, Pace pace) {
  if (pace == Pace::kSteady) return workload.run(kRunTime);
  // Records that are drained in the rests leave their memory to the next ones.
  if (pace == Pace::kBursts && !workload.burst(kBurstPairs, kWarmingBursts)) return std::nullopt;
  return workload.burst(kBurstPairs, kBurstCount);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "no message";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

std::optional<Cost> with_trapline(const Programs& programs, const Variant& variant,
                                  Workload& workload, std::string& problem) {
  Tracer tracer(programs, variant.program, workload.pid());
  if (!tracer.wait_until_armed()) {
    problem = last_line(tracer.errors());
    return std::nullopt;
  }
  const auto ns = measure(workload, variant.pace);
  if (!tracer.stop()) problem = "did not end well: " + last_line(tracer.errors());
  if (tracer.errors().find("drop") != std::string::npos) problem = last_line(tracer.errors());
  return ns;
}

std::optional<Cost> with_bpftrace(const Variant& variant, Workload& workload,
                                  std::string& problem) {
  std::string program = variant.program;
  program.replace(program.find("PID"), 3, std::to_string(workload.pid()));
  // The interval probe's line says that everything is attached.
  ChildProcess tracer(
      {"/usr/bin/bpftrace", "-e", program + " interval:ms:200 { printf(\"armed\\n\"); }"});
  if (!tracer.read_until("armed", 30s)) {
    problem = last_line(tracer.errors());
    return std::nullopt;
  }
  const auto ns = measure(workload, variant.pace);
  tracer.signal(SIGINT);
  tracer.wait(30s);
  return ns;
}

class Comparison {
 public:
  Comparison(const Programs& programs, const Settings& settings, int threads)
      : programs_(programs),
        settings_(settings),
        threads_(threads),
        variants_(variants()),
        measured_(variants_.size()) {}

  bool run() {
    for (int round = 0; round < settings_.rounds; ++round) {
      for (std::size_t i = 0; i < variants_.size(); ++i) {
        if (!skipped(variants_[i]) && !one_round(variants_[i], measured_[i])) return false;
      }
      std::fprintf(stderr, "%d threads: round %d of %d\n", threads_, round + 1, settings_.rounds);
    }
    print();
    return true;
  }

 private:
  bool skipped(const Variant& variant) const {
    if (variant.kind == Kind::kBpftrace && !can_bpftrace()) return true;
    return variant.kind == Kind::kTrapline &&
           variant.name.find(settings_.only) == std::string::npos;
  }

  // Each round has processes of its own: where the loader puts things makes a difference of half a
  // nanosecond.
  bool one_round(const Variant& variant, Measured& measured) {
    Workload plain(programs_, threads_);
    Workload interposed(programs_, threads_, programs_.interposer);
    if (!plain.ready() || !interposed.ready()) {
      std::fprintf(stderr, "the workload does not start\n");
      return false;
    }
    const auto before = measure(plain, variant.pace);
    std::optional<Cost> traced;
    switch (variant.kind) {
      case Kind::kPlain:
        traced = measure(plain, variant.pace);
        break;
      case Kind::kInterposer:
        traced = measure(interposed, variant.pace);
        break;
      case Kind::kTrapline:
        traced = with_trapline(programs_, variant, plain, measured.problem);
        break;
      case Kind::kBpftrace:
        traced = with_bpftrace(variant, plain, measured.problem);
        break;
    }
    const auto after = measure(plain, variant.pace);
    if (!before || !traced || !after) return true;
    measured.total.push_back(chosen(*traced));
    measured.added.push_back(chosen(*traced) - (chosen(*before) + chosen(*after)) / 2);
    return true;
  }

  double chosen(const Cost& cost) const { return settings_.wall ? cost.wall : cost.cpu; }

  void print() const {
    std::printf("%d thread%s\n", threads_, threads_ == 1 ? "" : "s");
    std::printf("  %-32s %10s %10s %21s %9s\n", "", "ns a pair", "added ns", "quartiles", "ratio");
    double interposer = 0;
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      if (variants_[i].kind == Kind::kInterposer) interposer = summarize(measured_[i].added).median;
    }
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      const Measured& m = measured_[i];
      if (m.added.empty()) {
        if (!skipped(variants_[i]))
          std::printf("  %-32s failed: %s\n", variants_[i].name.c_str(), m.problem.c_str());
        continue;
      }
      const Summary added = summarize(m.added);
      std::printf("  %-32s %10.2f %10.2f %10.2f..%9.2f", variants_[i].name.c_str(),
                  summarize(m.total).median, added.median, added.low, added.high);
      if (interposer > 0.05) std::printf(" %8.1fx", added.median / interposer);
      std::printf("%s%s\n", m.problem.empty() ? "" : "  ", m.problem.c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  const Programs& programs_;
  const Settings& settings_;
  int threads_;
  std::vector<Variant> variants_;
  std::vector<Measured> measured_;
};

bool parse(int argc, char** argv, Settings& settings) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--trapline") {
      settings.trapline = argv[i + 1];
    } else if (flag == "--rounds") {
      settings.rounds = std::atoi(argv[i + 1]);
    } else if (flag == "--threads") {
      settings.threads.push_back(std::atoi(argv[i + 1]));
    } else if (flag == "--only") {
      settings.only = argv[i + 1];
    } else if (flag == "--clock") {
      settings.wall = std::string(argv[i + 1]) == "wall";
    } else {
      return false;
    }
  }
  if (settings.threads.empty()) settings.threads = {1, 2};
  return argc % 2 == 1 && settings.rounds > 0;
}

int run(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  Settings settings;
  if (!parse(argc, argv, settings)) {
    std::fprintf(stderr,
                 "usage: %s [--trapline PATH] [--rounds N] [--threads N]... [--only TEXT] [--clock "
                 "cpu|wall]\n",
                 argv[0]);
    return 2;
  }
  const Programs programs = find_programs(settings.trapline);
  for (const int threads : settings.threads) {
    if (!Comparison(programs, settings, threads).run()) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trapline::bench

int main(int argc, char** argv) { return trapline::bench::run(argc, argv); }
