#include "session/source_loader.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "base/fd.h"

extern char** environ;

namespace trapline::session {

namespace {

Result<std::string> read_all(int fd, const std::string& name) {
  std::string text;
  char buffer[64 * 1024];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::os(errno, "failed to read " + name);
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > kLargestScript) {
      return Error(ErrorCode::kBadInput, name + " is larger than 64 MiB, the most a script may be");
    }
  }
}

// cpp chokes on the first line of a "#!" script: it becomes empty, so that the other lines keep
// their numbers.
std::string without_interpreter_line(const std::string& text) {
  if (!text.starts_with("#!")) return text;
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::string() : text.substr(end);
}

// An anonymous file with `text` in it, at its start.
Result<Fd> memory_file(const std::string& text) {
  Fd file(::memfd_create("trapline-script", MFD_CLOEXEC));
  if (!file) return Error::os(errno, "failed to make a file in memory");
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
    if (n < 0) return Error::os(errno, "failed to write a file in memory");
    done += static_cast<std::size_t>(n);
  }
  if (::lseek(file.get(), 0, SEEK_SET) < 0) return Error::os(errno, "failed to seek");
  return file;
}

std::vector<std::string> cpp_command(const plan::Options& options,
                                     const std::vector<std::string>& cpp_arguments) {
  const std::string path = options.text("cpppath");
  std::vector<std::string> command{path.empty() ? "cpp" : path,
                                   "-D__linux",
                                   "-D__unix",
                                   "-D__SVR4",
                                   "-D__SUNW_D=1",
                                   "-U__GNUC__",
                                   "-D__amd64",
                                   "-D__Linux",
                                   "-D__SUNW_D_64"};
  if (options.flag("cpphdrs")) command.emplace_back("-H");
  const std::string conformance = options.text("stdc");
  if (conformance == "s") command.emplace_back("-traditional-cpp");
  if (conformance == "a" || conformance.empty()) command.emplace_back("-std=c99");
  command.insert(command.end(), cpp_arguments.begin(), cpp_arguments.end());
  // Line markers are kept (no -P): they say where each line came from.
  command.insert(command.end(), {"-"});
  return command;
}

}  // namespace

Result<std::string> read_script(const std::string& path) {
  if (path == "-") return read_all(STDIN_FILENO, "standard input");
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error::os(errno, "failed to open " + path);
  struct stat facts{};
  if (::fstat(file.get(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
    return Error(ErrorCode::kBadInput, "failed to open " + path + ": it is a directory");
  }
  return read_all(file.get(), path);
}

Result<std::string> preprocess(const std::string& text, const std::string& path,
                               const plan::Options& options,
                               const std::vector<std::string>& cpp_arguments) {
  TL_TRY_ASSIGN(const Fd input, memory_file(without_interpreter_line(text)));
  const Fd output(::memfd_create("trapline-cpp", MFD_CLOEXEC));
  if (!output) return Error::os(errno, "failed to make a file in memory");

  std::vector<std::string> command = cpp_command(options, cpp_arguments);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return Error::os(failed, std::string("failed to run ") + argv[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Error(ErrorCode::kBadInput, "failed to compile script " + path +
                                           ": Preprocessor failed to process input program");
  }
  if (::lseek(output.get(), 0, SEEK_SET) < 0) return Error::os(errno, "failed to seek");
  return read_all(output.get(), "the C preprocessor's output");
}

}  // namespace trapline::session
