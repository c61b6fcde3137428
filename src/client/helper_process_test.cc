#include "client/helper_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace trapline::client {
namespace {

volatile sig_atomic_t child_signals = 0;

// A shell script as helper: it tells about itself.
class HelperProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/helper_process.XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(name));
    root_ = name;
    struct sigaction action{};
    action.sa_handler = [](int) { child_signals = child_signals + 1; };
    sigaction(SIGCHLD, &action, &before_);
    child_signals = 0;
  }
  void TearDown() override {
    sigaction(SIGCHLD, &before_, nullptr);
    std::filesystem::remove_all(root_);
  }

  std::string script(const std::string& text, mode_t mode = 0755) {
    const std::string path = root_ + "/trapline";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static Outcome<HelperProcess> start(const std::string& path,
                                      HelperFiles files = HelperFiles::kNone) {
    const Inside inside;
    return start_helper(path, HelperOutput::kDiscarded, files, inside);
  }
  // All that the helper writes until it ends.
  static std::string read_all(const HelperProcess& helper) {
    std::string text;
    char piece[4096];
    for (ssize_t got = 0; (got = ::recv(helper.socket.get(), piece, sizeof piece, 0)) > 0;) {
      text.append(piece, static_cast<std::size_t>(got));
    }
    return text;
  }

  std::string root_;
  struct sigaction before_{};
};

TEST_F(HelperProcessTest, TheProgramNeverSeesIt) {
  const auto helper =
      start(script("#!/bin/sh\necho \"$# $1 $PPID\"\nread line\necho \"got $line\"\n"));
  ASSERT_TRUE(helper) << helper.error().text;
  EXPECT_GT(helper->pid, 0);
  ::send(helper->socket.get(), "hello\n", 6, MSG_NOSIGNAL);
  const std::string said = read_all(*helper);
  EXPECT_THAT(said, testing::StartsWith("1 serve "));
  EXPECT_THAT(said, testing::EndsWith("got hello\n"));
  EXPECT_THAT(said, testing::Not(testing::HasSubstr(" " + std::to_string(::getpid()) + "\n")));
  EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG));
  EXPECT_EQ(ECHILD, errno);
  EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG | __WALL));
  EXPECT_EQ(ECHILD, errno);
  EXPECT_EQ(0, child_signals);
}

TEST_F(HelperProcessTest, ItHasNothingOfTheProgram) {
  const int extra = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGUSR2, &ignore, &before);
  sigset_t blocked, old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, &old);
  const auto helper =
      start(script("#!/bin/bash\n"
                   "for fd in /proc/self/fd/*; do echo \"fd ${fd##*/} $(readlink "
                   "/proc/$$/fd/${fd##*/})\"; done\n"
                   "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status\n"
                   "cut -d' ' -f1,6 /proc/$$/stat\n"));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  sigaction(SIGUSR2, &before, nullptr);
  ::close(extra);
  ASSERT_TRUE(helper) << helper.error().text;
  const std::string said = read_all(*helper);
  EXPECT_THAT(said, testing::HasSubstr("fd 0 socket:"));
  EXPECT_THAT(said, testing::HasSubstr("fd 1 socket:"));
  EXPECT_THAT(said, testing::HasSubstr("fd 2 /dev/null"));
  EXPECT_THAT(said, testing::Not(testing::ContainsRegex("fd ([4-9]|1[0-9]) /dev/null")));
  EXPECT_THAT(said, testing::HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(said, testing::HasSubstr("SigIgn:\t0000000000000000"));
  // Process and session: its own session, which it does not lead.
  std::istringstream last(said.substr(said.rfind('\n', said.size() - 2) + 1));
  int pid = 0, session = 0;
  last >> pid >> session;
  EXPECT_EQ(helper->pid, pid);
  EXPECT_NE(::getsid(0), session);
  EXPECT_NE(pid, session);
}

TEST_F(HelperProcessTest, StandardFilesForAProgramItStarts) {
  int out[2];
  ASSERT_EQ(0, ::pipe2(out, O_CLOEXEC));
  const int saved = ::dup(1);
  ::dup2(out[1], 1);
  const auto helper =
      start(script("#!/bin/sh\necho there >&4\necho here\n"), HelperFiles::kStandard);
  ::dup2(saved, 1);
  ::close(saved);
  ::close(out[1]);
  ASSERT_TRUE(helper) << helper.error().text;
  EXPECT_EQ("here\n", read_all(*helper));
  char text[16] = {};
  EXPECT_EQ(6, ::read(out[0], text, sizeof text));
  EXPECT_STREQ("there\n", text);
  ::close(out[0]);
}

TEST_F(HelperProcessTest, TheSocketLeavesTheStandardNumbersAlone) {
  const int saved = ::dup(0);
  ::close(0);
  const auto helper = start(script("#!/bin/sh\necho ok\n"));
  const bool taken = ::fcntl(0, F_GETFD) != -1;
  ::dup2(saved, 0);
  ::close(saved);
  ASSERT_TRUE(helper) << helper.error().text;
  EXPECT_FALSE(taken);
  EXPECT_GT(helper->socket.get(), 2);
  EXPECT_EQ(FD_CLOEXEC, ::fcntl(helper->socket.get(), F_GETFD));
  EXPECT_EQ("ok\n", read_all(*helper));
}

TEST_F(HelperProcessTest, WhatCannotBeExecuted) {
  for (const auto& [text, mode] : {std::pair("#!/bin/sh\n", 0644),
                                   {"no program\n", 0755},
                                   {"#!/no/such/interpreter\n", 0755}}) {
    const auto helper = start(script(text, static_cast<mode_t>(mode)));
    ASSERT_FALSE(helper);
    EXPECT_EQ(TRAPLINE_ERROR_NO_HELPER, helper.error().code);
    EXPECT_THAT(helper.error().text, testing::HasSubstr(root_ + "/trapline"));
  }
  EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG | __WALL));
  EXPECT_EQ(0, child_signals);
}

TEST_F(HelperProcessTest, ManyAtOnceFromManyThreads) {
  const std::string path = script("#!/bin/sh\nread line\necho \"$line\"\n");
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const auto helper = start(path);
        if (!helper) continue;
        const std::string line = std::to_string(t * 100 + i) + "\n";
        ::send(helper->socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
        if (read_all(*helper) == line) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(40, right);
  EXPECT_EQ(0, child_signals);
  EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG | __WALL));
  EXPECT_EQ(ECHILD, errno);
}

}  // namespace
}  // namespace trapline::client
