#include "target/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "target/ptrace_thread.h"
#include "target/remote_syscall.h"
#include "target/test_child.h"
#include "target/tracees.h"

namespace trapline::target {
namespace {

using namespace std::chrono_literals;
using testing::TestChild;

using Words = std::vector<std::string>;

TEST(SplitCommand, BlanksAndQuotes) {
  const auto split = [](std::string_view text) {
    const auto words = split_command(text);
    return words ? *words : Words{"error: " + words.error().text()};
  };
  EXPECT_EQ(split("ls -l  /tmp"), (Words{"ls", "-l", "/tmp"}));
  EXPECT_EQ(split("  a\tb\n"), (Words{"a", "b"}));
  EXPECT_EQ(split("sh -c 'echo \"x  y\"; exit 3'"), (Words{"sh", "-c", "echo \"x  y\"; exit 3"}));
  EXPECT_EQ(split("a \"b c\"d '' e\\ f"), (Words{"a", "b cd", "", "e f"}));
  EXPECT_EQ(split("\"a\\\"b\" '\\n' \"\\n\""), (Words{"a\"b", "\\n", "\\n"}));
  EXPECT_EQ(split_command("a 'b").error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(split_command("  ").error().code(), ErrorCode::kBadInput);
}

class ScratchDirectory {
 public:
  ScratchDirectory() {
    char name[] = "/tmp/trapline_launch_XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view text, ::mode_t mode) const {
    std::ofstream(*this / name) << text;
    ::chmod((*this / name).c_str(), mode);
  }

 private:
  std::string path_;
};

TEST(Launch, ErrorsNameTheCommand) {
  const ScratchDirectory dir;
  dir.write("plain", "hello\n", 0644);
  dir.write("no_interpreter", "#!/no/such/interpreter\n", 0755);
  const auto code = [](const Words& argv) {
    const auto launched = LaunchedProcess::start(argv);
    if (launched) return std::pair{ErrorCode::kInternal, std::string()};
    return std::pair{launched.error().code(), launched.error().text()};
  };
  const auto missing = code({"no-such-command-at-all"});
  EXPECT_EQ(missing.first, ErrorCode::kNotFound);
  EXPECT_NE(missing.second.find("no-such-command-at-all"), std::string::npos) << missing.second;
  EXPECT_EQ(code({dir / "plain"}).first, ErrorCode::kPermission);
  EXPECT_EQ(code({"/tmp"}).first, ErrorCode::kPermission);
  EXPECT_EQ(code({dir / "no_interpreter"}).first, ErrorCode::kNotFound);
  EXPECT_EQ(code({}).first, ErrorCode::kBadInput);
}

// execvp would give what the kernel does not run to a shell, to be read as a script.
TEST(Launch, AnElfFileThatCannotRunIsNoScript) {
  const ScratchDirectory dir;
  const auto elf = [](char elf_class, char machine) {
    std::string head(
        "\x7f"
        "ELF",
        4);
    head += elf_class;
    head.resize(64, '\0');
    head[18] = machine;
    return head + "\necho ran as a script\n";
  };
  dir.write("damaged", elf(2, 62), 0755);
  dir.write("small", elf(1, 3), 0755);
  dir.write("foreign", elf(2, char(183)), 0755);
  const auto error = [&](std::string_view name) {
    const auto launched = LaunchedProcess::start({dir / name});
    return launched ? Error(ErrorCode::kInternal, "it ran") : launched.error();
  };
  EXPECT_EQ(error("damaged").code(), ErrorCode::kBadInput) << error("damaged").text();
  EXPECT_EQ(error("small").text(), dir / "small" + ": a 32-bit program: not supported");
  EXPECT_EQ(error("foreign").code(), ErrorCode::kUnsupported) << error("foreign").text();

  dir.write("script", "exit 7\n", 0755);
  auto script = LaunchedProcess::start({dir / "script"});
  ASSERT_TRUE(script) << script.error().text();

  // And so it is where PATH leads to it.
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", ((dir / "") + ":" + path).c_str(), 1);
  const auto found = LaunchedProcess::start({"small"});
  const auto shell = LaunchedProcess::start({"true"});
  ::setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(shell) << shell.error().text();
}

bool is_mapped(StoppedProcess& process, std::string_view part) {
  const auto maps = process.maps();
  return maps && std::ranges::any_of(
                     *maps, [&](const Mapping& m) { return m.path.find(part) != m.path.npos; });
}

TEST(Launch, DynamicProgramUpToItsEntry) {
  auto launched = LaunchedProcess::start({"/bin/sh", "-c", "exit 5"});
  ASSERT_TRUE(launched) << launched.error().text();
  {
    auto stopped = launched->run_until_loaded();
    ASSERT_TRUE(stopped) << stopped.error().text();
    const auto auxiliary = read_auxiliary_vector(launched->pid());
    ASSERT_TRUE(auxiliary);
    ASSERT_EQ(stopped->threads().size(), 1u);
    EXPECT_EQ(stopped->threads()[0].registers.pc(), auxiliary->entry);
    EXPECT_NE(stopped->threads()[0].registers.fs_base(), 0u);
    EXPECT_TRUE(is_mapped(*stopped, "libc.so"));
    auto calls = RemoteCalls::begin(*stopped);
    ASSERT_TRUE(calls) << calls.error().text();
    const auto pid = calls->call("getpid", 39);
    ASSERT_TRUE(pid);
    EXPECT_EQ(static_cast<pid_t>(*pid), launched->pid().value);
    ASSERT_TRUE(calls->end());
    ASSERT_TRUE(stopped->detach());
  }
  const auto status = launched->wait_exit(10s);
  ASSERT_TRUE(status && *status) << (status ? "it still runs" : status.error().text());
  EXPECT_EQ(WEXITSTATUS(**status), 5);
}

TEST(Launch, StopsAtTheExecEventItself) {
  auto launched = LaunchedProcess::start({"/bin/sh", "-c", "exit 5"});
  ASSERT_TRUE(launched) << launched.error().text();
  {
    auto stopped = launched->stop_at_exec();
    ASSERT_TRUE(stopped) << stopped.error().text();
    const auto auxiliary = read_auxiliary_vector(launched->pid());
    ASSERT_TRUE(auxiliary);
    const auto maps = stopped->maps();
    ASSERT_TRUE(maps);
    const Mapping* m = find_mapping(*maps, stopped->threads()[0].registers.pc());
    ASSERT_NE(m, nullptr);
    EXPECT_TRUE(m->range.start <= auxiliary->interpreter_base + m->offset.value()) << m->path;
    EXPECT_FALSE(is_mapped(*stopped, "libc.so"));
    EXPECT_EQ(stopped->threads()[0].registers.fs_base(), 0u);
    auto calls = RemoteCalls::begin(*stopped);
    ASSERT_TRUE(calls) << calls.error().text();
    EXPECT_TRUE(calls->call("getpid", 39));
  }
  const auto status = launched->wait_exit(10s);
  ASSERT_TRUE(status && *status);
  EXPECT_EQ(WEXITSTATUS(**status), 5);
}

TEST(Launch, StaticProgram) {
  const ScratchDirectory dir;
  dir.write("static.c", "int main(int c, char** v) { return c + 40; }\n", 0644);
  const std::string command =
      "cc -static -o " + (dir / "static") + " " + (dir / "static.c") + " 2>/dev/null";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no static C library to link with";
  auto launched = LaunchedProcess::start({dir / "static", "x"});
  ASSERT_TRUE(launched) << launched.error().text();
  {
    auto stopped = launched->run_until_loaded();
    ASSERT_TRUE(stopped) << stopped.error().text();
    const auto auxiliary = read_auxiliary_vector(launched->pid());
    ASSERT_TRUE(auxiliary);
    EXPECT_EQ(auxiliary->interpreter_base, RemoteAddr(0));
    EXPECT_EQ(stopped->threads()[0].registers.pc(), auxiliary->entry);
    ASSERT_TRUE(stopped->detach());
  }
  const auto status = launched->wait_exit(10s);
  ASSERT_TRUE(status && *status);
  EXPECT_EQ(WEXITSTATUS(**status), 42);
}

// sh, then env, then what env runs.
TEST(Launch, FollowsLaterExecs) {
  const bool python = ::access("/usr/bin/python3", X_OK) == 0;
  const std::string last =
      python ? "/usr/bin/python3 -ESc 'import sys; sys.exit(12)'" : "sh -c 'exit 12'";
  auto launched = LaunchedProcess::start({"/bin/sh", "-c", "exec env " + last});
  ASSERT_TRUE(launched) << launched.error().text();
  constexpr int kPrograms = 3;
  for (int i = 1; i <= kPrograms; ++i) {
    {
      auto stopped = launched->run_until_loaded();
      ASSERT_TRUE(stopped) << stopped.error().text();
      EXPECT_TRUE(is_mapped(*stopped, "libc.so"));
      EXPECT_EQ(launched->attachment().image(), static_cast<std::uint32_t>(i));
      const auto exe = executable_path(launched->pid());
      ASSERT_TRUE(exe);
      EXPECT_EQ(exe->find("/python3") != exe->npos, python && i == kPrograms) << *exe;
      if (i == kPrograms) {
        ASSERT_TRUE(stopped->detach());
        break;
      }
    }
    std::optional<Event> event;
    ASSERT_TRUE(TestChild::eventually([&] {
      const auto e = launched->attachment().wait_event(50ms);
      if (e && *e) event = **e;
      return event.has_value();
    })) << "after "
        << *executable_path(launched->pid());
    ASSERT_EQ(event->kind, Event::Kind::kExec);
  }
  const auto status = launched->wait_exit(30s);
  ASSERT_TRUE(status && *status);
  EXPECT_EQ(WEXITSTATUS(**status), 12);
}

// A library's initialiser forks, spawns and starts a thread before the entry point is reached;
// SIGTRAP is blocked and ignored.
TEST(Launch, InitialisersThatForkBeforeTheEntry) {
  const ScratchDirectory dir;
  dir.write("init.c", R"(
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int ok;
static void* run(void* p) { return p; }
__attribute__((constructor)) static void begin(void) {
  pthread_t t;
  void* result = 0;
  int status = 0;
  pthread_create(&t, 0, run, &ok);
  pthread_join(t, &result);
  if (result == &ok) ++ok;
  pid_t p = fork();
  if (p == 0) return;  // goes through the entry itself
  waitpid(p, &status, 0);
  if (WIFEXITED(status)) ok += WEXITSTATUS(status);  // 101, and 30 more for blocked and ignored
  p = vfork();
  if (p == 0) _exit(9);
  waitpid(p, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 9) ++ok;
}
int init_result(void) {
  struct sigaction a;
  sigset_t m;
  sigaction(SIGTRAP, 0, &a);
  sigprocmask(SIG_BLOCK, 0, &m);
  return 100 + ok + (a.sa_handler == SIG_IGN ? 10 : 0) + (sigismember(&m, SIGTRAP) ? 20 : 0);
}
)",
            0644);
  dir.write("main.c", "int init_result(void); int main(void) { return init_result(); }\n", 0644);
  const std::string build = "cd " + (dir / "") +
                            " && cc -shared -fPIC -o libinit.so init.c -pthread && " +
                            "cc -o main main.c -L. -linit -Wl,-rpath,'$ORIGIN'";
  ASSERT_EQ(std::system(build.c_str()), 0);
  for (const bool ignored : {false, true}) {
    sigset_t mask;
    sigemptyset(&mask);
    LaunchOptions options;
    if (ignored) {
      sigaddset(&mask, SIGTRAP);
      options.signal_mask = mask;
      ::signal(SIGTRAP, SIG_IGN);
    }
    auto launched = LaunchedProcess::start({dir / "main"}, options);
    ::signal(SIGTRAP, SIG_DFL);
    ASSERT_TRUE(launched) << launched.error().text();
    auto stopped = launched->run_until_loaded();
    ASSERT_TRUE(stopped) << stopped.error().text();
    const auto auxiliary = read_auxiliary_vector(launched->pid());
    EXPECT_EQ(stopped->threads()[0].registers.pc(), auxiliary->entry);
    ASSERT_TRUE(stopped->detach());
    const auto status = launched->wait_exit(10s);
    ASSERT_TRUE(status && *status);
    EXPECT_EQ(WEXITSTATUS(**status), ignored ? (100 + 1 + 131 + 1 + 30) % 256 : 100 + 1 + 101 + 1);
  }
}

TEST(Launch, UndetachedProcessDiesWithItsOwner) {
  pid_t pid = 0;
  {
    auto launched = LaunchedProcess::start({"sleep", "100"});
    ASSERT_TRUE(launched) << launched.error().text();
    pid = launched->pid().value;
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(Launch, DetachedProcessOutlivesTheTracerThread) {
  const ScratchDirectory dir;
  Pid pid{};
  std::optional<LaunchedProcess> launched;
  {
    PtraceThread thread;
    thread.run([&] {
      auto started = LaunchedProcess::start({"/bin/sh", "-c", "sleep 0.2; exit 3"});
      ASSERT_TRUE(started) << started.error().text();
      pid = started->pid();
      auto stopped = started->run_until_loaded();
      ASSERT_TRUE(stopped) << stopped.error().text();
      ASSERT_TRUE(stopped->detach());
    });
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid.value, &status, 0), pid.value);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(Launch, ManyTimesWithThreadsAndSignals) {
  for (int i = 0; i < 20; ++i) {
    auto launched = LaunchedProcess::start({"/bin/sh", "-c", "kill -USR1 $$; exit 1"});
    ASSERT_TRUE(launched) << launched.error().text();
    {
      auto stopped = launched->run_until_loaded();
      ASSERT_TRUE(stopped) << stopped.error().text();
    }
    if (i % 2 == 0) {
      ASSERT_TRUE(launched->attachment().detach());
    }
    const auto status = launched->wait_exit(10s);
    ASSERT_TRUE(status && *status);
    EXPECT_TRUE(WIFSIGNALED(**status) && WTERMSIG(**status) == SIGUSR1) << **status;
  }
}

TEST(PtraceThread, ItsEndLetsGoOfWhatCannotBeDetached) {
  TestChild child([](testing::Shared& s) {
    ++s.ready;
    while (s.counters[1] == 0) ::usleep(100);
    const pid_t grandchild = ::vfork();
    if (grandchild == 0) {
      ++s.ready;
      while (s.stop == 0) ::usleep(100);
      ::_exit(5);
    }
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    return WEXITSTATUS(status);
  });
  ASSERT_TRUE(child.await_ready());
  {
    PtraceThread thread;
    thread.run([&] {
      auto attachment = Attachment::seize(child.pid());
      ASSERT_TRUE(attachment);
      child.shared().counters[1] = 1;
      ASSERT_TRUE(child.await_ready(2));
      EXPECT_FALSE(attachment->stop({.timeout = 20ms}));
    });
  }
  child.shared().stop = 1;
  EXPECT_EQ(WEXITSTATUS(child.wait()), 5);
}

}  // namespace
}  // namespace trapline::target
