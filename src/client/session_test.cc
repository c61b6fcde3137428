// The C interface over a helper that the test plays: what it asks, and what it makes of answers.

#include "client/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "client/handle.h"
#include "client/test_helper.h"

namespace trapline::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kDrops =
    R"("drops":{"record":0,"aggregation":0,"dynamic":0,"speculation":0,"speculative":0,"level":0,"no_slot":0,"samples":0,"malformed":0,"client":0})";

std::string snapshot_result(const std::string& value) {
  return R"({"aggregations":[{"name":"c","function":"count","normal":1,"types":[],)"
         R"("entries":[{"key":[],"value":)" +
         value + "}]}]," + kDrops + R"(,"state":"running","text":"t"})";
}
std::string note(const std::string& text) {
  return TestHelper::notification("note", R"({"session":1,"text":")" + text + "\"}");
}
std::string firing(int time) {
  return R"({"probe":{"id":1},"cpu":0,"tid":5,"time":)" + std::to_string(time) +
         R"(,"actions":[]})";
}
std::string firings(const std::string& list) {
  return TestHelper::notification("records", R"({"session":1,"records":[)" + list + "]}");
}

// What a helper of good will answers.
std::vector<std::string> good(const std::string& id, const std::string& method,
                              const std::string& /*line*/) {
  auto answer = TestHelper::usual(id, method);
  if (!answer.empty()) return answer;
  if (method == "compile")
    return {TestHelper::result(id, R"({"matched":2,"diagnostics":[],"notes":[]})")};
  if (method == "start") return {TestHelper::result(id, R"({"armed":3,"refused":[],"notes":[]})")};
  if (method == "stop") return {TestHelper::result(id, R"({"notes":["n"]})")};
  if (method == "snapshot") return {TestHelper::result(id, snapshot_result("5"))};
  return {TestHelper::result(id, "{}")};
}

