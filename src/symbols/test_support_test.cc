// The implementation of test_support.h; named so that only the test binary gets it.

#include "symbols/test_support.h"

#include <fcntl.h>
#include <link.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace trapline::symbols {
namespace {

struct Wanted {
  std::string name;
  std::string path;
  std::uint64_t bias = 0;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  auto* wanted = static_cast<Wanted*>(data);
  const std::string path = info->dlpi_name;
  if (path.substr(path.rfind('/') + 1) != wanted->name) return 0;
  wanted->path = path;
  wanted->bias = info->dlpi_addr;
  return 1;
}

Wanted loaded(const std::string& name) {
  Wanted wanted{name, {}, 0};
  ::dl_iterate_phdr(look, &wanted);
  return wanted;
}

}  // namespace

std::string fixture(const std::string& name) {
  return std::string(TRAPLINE_SYMBOLS_TESTDATA) + "/" + name;
}

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

void make_directories(const std::string& path) { std::filesystem::create_directories(path); }

TempDir::TempDir() {
  path_ = (std::filesystem::temp_directory_path() / "trapline-symbols-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) path_.clear();
}
TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

MemoryReader memory_of(int pid) {
  return [pid](RemoteAddr from, std::span<std::byte> into) -> Result<> {
    iovec local{into.data(), into.size()};
    iovec remote{reinterpret_cast<void*>(from.value()), into.size()};
    const ssize_t n = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n != static_cast<ssize_t>(into.size()))
      return Error::os(n < 0 ? errno : EFAULT, "read memory");
    return {};
  };
}
MemoryReader own_memory() { return memory_of(::getpid()); }

std::vector<MapEntry> read_maps(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/maps");
  std::vector<MapEntry> out;
  for (std::string line; std::getline(in, line);) {
    std::uint64_t start = 0, end = 0, offset = 0, inode = 0;
    unsigned dev_major = 0, dev_minor = 0;
    char perms[5] = {};
    int used = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu%n", &start, &end, perms, &offset,
                    &dev_major, &dev_minor, &inode, &used) != 7) {
      continue;
    }
    const std::size_t path = line.find_first_not_of(' ', static_cast<std::size_t>(used));
    out.push_back({RemoteAddr(start), RemoteAddr(end), offset, perms[0] == 'r', perms[1] == 'w',
                   perms[2] == 'x', dev_major, dev_minor, inode,
                   path == std::string::npos ? std::string() : line.substr(path)});
  }
  return out;
}
std::vector<MapEntry> own_maps() { return read_maps(::getpid()); }

std::string path_of_loaded(const std::string& name) {
  return std::filesystem::canonical(loaded(name).path).string();
}
std::uint64_t bias_of_loaded(const std::string& name) { return loaded(name).bias; }

Child::Child(const std::string& path) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::execl(path.c_str(), path.c_str(), "text", nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_child_ = in[1];
  char c = 0;
  while (::read(out[0], &c, 1) == 1 && c != '\n') first_line_ += c;
  ::close(out[0]);
}

Child::~Child() {
  ::close(to_child_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

}  // namespace trapline::symbols
