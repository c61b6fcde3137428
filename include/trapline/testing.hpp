/// @file testing.hpp
/// Counting calls in a program's own tests: "this function must not allocate", "this path calls
/// fsync once". Header only, C++17, over trapline.hpp.
///
/// @code
/// EXPECT_EQ(1, trapline::testing::count_calls("libc", "fsync", [&] { store.commit(); }));
///
/// EXPECT_NO_ALLOCATIONS { queue.push(1); }              // GoogleTest
/// EXPECT_CALLS("libc", "fsync", 1) { store.commit(); }
///
/// CHECK_NO_ALLOCATIONS { queue.push(1); }               // Catch2
/// CHECK_CALLS("libc", "fsync", 1) { store.commit(); }
/// @endcode
///
/// Counted are the calls of the calling thread, unless all threads are asked for; and calls that
/// really take place: what the compiler has inlined or left out is no call. The first use starts a
/// helper process (some 100 ms), which later ones share; the same thing counted again by the same
/// thread costs some milliseconds. Counting may be nested, but not of the same function: each level
/// has a helper of its own, and one place has one probe.
///
/// Where something cannot be counted exactly (no such function, a place that cannot be probed, lost
/// data) trapline::Error is thrown, and the macros report a failure: never a number that is wrong.

#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <trapline/trapline.hpp>
#include <utility>
#include <vector>

namespace trapline {
inline namespace v0 {
/// Helpers for unit tests.
namespace testing {

/// Whose calls count.
enum class Threads {
  kCalling,  ///< Those of the thread that constructs the Counter.
  kAll,      ///< Those of all threads.
};

/// @cond
namespace detail {

// A session and the program that it has.
struct Tracer {
  Session session = Session::self();
  std::string program;
};

// Tracers that nobody uses at present. In a forked child those of the parent are of no use.
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }
  // One that has `program` if there is one.
  std::unique_ptr<Tracer> take(std::string_view program) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pid_ != ::getpid()) {
      free_.clear();
      pid_ = ::getpid();
    }
    auto best = std::find_if(free_.begin(), free_.end(),
                             [&](const auto& tracer) { return tracer->program == program; });
    if (best == free_.end() && !free_.empty()) best = free_.begin();
    if (best == free_.end()) return std::make_unique<Tracer>();
    std::unique_ptr<Tracer> tracer = std::move(*best);
    free_.erase(best);
    return tracer;
  }
  void give_back(std::unique_ptr<Tracer> tracer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(tracer));
  }

 private:
  std::mutex mutex_;
  pid_t pid_ = ::getpid();
  std::vector<std::unique_ptr<Tracer>> free_;
};

// A name as part of a probe description: C++ names have characters that D wants quoted.
inline std::string quoted(std::string_view name) {
  if (name.find_first_of(":(<, ") == std::string_view::npos) return std::string(name);
  return '"' + std::string(name) + '"';
}

}  // namespace detail
/// @endcond

/// A function to count calls of. Patterns as in D ("*", "?", "[a-z]") stand for all that match.
struct Callee {
  std::string module;    ///< As "libc" or "libfoo.so.1"; "a.out": the program itself; "": any.
  std::string function;  ///< As "malloc", or a C++ function with its parameters: "ns::f(int)".
};

/// Counts calls between start() and stop(), as often as wanted. For one thread at a time. Allocates
/// outside of start() to stop() only.
class Counter {
 public:
  /// Prepares to count calls of a function. Throws Error, kCompile if there is no such function.
  /// @param module as "libc"; "" for any
  /// @param function as "malloc"
  /// @param threads whose calls
  Counter(std::string_view module, std::string_view function, Threads threads = Threads::kCalling)
      : Counter({Callee{std::string(module), std::string(function)}}, threads) {}

  /// Prepares to count calls of several functions. Those that do not exist are left out; throws
  /// Error, kNotFound, if that leaves none.
  /// @param callees the functions
  /// @param threads whose calls
  explicit Counter(const std::vector<Callee>& callees, Threads threads = Threads::kCalling) {
    std::string program;
    for (const Callee& callee : callees) {
      program += (program.empty() ? "" : ",\n") + std::string("pid$target:") +
                 detail::quoted(callee.module) + ':' + detail::quoted(callee.function) + ":entry";
    }
    if (threads == Threads::kCalling) {
      program += "\n/tid == " + std::to_string(::syscall(SYS_gettid)) + '/';
    }
    program += "\n{ @calls[probefunc] = count(); }";
    prepare(program, callees.size() > 1);
  }

  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  ~Counter() {
    if (!tracer_) return;
    try {
      if (running_) tracer_->session.stop();
      detail::Pool::instance().give_back(std::move(tracer_));
    } catch (const std::exception&) {
      // Its helper is gone: the tracer is not used again.
    }
  }