struct Handle {
  explicit Handle(trapline_session* from) : session(from) {}
  ~Handle() { trapline_session_destroy(session); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator trapline_session*() const { return session; }
  trapline_session* session;
};

// Texts of notes and times of firings, as they are delivered.
void collect(const trapline_record* record, void* user) {
  auto& into = *static_cast<std::vector<std::string>*>(user);
  EXPECT_FALSE(Inside::active());
  if (trapline_record_get_kind(record) == TRAPLINE_RECORD_FIRING) {
    into.push_back(std::to_string(trapline_record_time(record)));
  } else {
    into.emplace_back(trapline_record_text(record).data);
  }
}

TEST(SessionTest, AWholeLife) {
  TestHelper helper(good);
  {
    const Handle session(helper.open(TRAPLINE_RECORDS));
    ASSERT_NE(nullptr, session.session);
    EXPECT_EQ(77, trapline_session_pid(session));
    EXPECT_EQ(4242, trapline_session_helper_pid(session));

    const char* arguments[] = {"one", "two"};
    const trapline_option options[] = {{"bufsize", "8m"}, {"zdefs", nullptr}};
    trapline_program program = TRAPLINE_PROGRAM_INIT;
    program.text = "BEGIN { exit(0); } rest that is not sent";
    program.text_size = 18;
    program.name = "label";
    program.arguments = arguments;
    program.argument_count = 2;
    program.options = options;
    program.option_count = 2;
    trapline_report* report = nullptr;
    ASSERT_EQ(TRAPLINE_OK, trapline_session_compile_program(session, &program, &report));
    EXPECT_EQ(2u, trapline_report_probes(report));
    trapline_report_destroy(report);
    ASSERT_EQ(TRAPLINE_OK, trapline_session_start(session, &report));
    EXPECT_EQ(3u, trapline_report_probes(report));
    trapline_report_destroy(report);
    ASSERT_EQ(TRAPLINE_OK, trapline_session_clear(session));
    ASSERT_EQ(TRAPLINE_OK, trapline_session_stop(session, nullptr));
    trapline_snapshot* snapshot = nullptr;
    ASSERT_EQ(TRAPLINE_OK, trapline_session_snapshot(session, TRAPLINE_SNAPSHOT_TEXT, &snapshot));
    EXPECT_STREQ("t", trapline_snapshot_text(snapshot).data);
    trapline_snapshot_destroy(snapshot);
    EXPECT_FALSE(Inside::active());
  }
  const std::string offset = std::to_string(Inside::word_offset());
  EXPECT_THAT(
      helper.requests(),
      ElementsAre(
          R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":1,"client":"libtrapline 0.1.0"}})",
          R"({"jsonrpc":"2.0","id":2,"method":"open","params":{"target":{"self":true},"records":"push","mute_offset":)" +
              offset + "}}",
          R"({"jsonrpc":"2.0","id":3,"method":"compile","params":{"session":1,"text":"BEGIN { exit(0); }","name":"label","arguments":["one","two"],"options":{"bufsize":"8m","zdefs":true}}})",
          R"({"jsonrpc":"2.0","id":4,"method":"start","params":{"session":1}})",
          R"({"jsonrpc":"2.0","id":5,"method":"clear","params":{"session":1}})",
          R"({"jsonrpc":"2.0","id":6,"method":"stop","params":{"session":1}})",
          R"({"jsonrpc":"2.0","id":7,"method":"snapshot","params":{"session":1,"text":true}})",
          R"({"jsonrpc":"2.0","id":8,"method":"shutdown","params":{}})"));
}

TEST(SessionTest, WhatItOpens) {
  for (const auto kind : {Target::Kind::kProcess, Target::Kind::kCommand}) {
    TestHelper helper(good);
    Target target;
    target.kind = kind;
    target.pid = 12;
    target.arguments = {"ls", "-l"};
    target.has_standard_files = kind == Target::Kind::kCommand;
    const Handle session(helper.open(0, nullptr, target));
    const std::string open = helper.requests().at(1);
    EXPECT_THAT(open, HasSubstr(R"("records":"none")"));
    EXPECT_THAT(open, testing::Not(HasSubstr("mute_offset")));
    EXPECT_THAT(open,
                HasSubstr(kind == Target::Kind::kProcess ? R"("target":{"pid":12})"
                                                         : R"("target":{"argv":["ls","-l"]})"));
    EXPECT_EQ(kind == Target::Kind::kCommand, open.find(R"("stdio":[3,4,5])") != std::string::npos);
  }
}

TEST(SessionTest, AnotherProtocol) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    if (method == "initialize") return std::vector{TestHelper::result(id, R"({"protocol":2})")};
    return good(id, method, line);
  });
  Failure failure;
  EXPECT_EQ(nullptr, helper.open(0, &failure));
  EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL, failure.code);
  EXPECT_THAT(failure.text, HasSubstr("version 2 of the protocol, the library version 1"));
}

TEST(SessionTest, AHelperThatEndsAtOnce) {
  TestHelper helper([](auto&&...) { return std::vector<std::string>{"@close"}; });
  Failure failure;
  EXPECT_EQ(nullptr, helper.open(0, &failure));
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, failure.code);
  EXPECT_THAT(failure.text, HasSubstr("TRAPLINE_DEBUG"));
}

// Any answer to a snapshot, and what the call gives.
trapline_error answer_to_snapshot(const std::string& line, bool* usable_after = nullptr) {
  TestHelper helper([&](const std::string& id, const std::string& method, const std::string& all) {
    if (method != "snapshot") return good(id, method, all);
    return std::vector{line};
  });
  const Handle session(helper.open());
  trapline_session_set_timeout(session, 200);
  auto* snapshot = reinterpret_cast<trapline_snapshot*>(1);
  const trapline_error error = trapline_session_snapshot(session, 0, &snapshot);
  if (error == TRAPLINE_OK) {
    trapline_snapshot_destroy(snapshot);
  } else {
    EXPECT_EQ(nullptr, snapshot);
    EXPECT_STRNE("", trapline_error_text());
  }
  const trapline_error after = trapline_session_clear(session);
  if (after != TRAPLINE_OK) {
    EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, after);
  }
  if (usable_after != nullptr) *usable_after = after == TRAPLINE_OK;
  return error;
}

