// What the tests of this folder share: the fixtures, this process as a target, temporary files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "symbols/elf_image.h"
#include "symbols/modules.h"

namespace trapline::symbols {

std::string fixture(const std::string& name);  // its path

std::vector<std::byte> read_file(const std::string& path);
void write_file(const std::string& path, std::span<const std::byte> bytes);

void make_directories(const std::string& path);

class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Memory of a process, by process_vm_readv: an error where nothing is mapped.
MemoryReader memory_of(int pid);
MemoryReader own_memory();

std::vector<MapEntry> read_maps(int pid);
std::vector<MapEntry> own_maps();

// An object loaded in this process, by the last component of its name.
std::string path_of_loaded(const std::string& name);
std::uint64_t bias_of_loaded(const std::string& name);

// A running fixture program; it ends with this object.
class Child {
 public:
  explicit Child(const std::string& path);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();
  int pid() const { return pid_; }
  const std::string& first_line() const { return first_line_; }

 private:
  int pid_ = -1;
  int to_child_ = -1;
  std::string first_line_;
};

}  // namespace trapline::symbols
