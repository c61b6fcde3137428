// The loaded objects of a process, from its mappings.
//
// Problem: /proc/PID/maps names files, not objects: a file may be mapped twice (dlmopen), for
// reading only, be deleted, replaced by a newer version under the running process, or be no ELF
// file. Approach: an object is a file with an executable mapping that one of its PT_LOADs explains;
// the difference is the load bias, and all mappings that agree on it belong together. The file on
// disk is believed only when it is the mapped one: same device and inode, or same build-id as in
// memory (overlay and btrfs show other device numbers in maps than in stat). Otherwise
// /proc/PID/map_files is tried, then the object is read from memory (.dynsym only). Limits: text
// that was remapped anonymously (huge pages) is not attributed. Sources: proc(5); rule 1 of the
// design: never patch by a file that is not the one in memory.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "symbols/elf_image.h"
#include "symbols/glob.h"
#include "symbols/symbol_table.h"

namespace trapline::symbols {

// A line of /proc/PID/maps, in its order.
struct MapEntry {
  RemoteAddr start;
  RemoteAddr end;
  std::uint64_t offset = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint64_t inode = 0;
  std::string
      path;  // as in maps, with " (deleted)" where the kernel says so; "[vdso]"; empty: anonymous
  bool operator==(const MapEntry&) const = default;
};

struct RemoteRange {
  RemoteAddr begin;
  RemoteAddr end;
  bool contains(RemoteAddr a) const { return begin <= a && a < end; }
  bool operator==(const RemoteRange&) const = default;
};

enum class ModuleRole : std::uint8_t { kExecutable, kInterpreter, kLibrary, kVdso };

enum class FileState : std::uint8_t {
  kSame,        // the file at the path is the one mapped
  kMapped,      // deleted or replaced; read through /proc/PID/map_files
  kMemoryOnly,  // deleted, replaced or unreadable: read from memory, exported functions only
};

struct Module {
  std::string name;       // what probemod shows: "libc.so.6", "myprog", "linux-vdso.so.1"
  std::string path;       // as the process sees it, without " (deleted)"; "[vdso]"
  std::string open_path;  // what was opened: root prefix + path, or map_files; empty: memory
  ModuleRole role = ModuleRole::kLibrary;
  FileState file_state = FileState::kSame;
  std::string
      file_note;  // why not kSame: "deleted", "replaced: build-id ... in memory, ... on disk"
  LoadBias bias;
  RemoteAddr base;  // lowest mapped address; of a part: where the whole would begin
  // A piece of a file that is mapped as a whole elsewhere (node's engine maps its built-in
  // functions a second time, near the code that it makes): only what lies in `text` is there.
  bool is_part = false;
  std::vector<RemoteRange> text;  // executable mappings, ascending
  std::shared_ptr<const ElfImage> image;

  SymbolOptions symbol_options;  // for SymbolTable::read of this module
};

// A mapped file that gave no module, or not all of one. Others go on.
struct ModuleProblem {
  std::string path;
  RemoteAddr address;
  Error error;
};

struct ModuleList {
  std::vector<Module> modules;  // by base address
  std::vector<ModuleProblem> problems;

  const Module* containing(RemoteAddr address) const;  // by text range; nullptr: none
  const Module* executable() const;                    // nullptr: not found
};

struct ModuleOptions {
  std::string root_prefix;  // "/proc/PID/root"; empty: paths are ours as well
  std::string map_files;    // "/proc/PID/map_files"; empty: not tried
  std::string executable;   // readlink of /proc/PID/exe (" (deleted)" allowed); empty: the object
                            // with an entry
  MemoryReader memory;      // empty: no check against memory, no vDSO, no memory-only modules
};

// Never fails as a whole: what could not be read is in `problems`.
ModuleList read_modules(std::span<const MapEntry> maps, const ModuleOptions& options);

// The module part of a probe description, as the pid provider takes it.
//
// "" matches all. "LM0`libc.so.6" = "libc.so.6". A pattern is tried against the full path and its
// last component; without wildcards also against short names: "libc" for libc.so.6 and
// libc-2.31.so, "libstdc++" for libstdc++.so.6. "a.out" is the executable, beside its own name. The
// vDSO is linux-vdso.so.1, linux-vdso, vdso and "[vdso]".
bool module_matches(std::string_view pattern, const Module& module);
// The short names of a file name, longest first: libfoo-1.2.so.3 -> {libfoo-1.2, libfoo}. Views
// into `name`.
std::vector<std::string_view> short_module_names(std::string_view name);

}  // namespace trapline::symbols