TEST(SessionTest, AnswersThatAreNone) {
  bool usable = false;
  // Requests 1 and 2 are over: this is the third.
  EXPECT_EQ(TRAPLINE_OK, answer_to_snapshot(TestHelper::result("3", snapshot_result("1"))));
  for (const char* line :
       {"", "nonsense", "[1]", R"({"id":3})", R"({"id":3,"result":null})",
        R"({"id":3,"result":[]})", R"({"id":4,"result":{}})", R"({"id":"3","result":{}})",
        R"({"id":3,"error":5})", R"({"id":3,"error":{"code":1}})", R"({"method":"note"})",
        R"({"method":"note","params":{}})", R"({"method":5,"params":{}})", "{}"}) {
    EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL, answer_to_snapshot(line, &usable)) << line;
    EXPECT_FALSE(usable) << line;
  }
  // The answer is in order, what it holds is not: the session goes on.
  EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL,
            answer_to_snapshot(TestHelper::result("3", snapshot_result("\"x\"")), &usable));
  EXPECT_TRUE(usable);
  EXPECT_EQ(
      TRAPLINE_ERROR_STATE,
      answer_to_snapshot(
          R"({"id":3,"error":{"code":-32002,"message":"m","data":{"kind":"state"}}})", &usable));
  EXPECT_TRUE(usable);
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, answer_to_snapshot("@close", &usable));
  EXPECT_FALSE(usable);
  // A note, and then nothing any more.
  EXPECT_EQ(TRAPLINE_ERROR_TIMEOUT, answer_to_snapshot(note("n"), &usable));
  EXPECT_FALSE(usable);
}

TEST(SessionTest, AHalfAnswerAndTheEnd) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    if (method != "start") return good(id, method, line);
    return std::vector<std::string>{R"({"id":3,"resu)" + std::string("\n"), "@close"};
  });
  const Handle session(helper.open());
  EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL, trapline_session_start(session, nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, trapline_session_stop(session, nullptr));
  EXPECT_THAT(trapline_error_text(), HasSubstr("no more use"));
}

TEST(SessionTest, MistakesAreHandedOver) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    if (method != "compile") return good(id, method, line);
    return std::vector<std::string>{
        R"({"id":)" + id +
        R"(,"error":{"code":-32001,"message":"2 mistakes","data":{"kind":"compile","diagnostics":[)"
        R"({"severity":"error","tag":"SYNTAX","file":"f","line":1,"column":2,"text":"t","hint":"h"}]}}})"};
  });
  const Handle session(helper.open());
  trapline_report* report = nullptr;
  EXPECT_EQ(TRAPLINE_ERROR_COMPILE, trapline_session_compile(session, "x", &report));
  EXPECT_STREQ("2 mistakes", trapline_error_text());
  ASSERT_NE(nullptr, report);
  std::size_t count = 0;
  EXPECT_STREQ("SYNTAX", trapline_report_diagnostics(report, &count)->tag.data);
  EXPECT_EQ(1u, count);
  trapline_report_destroy(report);
  EXPECT_EQ(TRAPLINE_ERROR_COMPILE, trapline_session_compile(session, "x", nullptr));
}

TEST(SessionTest, NoPlaceCanBeProbed) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    if (method != "start") return good(id, method, line);
    return std::vector<std::string>{TestHelper::result(
        id, R"({"armed":0,"refused":[{"probe":"p:m:f:entry","address":1,"reason":"too short"}],)"
            R"("notes":[]})")};
  });
  const Handle session(helper.open());
  trapline_report* report = nullptr;
  EXPECT_EQ(TRAPLINE_ERROR_UNSUPPORTED, trapline_session_start(session, &report));
  EXPECT_EQ(nullptr, report);
  EXPECT_STREQ("no place can be probed: p:m:f:entry: too short", trapline_error_text());
  EXPECT_THAT(helper.requests().back(), HasSubstr("\"stop\""));
}

