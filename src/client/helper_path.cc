#include "client/helper_path.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace trapline::client {
namespace {

bool is_executable(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

// The file that this code was loaded from.
std::string library_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&find_helper), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(info.dli_fname, nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : std::string();
}

std::vector<std::string> candidates(const HelperSearch& search) {
  std::vector<std::string> found;
  const std::size_t slash = search.library.rfind('/');
  if (slash != std::string::npos) {
    const std::string folder = search.library.substr(0, slash);
    // lib, lib/x86_64-linux-gnu, a build tree that has both in one folder or the command in bin.
    for (const char* relative : {"/../bin/", "/../../bin/", "/", "/bin/"}) {
      found.push_back(folder + relative + "trapline");
    }
  }
  std::string_view rest = search.path != nullptr ? search.path : "";
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    // A relative folder of PATH depends on where the program happens to be: not for us.
    if (folder.starts_with('/')) found.push_back(std::string(folder) + "/trapline");
  }
  return found;
}

}  // namespace

HelperSearch this_process_search() {
  HelperSearch search;
  search.library = library_path();
  if (::getauxval(AT_SECURE) == 0) {
    search.command = std::getenv("TRAPLINE_COMMAND");
    search.path = std::getenv("PATH");
    const char* debug = std::getenv("TRAPLINE_DEBUG");
    search.debug = debug != nullptr && *debug != '\0';
  }
  return search;
}

Outcome<std::string> find_helper(const HelperSearch& search) {
  if (search.command != nullptr && *search.command != '\0') {
    if (is_executable(search.command)) return std::string(search.command);
    return Failure{TRAPLINE_ERROR_NO_HELPER,
                   std::string("the helper that TRAPLINE_COMMAND names, ") + search.command +
                       ", is not an executable file"};
  }
  const std::vector<std::string> paths = candidates(search);
  for (const std::string& path : paths) {
    if (is_executable(path)) return path;
  }
  std::string text = "the helper, the command trapline, was not found";
  for (const std::string& path : paths) text += (&path == &paths.front() ? ": not " : ", ") + path;
  return Failure{TRAPLINE_ERROR_NO_HELPER, text + "; install it, or name it in TRAPLINE_COMMAND"};
}

std::vector<char*> helper_environment(char** environment) {
  std::vector<char*> kept;
  for (char** variable = environment; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("LD_AUDIT="))
      kept.push_back(*variable);
  }
  kept.push_back(nullptr);
  return kept;
}

}  // namespace trapline::client
