// Patches every exported function of a whole library, in a child of this process, and runs a
// workload there: it must answer as without, and every function must be left as often as it is
// entered.

#include <gtest/gtest.h>
#include <link.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "isa/x86_64/encode.h"
#include "isa/x86_64/test_elf.h"
#include "isa/x86_64/test_patch.h"

namespace trapline::isa {
namespace {

// whole library

int compare_ints(const void* a, const void* b) {
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

void* thread_main(void* out) {
  void* p = std::malloc(1000);
  std::snprintf(static_cast<char*>(p), 1000, "thread %d", 7);
  *static_cast<std::string*>(out) = static_cast<char*>(p);
  std::free(p);
  return nullptr;
}

// A bit of everything, with the same answer each time.
std::string workload() {
  std::string out;
  char line[512];
  std::mt19937 random(5);
  std::vector<int> numbers(2000);
  for (int& n : numbers) n = static_cast<int>(random() % 100000);
  std::qsort(numbers.data(), numbers.size(), sizeof(int), compare_ints);
  for (int n = 0; n < 200; ++n) {
    std::snprintf(line, sizeof(line), "%d %s %.6g %#x %5.2Lf %c|%-10s|", n, "text",
                  std::sqrt(n) * 1e5, n * 77, static_cast<long double>(n) / 3, 'a' + n % 26,
                  std::to_string(n).c_str());
    out += line;
    char* end = nullptr;
    out += std::to_string(std::strtol(line, &end, 10)) + " " +
           std::to_string(std::strtod("1.5e3", nullptr));
    out += std::to_string(numbers[static_cast<std::size_t>(n) * 7]);
  }
  std::vector<char*> blocks;
  for (std::size_t n = 1; n < 3000; n += 7) {
    auto* p = static_cast<char*>(std::malloc(n));
    std::memset(p, static_cast<int>(n), n);
    p = static_cast<char*>(std::realloc(p, n * 2));
    blocks.push_back(p);
    out += std::to_string(static_cast<unsigned char>(p[n - 1]));
  }
  for (char* p : blocks) std::free(p);
  regex_t re;
  if (::regcomp(&re, "([a-z]+)([0-9]*)x?", REG_EXTENDED) == 0) {
    regmatch_t m[3];
    if (::regexec(&re, "...hello42x", 3, m, 0) == 0)
      out += std::to_string(m[1].rm_so) + std::to_string(m[2].rm_eo);
    ::regfree(&re);
  }
  const char* words[] = {"alpha", "beta", "",
                         "a rather long string that exceeds a vector register or two"};
  for (const char* a : words) {
    for (const char* b : words) {
      std::snprintf(line, sizeof(line), "%d %zu %s %p", std::strcmp(a, b) > 0, std::strlen(a),
                    std::strstr(a, "ta") != nullptr ? "y" : "n", std::strchr(a, 'z'));
      out += line;
    }
  }
  jmp_buf jump;
  volatile int jumps = 0;
  if (::setjmp(jump) < 3) {
    jumps = jumps + 1;
    ::longjmp(jump, jumps);
  }
  out += std::to_string(jumps);
  pthread_t thread;
  std::string from_thread;
  if (::pthread_create(&thread, nullptr, thread_main, &from_thread) == 0)
    ::pthread_join(thread, nullptr);
  out += from_thread;
  if (FILE* file = ::tmpfile()) {
    for (int n = 0; n < 1000; ++n) std::fprintf(file, "line %d\n", n);
    std::rewind(file);
    int lines = 0;
    while (std::fgets(line, sizeof(line), file) != nullptr) ++lines;
    out += std::to_string(lines);
    std::fclose(file);
  }
  const pid_t child = ::fork();
  if (child == 0) ::_exit(42);
  int status = 0;
  ::waitpid(child, &status, 0);
  out += std::to_string(WEXITSTATUS(status));
  pid_t spawned = 0;
  char name[] = "true";
  char* argv[] = {name, nullptr};
  if (::posix_spawn(&spawned, "/bin/true", nullptr, nullptr, argv, environ) == 0) {
    ::waitpid(spawned, &status, 0);
    out += std::to_string(WEXITSTATUS(status));
  }
  ::setenv("ISA_TEST", "value", 1);
  out += std::getenv("ISA_TEST");
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& e) {
    out += e.what();
  }
  return out;
}

struct Library {
  std::string path;
  std::uint64_t bias = 0;
};

Library find_library(const char* part) {
  struct Search {
    const char* part;
    Library found;
  } search{part, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* p) {
        auto* s = static_cast<Search*>(p);
        if (std::string(info->dlpi_name).find(s->part) != std::string::npos) {
          s->found = {info->dlpi_name, info->dlpi_addr};
        }
        return 0;
      },
      &search);
  return search.found;
}

// The counters of one function. `complete`: its entry and every exit are probed, by points of its
// own.
struct Counted {
  std::string name;
  const Counter* entry = nullptr;
  std::vector<const Counter*> exits = {};  // several for a return whose ways are probed
  std::set<std::uint32_t> exit_tags = {};
  std::size_t exits_wanted = 0;
  bool shared = false;

