// Sessions of the process that makes them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <trapline/trapline.hpp>
#include <vector>

#include "probed.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using trapline::ErrorCode;
using trapline::Session;

PROBED int probed_with(int number, const char* text, unsigned long large) {
  keep(number);
  return text != nullptr ? static_cast<int>(large) : number;
}
PROBED int probed_never(int number) {
  keep(number);
  return number + 1;
}

ErrorCode code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const trapline::Error& error) {
    EXPECT_STRNE("", error.what());
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(SelfTest, CountsExactly) {
  Session session = Session::self();
  EXPECT_EQ(::getpid(), session.pid());
  const trapline::Report compiled =
      session.compile("pid$target:a.out:probed_with:entry { @calls = count(); @sum = sum(arg0); }");
  EXPECT_EQ(1u, compiled.probes());
  EXPECT_EQ(trapline::State::kCompiled, session.snapshot().state());
  probed_with(1, "", 0);
  EXPECT_EQ(1u, session.start().probes());
  EXPECT_EQ(trapline::State::kRunning, session.snapshot().state());
  for (int i = 1; i <= 100; ++i) probed_with(i, "", 0);
  EXPECT_EQ(100, session.snapshot().value("calls")) << "while it runs";
  for (int i = 0; i < 10; ++i) probed_with(-5, "", 0);
  session.stop();
  probed_with(1, "", 0);
  const trapline::Snapshot snapshot = session.snapshot();
  EXPECT_EQ(trapline::State::kStopped, snapshot.state());
  EXPECT_EQ(110, snapshot["calls"].value());
  EXPECT_EQ(5050 + 10 * std::int64_t{0xfffffffb}, snapshot["sum"].value())
      << "an int's register, as D sees it";
  EXPECT_EQ(0u, trapline::total(snapshot.drops()));
  EXPECT_EQ(2u, snapshot.size());
  EXPECT_EQ(snapshot.text(), [&] {
    std::ostringstream out;
    out << snapshot;
    return out.str();
  }());
  EXPECT_THAT(std::string(snapshot.text()), HasSubstr("110"));
  EXPECT_EQ("", session.snapshot(trapline::Text::kNone).text());
}

TEST(SelfTest, GoesOnAndClears) {
  Session session = Session::self();
  session.compile("pid$target:a.out:probed_with:entry { @calls = count(); @last = max(arg0); }");
  for (int round = 1; round <= 5; ++round) {
    session.start();
    for (int i = 0; i < 7; ++i) probed_with(round, "", 0);
    session.stop();
    EXPECT_EQ(7 * round, session.snapshot().value("calls"));
  }
  session.clear();
  EXPECT_EQ(0, session.snapshot().value("calls"));
  session.start();
  probed_with(2, "", 0);
  session.clear();
  probed_with(1, "", 0);
  session.stop();
  session.stop();  // nothing to do
  EXPECT_EQ(1, session.snapshot().value("calls"));
  EXPECT_EQ(1, session.snapshot().value("last"));
  // Another program in the same session.
  session.compile("pid$target:a.out:probed_never:entry { @never = count(); @none = min(arg0); }");
  session.start();
  session.stop();
  const trapline::Snapshot snapshot = session.snapshot();
  EXPECT_EQ(0, snapshot["never"].value());
  EXPECT_FALSE(snapshot.find("calls"));
  EXPECT_EQ(ErrorCode::kNotFound, code_of([&] { snapshot["calls"]; }));
  EXPECT_EQ(ErrorCode::kNotFound, code_of([&] { snapshot["none"].value(); }));
}

TEST(SelfTest, TheLibrarysOwnCallsAreNotSeen) {
  Session session = Session::self(trapline::Records::kDelivered);
  session.compile(
      "pid$target:libc:malloc:entry, pid$target:libc:free:entry, pid$target:libc:realloc:entry,"
      "pid$target:libc:memcpy:entry, pid$target:libc:memcmp:entry, pid$target:libc:strlen:entry,"
      "pid$target:libc:poll:entry, pid$target:libc:close:entry { @calls[probefunc] = count(); }"
      "pid$target:a.out:probed_with:entry { printf(\"%d\", arg0); }",
      trapline::Options().set("zdefs"));
  session.start();
  probed_with(1, "", 0);
  for (int i = 0; i < 20; ++i) {
    trapline_snapshot* snapshot = nullptr;
    trapline_session_snapshot(session.get(), TRAPLINE_SNAPSHOT_TEXT, &snapshot);
    trapline_snapshot_find(snapshot, "calls", 5);
    trapline_snapshot_destroy(snapshot);
    session.dispatch([](const trapline::Record&) {});
    trapline_session_clear(nullptr);  // a failure, with a text
    session.fd();
  }
  session.stop();
  const trapline::Snapshot snapshot = session.snapshot();
  for (const trapline::Entry& entry : snapshot["calls"]) {
    ADD_FAILURE() << entry.key(0) << " was called " << entry.value() << " times";
  }
  EXPECT_EQ(0u, snapshot["calls"].size());
}

TEST(SelfTest, ReadingDoesNotAllocate) {
  Session watching = Session::self();
  watching.compile("pid$target:libc:malloc:entry { @calls = count(); }");
  Session session = Session::self();
  session.compile(
      "pid$target:a.out:probed_with:entry { @by[arg0, copyinstr(arg1)] = count();"
      " @sizes = quantize(arg0); @mean = avg(arg0); }");
  session.start();
  probed_with(3, "three", 0);
  session.stop();
  std::int64_t sum = 0;
  watching.start();
  {
    const trapline::Snapshot snapshot = session.snapshot();
    sum += snapshot["by"].value(3, "three");
    for (const trapline::Aggregation& aggregation : snapshot) {
      for (const trapline::Entry& entry : aggregation) sum += static_cast<int>(entry.key_size());
    }
    for (const trapline::Bucket& bucket : snapshot["sizes"].histogram()) sum += bucket.count;
    sum += snapshot["mean"].value();
    session.start();
    session.stop();
    session.clear();
  }
  watching.stop();
  EXPECT_EQ(0, watching.snapshot().value("calls"));
  EXPECT_EQ(1 + 2 + 1 + 3, sum);
}

TEST(SelfTest, KeysOfEachKind) {
  Session session = Session::self();
  session.compile(
      "pid$target:a.out:probed_with:entry"
      " { @by[(int)arg0, copyinstr(arg1), (uint64_t)arg2] = count(); }");
  session.start();
  probed_with(-1, "one", std::numeric_limits<unsigned long>::max());
  probed_with(-1, "one", std::numeric_limits<unsigned long>::max());
  probed_with(2, "n\xc3\xb6n \"ascii\"\n", 5);
  probed_with(2, "\xff\xfe", 5);
  session.stop();
  const trapline::Snapshot snapshot = session.snapshot();
  const trapline::Aggregation by = snapshot["by"];
  EXPECT_EQ(3u, by.key_size());
  EXPECT_EQ(3u, by.size());
  EXPECT_EQ(2, by.value(-1, "one", std::numeric_limits<unsigned long>::max()));
  EXPECT_EQ(1, by.value(2, std::string("n\xc3\xb6n \"ascii\"\n"), 5));
  EXPECT_EQ(1, by.value(2, "\xff\xfe", 5u));
  EXPECT_EQ(0, by.value(3, "one", 5)) << "never written";
  EXPECT_FALSE(by.find(3, "one", 5));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { by.value(); }));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { by.histogram(1, "", 2); }));
  const auto entry = by.find(-1, "one", std::numeric_limits<std::uint64_t>::max());
  ASSERT_TRUE(entry);
  const auto [number, text, large] = entry->keys<int, std::string_view, std::uint64_t>();
  EXPECT_EQ(-1, number);
  EXPECT_EQ("one", text);
  EXPECT_EQ(std::numeric_limits<std::uint64_t>::max(), large);
  EXPECT_EQ(ErrorCode::kType, code_of([&] { entry->key<std::string>(0); }));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { entry->key<unsigned>(0); }));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { entry->key<std::int64_t>(2); }));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { entry->key<int>(1); }));
  EXPECT_EQ(ErrorCode::kNotFound, code_of([&] { entry->key(3); }));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { entry->keys<int, int>(); }));
}

