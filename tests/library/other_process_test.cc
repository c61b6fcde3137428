// Processes that the session attaches to, and programs that it starts.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <trapline/trapline.hpp>

namespace {

using testing::HasSubstr;
using trapline::ErrorCode;
using trapline::Record;
using trapline::Session;

std::string target(const std::string& name) { return TRAPLINE_TARGETS "/" + name; }

// A plain child that calls getppid() each time a byte arrives, and answers with it.
class Child {
 public:
  Child() {
    // Closed in whatever this program executes: the child would else keep its own input open.
    if (::pipe2(to_, O_CLOEXEC) != 0 || ::pipe2(from_, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(to_[0]);
      ::close(from_[1]);
      return;
    }
    // The child executes a plain program: nothing of this one, sanitised or not, is in it.
    ::dup2(to_[0], 0);
    ::dup2(from_[1], 1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execl("/bin/cat", "cat", nullptr);
    ::_exit(1);
  }
  ~Child() {
    ::close(to_[1]);
    ::close(from_[0]);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  // cat reads once and writes once for each.
  void turn() {
    char byte = 'x';
    ASSERT_EQ(1, ::write(to_[1], &byte, 1));
    ASSERT_EQ(1, ::read(from_[0], &byte, 1));
  }

 private:
  int to_[2] = {-1, -1};
  int from_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST(AttachTest, CountsInAnother) {
  Child child;
  child.turn();  // it runs
  Session session = Session::attach(child.pid());
  EXPECT_EQ(child.pid(), session.pid());
  session.compile("pid$target:libc:write:entry { @writes = count(); @sizes = quantize(arg2); }");
  session.start();
  for (int i = 0; i < 10; ++i) child.turn();
  session.stop();
  child.turn();
  const trapline::Snapshot snapshot = session.snapshot();
  EXPECT_EQ(10, snapshot["writes"].value());
  ASSERT_EQ(1u, snapshot["sizes"].histogram().size());
  EXPECT_EQ(10, snapshot["sizes"].histogram()[0].count);
}

TEST(AttachTest, ItsEndIsTold) {
  auto child = std::make_unique<Child>();
  child->turn();
  Session session = Session::attach(child->pid());
  session.compile("pid$target:libc:write:entry { @writes = count(); }");
  session.start();
  child->turn();
  EXPECT_FALSE(session.wait(std::chrono::milliseconds(1)));
  child.reset();
  session.wait();
  EXPECT_EQ(trapline::State::kEnded, session.snapshot().state());
  EXPECT_EQ(1, session.snapshot().value("writes"));
}

TEST(AttachTest, NoSuchProcess) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  try {
    Session::attach(child);
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kNotFound, error.code()) << error.what();
  }
}

TEST(LaunchTest, FromTheFirstCall) {
  int out[2];
  ASSERT_EQ(0, ::pipe2(out, O_CLOEXEC));
  const int saved = ::dup(1);
  ::dup2(out[1], 1);
  Session session = Session::launch({"echo", "two words", "three"});
  ::dup2(saved, 1);
  ::close(saved);
  ::close(out[1]);
  session.compile("pid$target:libc:write:entry { @writes = count(); }");
  session.start();
  session.wait();
  EXPECT_EQ(1, session.snapshot().value("writes"));
  char text[64] = {};
  EXPECT_EQ(16, ::read(out[0], text, sizeof text - 1));
  EXPECT_STREQ("two words three\n", text) << "its output is this program's";
  ::close(out[0]);
}

TEST(LaunchTest, LibrariesThatItLoadsLater) {
  Session session = Session::launch({target("plugins"), target("libplugin.so"), "5"});
  session.compile("pid$target:libplugin.so:plugin_step:entry { @steps = count(); }",
                  trapline::Options().set("zdefs"));
  session.start();
  session.wait();
  EXPECT_EQ(5 * 18, session.snapshot().value("steps"));
}

TEST(LaunchTest, ItsStatusIsTold) {
  Session session = Session::launch({"/bin/sh", "-c", "exit 7"});
  session.compile("BEGIN { @begun = count(); }");
  session.start();
  session.wait();
  int status = -1;
  session.dispatch([&](const Record& record) {
    if (record.kind() == Record::Kind::kEnded && record.reason() == Record::Reason::kTarget) {
      status = record.status();
    }
  });
  EXPECT_EQ(7, status);
  EXPECT_EQ(1, session.snapshot().value("begun"));
}

TEST(LaunchTest, NoSuchProgram) {
  try {
    Session::launch({"/nowhere/program"});
    ADD_FAILURE();
  } catch (const trapline::Error& error) {
    EXPECT_EQ(ErrorCode::kNotFound, error.code()) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/program"));
  }
}

TEST(LaunchTest, NeverStarted) {
  pid_t pid = 0;
  {
    Session session = Session::launch({target("mallocs"), "10"});
    pid = session.pid();
    EXPECT_EQ(0, ::kill(pid, 0));
  }
  EXPECT_EQ(-1, ::kill(pid, 0)) << "it has been ended";
}

}  // namespace