TEST(SessionTest, Arguments) {
  trapline_session* session = nullptr;
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_self(2, &session));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_self(0, nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_attach(0, 0, &session));
  const char* nothing[] = {nullptr};
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_launch(nothing, 0, &session));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_launch(nullptr, 0, &session));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_start(nullptr, nullptr));
  trapline_session_destroy(nullptr);
  trapline_snapshot_destroy(nullptr);
  trapline_report_destroy(nullptr);

  TestHelper helper(good);
  const Handle handle(helper.open());
  trapline_snapshot* snapshot = nullptr;
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_snapshot(handle, 2, &snapshot));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_snapshot(handle, 0, nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_compile(handle, nullptr, nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_compile(handle, "\xff", nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_compile_program(handle, nullptr, nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_dispatch(handle, nullptr, nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_fd(handle, nullptr));
  trapline_program program = TRAPLINE_PROGRAM_INIT;
  program.struct_size = 8;
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_compile_program(handle, &program, nullptr));
  program = TRAPLINE_PROGRAM_INIT;
  program.argument_count = 1;
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, trapline_session_compile_program(handle, &program, nullptr));
  EXPECT_EQ(TRAPLINE_OK, trapline_session_clear(handle)) << "none of this was sent";
}

TEST(SessionTest, ErrorsHaveNames) {
  EXPECT_STREQ("OK", trapline_error_name(TRAPLINE_OK));
  EXPECT_STREQ("YAMA", trapline_error_name(TRAPLINE_ERROR_YAMA));
  EXPECT_STREQ("INTERNAL", trapline_error_name(TRAPLINE_ERROR_INTERNAL));
  EXPECT_STREQ("UNKNOWN", trapline_error_name(static_cast<trapline_error>(19)));
}

TEST(SessionTest, TheTextIsTheThreadsOwn) {
  trapline_session* session = nullptr;
  trapline_session_self(2, &session);
  const std::string mine = trapline_error_text();
  EXPECT_NE("", mine);
  std::thread([] {
    EXPECT_STREQ("", trapline_error_text());
    trapline_session_start(nullptr, nullptr);
    EXPECT_STRNE("", trapline_error_text());
  }).join();
  EXPECT_EQ(mine, trapline_error_text());
}

TEST(SessionTest, RecordsAmongAnswersAreKept) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    auto answer = good(id, method, line);
    if (method == "snapshot")
      answer = {firings(firing(1) + "," + firing(2)), note("n"), answer[0], firings(firing(3))};
    return answer;
  });
  const Handle session(helper.open(TRAPLINE_RECORDS));
  int fd = -1;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_fd(session, &fd));
  pollfd poll_fd{fd, POLLIN, 0};
  EXPECT_EQ(0, ::poll(&poll_fd, 1, 0));
  std::vector<std::string> got;
  EXPECT_EQ(TRAPLINE_OK, trapline_session_dispatch(session, collect, &got));
  EXPECT_THAT(got, ElementsAre());
  trapline_snapshot* snapshot = nullptr;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_snapshot(session, 0, &snapshot));
  trapline_snapshot_destroy(snapshot);
  while (got.size() < 4) {
    ASSERT_EQ(1, ::poll(&poll_fd, 1, 10'000));
    ASSERT_EQ(TRAPLINE_OK, trapline_session_dispatch(session, collect, &got));
  }
  EXPECT_THAT(got, ElementsAre("1", "2", "n", "3"));
  EXPECT_EQ(0, ::poll(&poll_fd, 1, 0));
}

TEST(SessionTest, TheEndOfTheHelperIsTheLastRecord) {
  TestHelper helper(good);
  const Handle session(helper.open(TRAPLINE_RECORDS));
  int fd = -1;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_fd(session, &fd));
  helper.send(firings(firing(1)));
  helper.hang_up();
  std::vector<std::string> got;
  trapline_error error = TRAPLINE_OK;
  while (error == TRAPLINE_OK) {
    pollfd poll_fd{fd, POLLIN, 0};
    ASSERT_EQ(1, ::poll(&poll_fd, 1, 10'000));
    error = trapline_session_dispatch(session, collect, &got);
  }
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, error);
  EXPECT_THAT(got, ElementsAre("1", HasSubstr("has ended")));
  EXPECT_EQ(TRAPLINE_ERROR_HELPER_GONE, trapline_session_wait(session, -1));
}

TEST(SessionTest, WaitingForTheEnd) {
  TestHelper helper(good);
  const Handle session(helper.open());
  EXPECT_EQ(TRAPLINE_ERROR_TIMEOUT, trapline_session_wait(session, 1));
  helper.send(note("n"));
  EXPECT_EQ(TRAPLINE_ERROR_TIMEOUT, trapline_session_wait(session, 1));
  auto waiting = std::async(std::launch::async, [&] { return trapline_session_wait(session, -1); });
  helper.send(TestHelper::notification("ended", R"({"reason":"exit","status":4})"));
  EXPECT_EQ(TRAPLINE_OK, waiting.get());
  EXPECT_EQ(TRAPLINE_OK, trapline_session_wait(session, 0));
  std::vector<std::string> got;
  EXPECT_EQ(TRAPLINE_OK, trapline_session_dispatch(session, collect, &got));
  EXPECT_THAT(got, ElementsAre("n", ""));
  EXPECT_EQ(TRAPLINE_OK, trapline_session_compile(session, "x", nullptr));
  EXPECT_EQ(TRAPLINE_ERROR_TIMEOUT, trapline_session_wait(session, 0))
      << "a new program has not ended";
}

TEST(SessionTest, OneThreadWaitsWhileAnotherReadsTheEnd) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    auto answer = good(id, method, line);
    if (method == "snapshot") {
      answer.insert(answer.begin(), TestHelper::notification("ended", R"({"reason":"target"})"));
    }
    return answer;
  });
  const Handle session(helper.open());
  auto waiting = std::async(std::launch::async, [&] { return trapline_session_wait(session, -1); });
  trapline_snapshot* snapshot = nullptr;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_snapshot(session, 0, &snapshot));
  trapline_snapshot_destroy(snapshot);
  EXPECT_EQ(TRAPLINE_OK, waiting.get());
}

