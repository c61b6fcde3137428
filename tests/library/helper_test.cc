// The helper's life and death, and what the program sees of it: nothing but errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <trapline/trapline.hpp>

#include "probed.h"
#include "worker.h"

namespace {

using testing::HasSubstr;
using trapline::ErrorCode;
using trapline::Session;

PROBED int probed_often(int number) {
  keep(number);
  return number + 1;
}

constexpr const char* kProgram = "pid$target:a.out:probed_often:entry { @calls = count(); }";

// Sets an environment variable while it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name);
    if (before != nullptr) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { ::setenv(name_, before_.c_str(), 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::string before_;
};

ErrorCode error_of_self(std::string* text = nullptr) {
  try {
    Session::self();
  } catch (const trapline::Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "a session was made";
  return ErrorCode::kInternal;
}

TEST(HelperTest, AMissingOne) {
  const Environment command("TRAPLINE_COMMAND", "/nowhere/trapline");
  std::string text;
  EXPECT_EQ(ErrorCode::kNoHelper, error_of_self(&text));
  EXPECT_THAT(text, HasSubstr("/nowhere/trapline"));
}

TEST(HelperTest, AProgramThatIsNone) {
  const Environment command("TRAPLINE_COMMAND", "/bin/true");
  EXPECT_EQ(ErrorCode::kHelperGone, error_of_self());
  const Environment echo("TRAPLINE_COMMAND", "/bin/cat");
  EXPECT_NE(ErrorCode::kInternal, error_of_self());
}

std::atomic<int> children = 0;

TEST(HelperTest, NeitherWaitNorSigchldSeesIt) {
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { ++children; };
  sigaction(SIGCHLD, &action, &before);
  {
    Session session = Session::self();
    session.compile(kProgram);
    session.start();
    EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG));
    EXPECT_EQ(ECHILD, errno);
    session.stop();
  }
  {
    Session session = Session::self();
    ::kill(worker_of(trapline_session_helper_pid(session.get())), SIGKILL);
    EXPECT_THROW(session.compile(kProgram), trapline::Error);
  }
  EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG | __WALL));
  EXPECT_EQ(ECHILD, errno);
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(0, children);
}

TEST(HelperTest, ItsEndIsAnError) {
  Session session = Session::self();
  session.compile(kProgram);
  session.start();
  ::kill(worker_of(trapline_session_helper_pid(session.get())), SIGKILL);
  for (int i = 0; i < 2; ++i) {
    try {
      session.stop();
      ADD_FAILURE();
    } catch (const trapline::Error& error) {
      EXPECT_EQ(ErrorCode::kHelperGone, error.code());
      EXPECT_THAT(error.what(), HasSubstr("has ended"));
    }
  }
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(i + 1, probed_often(i)) << "the program goes on";
}

// Killed at any moment of any call. The program goes on, and the call says so or was done.
TEST(HelperTest, KilledAtRandomMoments) {
  std::mt19937 random(20240607);  // NOLINT: the same moments each time, as far as there is such
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> wrong = 0;
  std::thread worker([&] {
    for (int i = 0; !stop; i = (i + 1) % 1000) wrong += probed_often(i) != i + 1;
  });
  const char* wanted = std::getenv("TRAPLINE_LIBRARY_ROUNDS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) / 10 : 25;
  int gone = 0;
  for (int round = 0; round < rounds; ++round) {
    Session session = Session::self();
    const int helper = trapline_session_helper_pid(session.get());
    const int victim = round % 2 == 0 ? helper : worker_of(helper);
    const std::chrono::microseconds delay(random() % 60'000);
    std::thread killer([&] {
      std::this_thread::sleep_for(delay);
      ::kill(victim, SIGKILL);
    });
    try {
      session.compile(kProgram);
      while (true) {
        session.start();
        session.snapshot();
        session.stop();
      }
    } catch (const trapline::Error& error) {
      // A place that an earlier helper has left its probe at may be refused to a later one.
      EXPECT_EQ(ErrorCode::kHelperGone, error.code()) << error.what();
      ++gone;
    }
    killer.join();
  }
  stop = true;
  worker.join();
  EXPECT_EQ(rounds, gone);
  EXPECT_EQ(0, wrong);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(i + 1, probed_often(i));
}

TEST(HelperTest, AHelperThatHangsIsGivenUp) {
  Session session = Session::self();
  session.compile(kProgram);
  ASSERT_EQ(TRAPLINE_OK, trapline_session_set_timeout(session.get(), 50));
  const int helper = worker_of(trapline_session_helper_pid(session.get()));
  ::kill(helper, SIGSTOP);
  try {
    session.snapshot();
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kTimeout, error.code());
  }
  ::kill(helper, SIGCONT);
  EXPECT_THROW(session.snapshot(), trapline::Error);
}

TEST(HelperTest, AForkedChildsSessionIsInert) {
  Session session = Session::self();
  session.compile(kProgram);
  session.start();
  probed_often(1);
  const pid_t child = ::fork();
  if (child == 0) {
    probed_often(2);  // not traced
    try {
      session.snapshot();
      ::_exit(1);
    } catch (const trapline::Error& error) {
      if (error.code() != ErrorCode::kForked) ::_exit(2);
    }
    {
      const Session gone = std::move(session);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  probed_often(3);
  session.stop();
  EXPECT_EQ(2, session.snapshot().value("calls"));
}

TEST(HelperTest, AForkedChildMakesItsOwn) {
  Session session = Session::self();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      Session own = Session::self();
      own.compile(kProgram);
      own.start();
      probed_often(1);
      own.stop();
      ::_exit(own.snapshot().value("calls") == 1 ? 0 : 1);
    } catch (const trapline::Error&) {
      ::_exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, WEXITSTATUS(status));
}

// Another process that traces this one, as a debugger does.
TEST(HelperTest, ABusyTracer) {
  int ready[2];
  int done[2];
  ASSERT_EQ(0, ::pipe(ready));
  ASSERT_EQ(0, ::pipe(done));
  const pid_t self = ::getpid();
  const pid_t tracer = ::fork();
  if (tracer == 0) {
    ::close(done[1]);
    char byte = ::ptrace(PTRACE_SEIZE, self, nullptr, nullptr) == 0 ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    static_cast<void>(::read(done[0], &byte, 1) == 0);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(1, ::read(ready[0], &byte, 1));
  ASSERT_EQ('y', byte);
  EXPECT_EQ(ErrorCode::kBusyTracer, error_of_self());
  ::close(done[1]);
  ASSERT_EQ(tracer, ::waitpid(tracer, nullptr, 0));
  for (const int fd : {ready[0], ready[1], done[0]}) ::close(fd);
  Session::self();
}

TEST(HelperTest, TheProgramsDescriptorsStayItsOwn) {
  int pipe_ends[2];
  ASSERT_EQ(0, ::pipe(pipe_ends));  // not close-on-exec
  Session session = Session::self();
  ::close(pipe_ends[1]);
  char byte = 0;
  EXPECT_EQ(0, ::read(pipe_ends[0], &byte, 1)) << "the helper does not hold the other end";
  ::close(pipe_ends[0]);
}

}  // namespace