TEST(SelfTest, EveryFunction) {
  Session session = Session::self();
  session.compile(
      "pid$target:a.out:probed_with:entry { @count = count(); @sum = sum((int)arg0);"
      " @min = min((int)arg0); @max = max((int)arg0); @avg = avg((int)arg0);"
      " @stddev = stddev((int)arg0); @q = quantize((int)arg0); @l = lquantize((int)arg0, 0, 10, 5);"
      " @ll = llquantize((int)arg0, 10, 0, 3, 10); }");
  session.start();
  for (const int value : {-3, 0, 1, 4, 5, 100}) probed_with(value, "", 0);
  session.stop();
  const trapline::Snapshot snapshot = session.snapshot();
  EXPECT_EQ(6, snapshot["count"].value());
  EXPECT_EQ(107, snapshot["sum"].value());
  EXPECT_EQ(-3, snapshot["min"].value());
  EXPECT_EQ(100, snapshot["max"].value());
  EXPECT_EQ(17, snapshot["avg"].value());
  const trapline::Statistics statistics = (*snapshot["stddev"].begin()).statistics();
  EXPECT_EQ(6u, statistics.count);
  EXPECT_EQ(107, statistics.sum);
  EXPECT_EQ(9u + 1 + 16 + 25 + 10000, statistics.squares_low);
  EXPECT_EQ(0u, statistics.squares_high);
  // As the command has it: the root of 10051/6 - 17^2.
  EXPECT_EQ(37, snapshot["stddev"].value());
  EXPECT_EQ(trapline::Function::kStddev, snapshot["stddev"].function());
  EXPECT_EQ(ErrorCode::kType, code_of([&] { snapshot["q"].value(); }));
  EXPECT_EQ(ErrorCode::kType, code_of([&] { snapshot["sum"].histogram(); }));

  const auto bins = [&](const char* name) {
    std::ostringstream out;
    for (const trapline::Bucket& bucket : snapshot[name].histogram()) {
      const auto bound = [](std::int64_t value) {
        const bool none = value == std::numeric_limits<std::int64_t>::min() ||
                          value == std::numeric_limits<std::int64_t>::max();
        return none ? std::string("*") : std::to_string(value);
      };
      out << bound(bucket.low) << ".." << bound(bucket.high) << ':' << bucket.count << ' ';
    }
    return out.str();
  };
  EXPECT_EQ("-3..-2:1 0..0:1 1..1:1 4..7:2 64..127:1 ", bins("q"));
  EXPECT_EQ("*..-1:1 0..4:3 5..9:1 10..*:1 ", bins("l"));
  EXPECT_THAT(bins("ll"), HasSubstr(":"));
}