TEST(SessionTest, StoppingWhatHasEnded) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    if (method != "stop") return good(id, method, line);
    return std::vector<std::string>{
        TestHelper::notification("ended", R"({"reason":"exit","status":0})"),
        R"({"id":)" + id + R"(,"error":{"code":-32002,"message":"m","data":{"kind":"state"}}})"};
  });
  const Handle session(helper.open());
  trapline_report* report = nullptr;
  EXPECT_EQ(TRAPLINE_OK, trapline_session_stop(session, &report));
  ASSERT_NE(nullptr, report);
  trapline_report_destroy(report);
}

// Counts what is delivered, and lets the test wait for it.
struct Delivered {
  static void callback(const trapline_record* record, void* user) {
    auto* self = static_cast<Delivered*>(user);
    EXPECT_FALSE(Inside::active());
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    self->blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1;
    self->last = trapline_record_time(record);
    self->kind = trapline_record_get_kind(record);
    self->thread = std::this_thread::get_id();
    ++self->count;
    self->count.notify_all();
  }
  void wait_for(int wanted) const {
    for (int now = count; now < wanted; now = count) count.wait(now);
  }
  std::atomic<int> count = 0;
  std::atomic<bool> blocked = false;
  std::atomic<std::uint64_t> last = 0;
  std::atomic<trapline_record_kind> kind = TRAPLINE_RECORD_NOTE;
  std::atomic<std::thread::id> thread;
};

TEST(DeliveryTest, AThreadOfItsOwn) {
  TestHelper helper(good);
  Delivered delivered;
  {
    const Handle session(helper.open(TRAPLINE_RECORDS));
    helper.send(firings(firing(1)));  // before there is a callback
    ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &delivered));
    delivered.wait_for(1);
    helper.send(firings(firing(2) + "," + firing(3)));
    delivered.wait_for(3);
    EXPECT_EQ(3u, delivered.last);
    EXPECT_TRUE(delivered.blocked);
    EXPECT_NE(std::this_thread::get_id(), delivered.thread.load());
    trapline_snapshot* snapshot = nullptr;
    ASSERT_EQ(TRAPLINE_OK, trapline_session_snapshot(session, 0, &snapshot));
    trapline_snapshot_destroy(snapshot);
  }
  EXPECT_EQ(3, delivered.count);
}

TEST(DeliveryTest, WhatARequestReadsIsDelivered) {
  TestHelper helper([](const std::string& id, const std::string& method, const std::string& line) {
    auto answer = good(id, method, line);
    if (method == "clear") answer.insert(answer.begin(), firings(firing(9)));
    return answer;
  });
  Delivered delivered;
  const Handle session(helper.open(TRAPLINE_RECORDS));
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &delivered));
  for (int i = 1; i <= 100; ++i) {
    ASSERT_EQ(TRAPLINE_OK, trapline_session_clear(session));
    delivered.wait_for(i);
  }
}