  bool complete() const { return entry != nullptr && !shared && exit_tags.size() == exits_wanted; }
  std::uint64_t left() const {
    std::uint64_t sum = 0;
    for (const Counter* c : exits) sum += c->hits;
    return sum;
  }
};

struct Prepared {
  std::vector<Patch> patches;
  std::vector<Counted> functions;
  std::size_t points = 0;
  std::size_t failed = 0;
  std::size_t islands = 0;
};

struct Request {
  std::vector<PointRequest> points;
  std::vector<Save> saves;              // by tag
  std::vector<std::size_t> function;    // by tag: index in Prepared::functions
  std::vector<FunctionCode> functions;  // stays where it is: points refer to it
};

Request request_all(const TestElf& elf, const ModuleCode& module, Prepared& out) {
  Request all;
  all.functions.reserve(elf.symbols.size());
  std::map<std::uint64_t, std::size_t> owner;  // of an exit's address
  for (const TestElf::Symbol& symbol : elf.symbols) {
    if (!module.in_code(symbol.range.begin)) continue;
    all.functions.push_back(analyze_function(module, symbol.range));
    const FunctionCode& f = all.functions.back();
    Counted counted{.name = symbol.name};
    counted.shared = exits_refused(f).has_value() || f.entry_is_branch_target;
    std::vector<PointRequest> mine = exit_points(f);
    counted.exits_wanted = mine.size();
    mine.push_back(entry_point(f));
    for (PointRequest p : mine) {
      if (p.kind != PointKind::kEntry) {
        // Functions of assembler overlap: one point an instruction is enough here.
        const auto [it, is_new] = owner.emplace(p.at.value(), out.functions.size());
        if (!is_new) {
          counted.shared = true;
          if (it->second < out.functions.size()) out.functions[it->second].shared = true;
          continue;
        }
      }
      p.tag = static_cast<std::uint32_t>(all.saves.size());
      all.saves.push_back(save_for(p.kind, boundary_of(module, f, Linkage::kExported)));
      all.function.push_back(out.functions.size());
      all.points.push_back(p);
    }
    out.functions.push_back(std::move(counted));
  }
  return all;
}

// Every exported function's entry and exits, encoded but not yet written.
Prepared prepare(const TestElf& elf, const ModuleCode& module, LoadBias bias, CodeArena& arena) {
  Prepared out;
  const auto body_code = counting_body();
  const RemoteAddr body = arena.add(std::as_bytes(std::span(body_code)));
  const Request all = request_all(elf, module, out);
  SiteSet set = plan_sites(module, all.points);
  std::ranges::stable_partition(set.sites, goes_first);
  for (const SitePlan& plan : set.sites) {
    TrampolineRequest request{.address = {}, .bias = bias, .plan = &plan};
    for (const PlannedPoint& p : plan.points) {
      const Counter zero{};
      const RemoteAddr counter = arena.add(std::as_bytes(std::span(&zero, 1)));
      request.points.push_back({.offset = p.offset,
                                .kind = p.kind,
                                .save = all.saves[p.tag],
                                .body = body,
                                .probe_site = counter});
    }
    request.address = arena.next();
    const auto trampoline = encode_trampoline(request);
    EXPECT_TRUE(trampoline.has_value()) << trampoline.error().text();
    if (!trampoline || arena.left() < 8192) {
      ++out.failed;
      continue;
    }
    std::vector<Patch> patches = patches_of(plan, bias, arena.add(trampoline->bytes));
    EXPECT_FALSE(patches.empty());
    std::ranges::move(patches, std::back_inserter(out.patches));
    if (plan.form == SiteForm::kIsland) ++out.islands;
    out.points += plan.points.size();
    for (std::size_t n = 0; n < plan.points.size(); ++n) {
      const auto* counter = reinterpret_cast<const Counter*>(request.points[n].probe_site.value());
      Counted& function = out.functions[all.function[plan.points[n].tag]];
      if (plan.points[n].kind == PointKind::kEntry) {
        function.entry = counter;
      } else {
        function.exits.push_back(counter);
        function.exit_tags.insert(plan.points[n].tag);
      }
    }
  }
  return out;
}

// Functions that are left in other ways than by their exits. (execve: posix_spawn's child, which
// shares our memory.)
bool is_balanced(const std::string& name) {
  static const std::set<std::string> kOthers = {"siglongjmp",  "longjmp", "_longjmp",
                                                "__cxa_throw", "_exit",   "execve"};
  return !kOthers.contains(name);
}

// What was seen against what must have been: functions that were called at all, and left as often
// as entered.
std::string check_counts(const Prepared& prepared) {
  std::string out;
  std::size_t called = 0;
  std::size_t unbalanced = 0;
  for (const Counted& f : prepared.functions) {
    if (!f.complete() || f.entry->hits == 0 || !is_balanced(f.name)) continue;
    ++called;
    if (f.left() != f.entry->hits) {
      ++unbalanced;
      out += " [" + f.name + " entered " + std::to_string(f.entry->hits) + " times, left " +
             std::to_string(f.left()) + "]";
    }
  }
  std::fprintf(stderr, "%zu functions were called, %zu were not balanced\n", called, unbalanced);
  if (called < 20) out += " [only " + std::to_string(called) + " functions were seen]";
  return out;
}

// The workload in a child whose library is patched (or not); its answer through a pipe.
std::string run_in_child(const Prepared* prepared, const TestElf& elf, LoadBias bias) {
  int fds[2];
  if (::pipe(fds) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    if (prepared != nullptr) {
      for (const CodeSection& s : elf.input.sections) {
        const std::uint64_t begin = bias.to_remote(s.address).value();
        if (!make_writable(begin, begin + s.bytes.size())) ::_exit(3);
      }
      for (const Patch& patch : prepared->patches) write_patch(patch.at, patch.bytes);
    }
    std::string out = workload();
    if (prepared != nullptr) out += check_counts(*prepared);
    const char* p = out.data();
    for (std::size_t left = out.size(); left > 0;) {
      const ssize_t n = ::write(fds[1], p, left);
      if (n <= 0) break;
      p += n;
      left -= static_cast<std::size_t>(n);
    }
    ::_exit(0);
  }
  ::close(fds[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fds[0], buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<std::size_t>(n));
  ::close(fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) out += " [ended with status " + std::to_string(status) + "]";
  return out;
}

class WholeLibraryTest : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeLibraryTest, WorksWithEveryFunctionPatched) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer lives in what would be patched";
  const Library library = find_library(GetParam());
  ASSERT_FALSE(library.path.empty());
  const TestElf elf(library.path);
  ASSERT_TRUE(elf.valid());
  const LoadBias bias{library.bias};
  const ModuleCode module(elf.input);
  CodeArena arena(bias.to_remote(elf.input.sections.back().address).value(), 4 << 20);
  ASSERT_TRUE(arena.valid());
  const Prepared prepared = prepare(elf, module, bias, arena);
  EXPECT_GT(prepared.patches.size(), 3000u);
  EXPECT_EQ(prepared.failed, 0u);
  EXPECT_GT(prepared.islands, 10u);
  std::printf("%zu points, %zu patches, %zu islands\n", prepared.points, prepared.patches.size(),
              prepared.islands);
  const std::string plain = run_in_child(nullptr, elf, bias);
  ASSERT_GT(plain.size(), 10000u);
  EXPECT_EQ(run_in_child(&prepared, elf, bias), plain);
}

INSTANTIATE_TEST_SUITE_P(Libraries, WholeLibraryTest, ::testing::Values("libc.so", "libstdc++.so"));

}  // namespace
}  // namespace trapline::isa