TEST(SelfTest, Mistakes) {
  Session session = Session::self();
  try {
    session.compile("pid$target:a.out:probed_with:entry\n{ @a = count(; }",
                    trapline::Options().name("mine.d"));
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kCompile, error.code());
    ASSERT_FALSE(error.diagnostics().empty());
    const trapline::Diagnostic& first = error.diagnostics().front();
    EXPECT_EQ("SYNTAX", first.tag);
    EXPECT_EQ("mine.d", first.file);
    EXPECT_EQ(2u, first.line);
    EXPECT_GT(first.column, 0u);
    EXPECT_FALSE(first.warning);
    std::ostringstream out;
    out << first;
    EXPECT_THAT(out.str(), testing::StartsWith("mine.d:2:"));
  }
  EXPECT_EQ(ErrorCode::kState, code_of([&] { session.start(); })) << "there is no program";
  EXPECT_EQ(ErrorCode::kState, code_of([&] { session.snapshot(); }));
  EXPECT_EQ(ErrorCode::kCompile,
            code_of([&] { session.compile("pid$target::no_such_function_at_all:entry {}"); }));
  EXPECT_EQ(0u, session
                    .compile("pid$target::no_such_function_at_all:entry { @a = count(); }",
                             trapline::Options().set("zdefs"))
                    .probes());
  session.compile("pid$target:a.out:probed_with:entry { @a = count(); }");
  session.start();
  EXPECT_EQ(ErrorCode::kState, code_of([&] { session.start(); }));
  EXPECT_EQ(ErrorCode::kState, code_of([&] { session.compile("BEGIN {}"); }));
  session.stop();
}

TEST(SelfTest, OptionsAndArguments) {
  Session session = Session::self();
  session.compile("pid$target:a.out:probed_with:entry /arg0 == $1/ { @[$$2] = count(); }",
                  trapline::Options().argument(7).argument("key").set("aggsize", "1m"));
  session.start();
  probed_with(7, "", 0);
  probed_with(8, "", 0);
  session.stop();
  const trapline::Snapshot snapshot = session.snapshot();
  EXPECT_EQ(1, (*snapshot.begin()).value("key"));
  EXPECT_NE(ErrorCode::kInternal,
            code_of([&] { session.compile("BEGIN {}", trapline::Options().set("nosuch", "1")); }));
  // The session is as good as before.
  session.compile("BEGIN { @a = count(); }");
}

TEST(SelfTest, TwoSessionsOnDifferentFunctions) {
  Session first = Session::self();
  Session second = Session::self();
  EXPECT_NE(trapline_session_helper_pid(first.get()), trapline_session_helper_pid(second.get()));
  first.compile("pid$target:a.out:probed_with:entry { @calls = count(); }");
  second.compile("pid$target:a.out:probed_never:entry { @calls = count(); }");
  first.start();
  second.start();
  for (int i = 0; i < 10; ++i) probed_with(i, "", 0);
  for (int i = 0; i < 20; ++i) probed_never(i);
  first.stop();
  for (int i = 0; i < 3; ++i) probed_never(i);
  second.stop();
  EXPECT_EQ(10, first.snapshot().value("calls"));
  EXPECT_EQ(23, second.snapshot().value("calls"));
}

TEST(SelfTest, ASnapshotOutlivesItsSession) {
  std::optional<trapline::Snapshot> snapshot;
  {
    Session session = Session::self();
    session.compile("pid$target:a.out:probed_with:entry { @calls = count(); }");
    session.start();
    probed_with(1, "", 0);
    session.stop();
    Session moved = std::move(session);
    snapshot.emplace(moved.snapshot());
  }
  EXPECT_EQ(1, (*snapshot)["calls"].value());
}

// The function's first bytes, as the program itself sees them.
std::string code_at(const void* function) { return {static_cast<const char*>(function), 32}; }

TEST(SelfTest, TheCodeIsPutBack) {
  const auto* function = reinterpret_cast<const void*>(&probed_with);
  const std::string before = code_at(function);
  {
    Session session = Session::self();
    session.compile("pid$target:a.out:probed_with:entry { @calls = count(); }");
    session.start();
    EXPECT_NE(before, code_at(function));
    session.stop();
    EXPECT_EQ(before, code_at(function));
    session.start();
  }
  EXPECT_EQ(before, code_at(function)) << "a session that is destroyed stops";
}

}  // namespace