TEST(DeliveryTest, AnotherCallbackAndNone) {
  TestHelper helper(good);
  Delivered first, second;
  const Handle session(helper.open(TRAPLINE_RECORDS));
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, nullptr, nullptr));
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &first));
  helper.send(firings(firing(1)));
  first.wait_for(1);
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, nullptr, nullptr));
  helper.send(firings(firing(2)));
  ASSERT_EQ(TRAPLINE_OK, trapline_session_clear(session));  // by now it has arrived
  EXPECT_EQ(1, first.count);
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &second));
  second.wait_for(1);
  EXPECT_EQ(2u, second.last);
  EXPECT_EQ(1, first.count);
}

TEST(DeliveryTest, TheEndOfTheHelperIsTold) {
  TestHelper helper(good);
  Delivered delivered;
  const Handle session(helper.open());
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &delivered));
  helper.hang_up();
  delivered.wait_for(1);
  EXPECT_EQ(TRAPLINE_RECORD_ENDED, delivered.kind);
}

struct Reentrant {
  trapline_session* session = nullptr;
  Delivered delivered;
  std::atomic<int> step = 0;
  static void callback(const trapline_record* record, void* user) {
    auto* self = static_cast<Reentrant*>(user);
    trapline_snapshot* snapshot = nullptr;
    if (trapline_session_snapshot(self->session, 0, &snapshot) == TRAPLINE_OK) ++self->step;
    trapline_snapshot_destroy(snapshot);
    if (trapline_session_set_callback(self->session, callback, user) == TRAPLINE_OK) ++self->step;
    trapline_session_destroy(self->session);
    ++self->step;
    Delivered::callback(record, &self->delivered);
  }
};

TEST(DeliveryTest, ACallbackMayDestroyTheSession) {
  TestHelper helper(good);
  Reentrant reentrant;
  reentrant.session = helper.open(TRAPLINE_RECORDS);
  helper.send(firings(firing(1) + "," + firing(2)));
  ASSERT_EQ(TRAPLINE_OK,
            trapline_session_set_callback(reentrant.session, Reentrant::callback, &reentrant));
  reentrant.delivered.wait_for(1);
  EXPECT_EQ(3, reentrant.step);
}

TEST(DeliveryTest, ADispatchedCallbackMayDestroyTheSession) {
  TestHelper helper(good);
  Reentrant reentrant;
  reentrant.session = helper.open(TRAPLINE_RECORDS);
  helper.send(firings(firing(1) + "," + firing(2)));
  int fd = -1;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_fd(reentrant.session, &fd));
  pollfd poll_fd{fd, POLLIN, 0};
  ASSERT_EQ(1, ::poll(&poll_fd, 1, 10'000));
  EXPECT_EQ(TRAPLINE_OK,
            trapline_session_dispatch(reentrant.session, Reentrant::callback, &reentrant));
  EXPECT_EQ(1, reentrant.delivered.count);
}

TEST(DeliveryTest, DestroyedWhileRecordsPour) {
  for (int round = 0; round < 20; ++round) {
    TestHelper helper(good);
    Delivered delivered;
    const Handle session(helper.open(TRAPLINE_RECORDS));
    ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &delivered));
    for (int i = 0; i < 50; ++i) helper.send(firings(firing(i)));
    delivered.wait_for(1);
  }
}