  /// Starts to count, from 0. Throws Error, kUnsupported if a place cannot be probed.
  void start() {
    tracer_->session.clear();
    const Report report = tracer_->session.start();
    running_ = true;
    std::size_t refused = 0;
    const trapline_refusal* refusals = trapline_report_refusals(report.get(), &refused);
    if (refused == 0) return;
    std::string text = "cannot be counted: " + std::string(refusals[0].probe.data) + ": " +
                       refusals[0].reason.data;
    stop_session();
    throw Error(ErrorCode::kUnsupported, text);
  }

  /// Stops counting. Throws Error, kInternal if calls were lost.
  void stop() {
    stop_session();
    snapshot_ = std::make_unique<Snapshot>(tracer_->session.snapshot(Text::kNone));
    if (total(snapshot_->drops()) != 0) {
      throw Error(ErrorCode::kInternal, "calls were lost: there were too many threads");
    }
  }

  /// How many calls there were between the last start() and stop().
  /// @return their number
  std::int64_t calls() const {
    std::int64_t sum = 0;
    for_each([&](std::string_view, std::int64_t count) { sum += count; });
    return sum;
  }
  /// The same for each function: `f(std::string_view name, std::int64_t calls)`.
  /// @param callback called for each function that was called
  template <typename Callback>
  void for_each(Callback&& callback) const {
    if (!snapshot_) return;
    for (const Entry& entry : (*snapshot_)["calls"]) {
      callback(entry.key(0).string(), entry.value());
    }
  }
  /// The same as text.
  /// @return as "malloc 2, realloc 1"
  std::string description() const {
    std::string text;
    for_each([&](std::string_view name, std::int64_t count) {
      text += (text.empty() ? "" : ", ") + std::string(name) + ' ' + std::to_string(count);
    });
    return text;
  }