TEST(SessionTest, ManyThreadsOneSession) {
  TestHelper helper(good);
  const Handle session(helper.open());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        trapline_snapshot* snapshot = nullptr;
        if (t % 2 == 0) {
          if (trapline_session_clear(session) == TRAPLINE_OK) ++right;
        } else if (trapline_session_snapshot(session, 0, &snapshot) == TRAPLINE_OK) {
          right += trapline_snapshot_size(snapshot) == 1 ? 1 : 0;
          trapline_snapshot_destroy(snapshot);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(1200, right);
}

volatile sig_atomic_t alarms = 0;
volatile sig_atomic_t alarms_inside = 0;

TEST(SessionTest, SignalsGoOnAndAreNeverInside) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer puts signals off until its next interceptor";
#endif
  struct sigaction action{}, before{};
  action.sa_handler = [](int) {
    alarms = alarms + 1;
    if (Inside::active()) alarms_inside = alarms_inside + 1;
  };
  sigaction(SIGUSR1, &action, &before);
  TestHelper helper(good);
  const Handle session(helper.open());
  const pthread_t self = pthread_self();
  std::atomic<bool> stop = false;
  std::thread sender([&] {
    while (!stop) {
      pthread_kill(self, SIGUSR1);
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 300; ++i) EXPECT_EQ(TRAPLINE_OK, trapline_session_clear(session));
  stop = true;
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_GT(alarms, 0);
  EXPECT_EQ(0, alarms_inside);
}

// 0: every call says that the session is the parent's, and destroying leaves the parent's alone.
int child_of_fork(trapline_session* session) {
  trapline_snapshot* snapshot = nullptr;
  int fd = 0;
  std::vector<std::string> none;
  if (trapline_session_compile(session, "x", nullptr) != TRAPLINE_ERROR_FORKED) return 1;
  if (trapline_session_start(session, nullptr) != TRAPLINE_ERROR_FORKED) return 2;
  if (trapline_session_stop(session, nullptr) != TRAPLINE_ERROR_FORKED) return 3;
  if (trapline_session_snapshot(session, 0, &snapshot) != TRAPLINE_ERROR_FORKED) return 4;
  if (trapline_session_clear(session) != TRAPLINE_ERROR_FORKED) return 5;
  if (trapline_session_wait(session, 0) != TRAPLINE_ERROR_FORKED) return 6;
  if (trapline_session_fd(session, &fd) != TRAPLINE_ERROR_FORKED || fd != -1) return 7;
  if (trapline_session_dispatch(session, collect, &none) != TRAPLINE_ERROR_FORKED) return 8;
  if (trapline_session_set_callback(session, collect, &none) != TRAPLINE_ERROR_FORKED) return 9;
  if (trapline_session_set_timeout(session, 1) != TRAPLINE_ERROR_FORKED) return 10;
  trapline_session_destroy(session);
  return 0;
}

TEST(SessionTest, AForkedChildsHandleIsInert) {
  TestHelper helper(good);
  Delivered delivered;
  const Handle session(helper.open(TRAPLINE_RECORDS));
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_callback(session, Delivered::callback, &delivered));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(child_of_fork(session));
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  EXPECT_EQ(TRAPLINE_OK, trapline_session_clear(session));
  helper.send(firings(firing(1)));
  delivered.wait_for(1);
}

TEST(SessionTest, MoreRecordsThanAreKept) {
  std::atomic<int> sent = 0;
  TestHelper helper([&](const std::string& id, const std::string& method, const std::string& line) {
    auto answer = good(id, method, line);
    if (method != "snapshot") return answer;
    std::vector<std::string> all;
    for (int i = 0; i < 100; ++i, ++sent) all.push_back(note(std::string(2000, 'x')));
    all.push_back(answer[0]);
    return all;
  });
  const Handle session(helper.open());  // without TRAPLINE_RECORDS: little is kept
  trapline_snapshot* snapshot = nullptr;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_snapshot(session, 0, &snapshot));
  const std::uint64_t lost = trapline_snapshot_drops(snapshot).client;
  trapline_snapshot_destroy(snapshot);
  EXPECT_GT(lost, 0u);
  struct Count {
    std::uint64_t notes = 0, lost = 0;
  } count;
  ASSERT_EQ(TRAPLINE_OK, trapline_session_dispatch(
                             session,
                             [](const trapline_record* record, void* user) {
                               auto* into = static_cast<Count*>(user);
                               if (trapline_record_get_kind(record) == TRAPLINE_RECORD_NOTE)
                                 ++into->notes;
                               into->lost += trapline_record_drops(record).client;
                             },
                             &count));
  EXPECT_EQ(lost, count.lost);
  EXPECT_EQ(100u, count.notes + count.lost);
}

}  // namespace
}  // namespace trapline::client