 private:
  void prepare(const std::string& program, bool some_may_be_missing) {
    tracer_ = detail::Pool::instance().take(program);
    // The helper of one that was used before may have been killed since.
    if (!tracer_->program.empty() && !usable(*tracer_))
      tracer_ = std::make_unique<detail::Tracer>();
    if (tracer_->program == program) return;
    tracer_->program.clear();
    Options options;
    if (some_may_be_missing) options.set("zdefs");
    const Report report = tracer_->session.compile(program, options.name("counter"));
    if (report.probes() == 0) throw Error(ErrorCode::kNotFound, "no such function");
    tracer_->program = program;
  }
  static bool usable(detail::Tracer& tracer) {
    try {
      tracer.session.clear();
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  void stop_session() {
    running_ = false;
    tracer_->session.stop();
  }

  std::unique_ptr<detail::Tracer> tracer_;
  std::unique_ptr<Snapshot> snapshot_;
  bool running_ = false;
};

/// Calls a function, and counts the calls of another that are made meanwhile.
/// @param module as "libc"; "" for any
/// @param function as "malloc"
/// @param body what to call
/// @param threads whose calls
/// @return how many calls
template <typename Body>
std::int64_t count_calls(std::string_view module, std::string_view function, Body&& body,
                         Threads threads = Threads::kCalling) {
  Counter counter(module, function, threads);
  counter.start();
  body();
  counter.stop();
  return counter.calls();
}

/// The functions that allocate memory: malloc() and its like, and operator new, for allocators
/// whose operator new does not call malloc().
/// @return them, in any module
inline std::vector<Callee> allocation_functions() {
  std::vector<Callee> callees;
  for (const char* name :
       {"malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc",
        "posix_memalign", "valloc", "pvalloc", "_Znwm", "_Znam", "_ZnwmSt11align_val_t",
        "_ZnamSt11align_val_t", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"}) {
    callees.push_back({"", name});
  }
  return callees;
}

/// Calls a function, and counts the allocations that are made meanwhile. (An operator new that
/// calls malloc() is one allocation; a new[] that calls operator new as well.)
/// @param body what to call
/// @param threads whose allocations
/// @return how many; 0 if and only if there was none
template <typename Body>
std::int64_t count_allocations(Body&& body, Threads threads = Threads::kCalling) {
  Counter counter(allocation_functions(), threads);
  counter.start();
  body();
  counter.stop();
  std::int64_t by_new = 0;
  std::int64_t by_malloc = 0;
  counter.for_each([&](std::string_view name, std::int64_t calls) {
    const bool is_new = name.substr(0, 3) == "_Zn" || name.substr(0, 8) == "operator";
    (is_new ? by_new : by_malloc) += calls;
  });
  return std::max(by_new, by_malloc);
}

/// @cond
namespace detail {

// Counts while it lives; then compares, and tells `report` what is wrong. Not where an exception
// leaves the block: the test has failed anyway.
template <typename Reporter>
class Watch {
 public:
  Watch(const std::vector<Callee>& callees, Threads threads, std::int64_t wanted, const char* what,
        Reporter report)
      : counter_(callees, threads), report_(report), what_(what), wanted_(wanted) {
    counter_.start();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  // Frameworks may throw from a failure.
  ~Watch() noexcept(false) {
    std::string problem;
    try {
      counter_.stop();
      if (counter_.calls() == wanted_) return;
      problem = "expected " + std::to_string(wanted_) + ' ' + what_ + ", there were " +
                std::to_string(counter_.calls());
      if (counter_.calls() != 0) problem += " (" + counter_.description() + ')';
    } catch (const std::exception& error) {
      problem = std::string(what_) + " could not be counted: " + error.what();
    }
    if (std::uncaught_exceptions() > exceptions_) return;
    report_(problem);
  }

 private:
  Counter counter_;
  Reporter report_;
  const char* what_;
  std::int64_t wanted_;
  int exceptions_ = std::uncaught_exceptions();
};

template <typename Reporter>
Watch<Reporter> watch_allocations(Threads threads, Reporter report) {
  return {allocation_functions(), threads, 0, "allocations", report};
}
template <typename Reporter>
Watch<Reporter> watch_calls(std::string_view module, std::string_view function, std::int64_t wanted,
                            Threads threads, Reporter report) {
  return {{Callee{std::string(module), std::string(function)}}, threads, wanted, "calls", report};
}

}  // namespace detail
/// @endcond

}  // namespace testing
}  // namespace v0
}  // namespace trapline

/// @cond
// Runs the block that follows it with a Watch around it.
#define TRAPLINE_WATCH_(watch) if (const auto trapline_watch_ = watch; true)
#define TRAPLINE_GTEST_ [](const std::string& text) { ADD_FAILURE_AT(__FILE__, __LINE__) << text; }
#define TRAPLINE_CATCH_ [](const std::string& text) { FAIL_CHECK(text); }
/// @endcond

/// GoogleTest: the block that follows makes no allocation in this thread.
/// What fails is reported when the block is left, by `return` or `break` too, but not by an
/// exception.
#define EXPECT_NO_ALLOCATIONS                                     \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_allocations( \
      ::trapline::testing::Threads::kCalling, TRAPLINE_GTEST_))
/// GoogleTest: no thread makes an allocation while the block that follows runs.
#define EXPECT_NO_ALLOCATIONS_IN_ANY_THREAD                       \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_allocations( \
      ::trapline::testing::Threads::kAll, TRAPLINE_GTEST_))
/// GoogleTest: the block that follows calls a function so many times, in this thread.
#define EXPECT_CALLS(module, function, count)               \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_calls( \
      module, function, count, ::trapline::testing::Threads::kCalling, TRAPLINE_GTEST_))
/// GoogleTest: all threads together call a function so many times while the block that follows
/// runs.
#define EXPECT_CALLS_IN_ALL_THREADS(module, function, count) \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_calls(  \
      module, function, count, ::trapline::testing::Threads::kAll, TRAPLINE_GTEST_))

/// Catch2: as EXPECT_NO_ALLOCATIONS.
#define CHECK_NO_ALLOCATIONS                                      \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_allocations( \
      ::trapline::testing::Threads::kCalling, TRAPLINE_CATCH_))
/// Catch2: as EXPECT_NO_ALLOCATIONS_IN_ANY_THREAD.
#define CHECK_NO_ALLOCATIONS_IN_ANY_THREAD                        \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_allocations( \
      ::trapline::testing::Threads::kAll, TRAPLINE_CATCH_))
/// Catch2: as EXPECT_CALLS.
#define CHECK_CALLS(module, function, count)                \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_calls( \
      module, function, count, ::trapline::testing::Threads::kCalling, TRAPLINE_CATCH_))
/// Catch2: as EXPECT_CALLS_IN_ALL_THREADS.
#define CHECK_CALLS_IN_ALL_THREADS(module, function, count) \
  TRAPLINE_WATCH_(::trapline::testing::detail::watch_calls( \
      module, function, count, ::trapline::testing::Threads::kAll, TRAPLINE_CATCH_))
