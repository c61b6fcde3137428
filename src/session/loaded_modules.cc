#include "session/loaded_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "target/process.h"

namespace trapline::session {

namespace {

symbols::MapEntry to_map_entry(const target::Mapping& m) {
  symbols::MapEntry entry;
  entry.start = m.range.start;
  entry.end = m.range.end;
  entry.offset = m.offset.value();
  entry.readable = m.readable;
  entry.writable = m.writable;
  entry.executable = m.executable;
  entry.device_major = static_cast<std::uint32_t>(m.device >> 8 & 0xfff);
  entry.device_minor = static_cast<std::uint32_t>(m.device & 0xff) |
                       static_cast<std::uint32_t>(m.device >> 12 & 0xfff00);
  entry.inode = m.inode;
  entry.path = m.deleted ? m.path + " (deleted)" : m.path;
  return entry;
}

Result<std::vector<symbols::MapEntry>> read_entries(Pid pid) {
  TL_TRY_ASSIGN(const std::vector<target::Mapping> maps, target::read_maps(pid));
  std::vector<symbols::MapEntry> entries;
  for (const target::Mapping& m : maps) entries.push_back(to_map_entry(m));
  return entries;
}

// Where there are modules: the process's own mappings of files, and the vDSO, that can be executed.
std::vector<symbols::MapEntry> code_of(std::span<const symbols::MapEntry> entries) {
  std::vector<symbols::MapEntry> code;
  for (const symbols::MapEntry& e : entries) {
    if (e.executable && !e.path.empty()) code.push_back(e);
  }
  return code;
}

using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::string>;
FileKey file_of(const symbols::MapEntry& e) {
  return {e.device_major, e.device_minor, e.inode, e.path};
}

// Those of `entries` that are not among `others`.
std::vector<const symbols::MapEntry*> without(std::span<const symbols::MapEntry> entries,
                                              std::span<const symbols::MapEntry> others) {
  std::vector<const symbols::MapEntry*> rest;
  for (const symbols::MapEntry& e : entries) {
    if (std::ranges::find(others, e) == others.end()) rest.push_back(&e);
  }
  return rest;
}

bool overlap(const symbols::Module& module, const symbols::MapEntry& e) {
  return std::ranges::any_of(module.text, [&](const symbols::RemoteRange& range) {
    return range.begin < e.end && e.start < range.end;
  });
}

}  // namespace

symbols::ModuleList LoadedModules::read_list(const std::vector<symbols::MapEntry>& entries) const {
  symbols::ModuleOptions options;
  options.root_prefix = fmt::format("/proc/{}/root", pid_.value);
  options.map_files = fmt::format("/proc/{}/map_files", pid_.value);
  if (const auto path = target::executable_path(pid_)) options.executable = *path;
  options.memory = [memory = memory_](RemoteAddr from, std::span<std::byte> into) {
    return memory->read(from, into);
  };
  return symbols::read_modules(entries, options);
}

Result<LoadedModules> LoadedModules::read(Pid pid, std::shared_ptr<target::Memory> memory) {
  LoadedModules loaded;
  loaded.pid_ = pid;
  loaded.memory_ = memory;
  TL_TRY_ASSIGN(const std::vector<symbols::MapEntry> entries, read_entries(pid));
  loaded.code_ = code_of(entries);
  loaded.cache_ = std::make_unique<probes::ModuleCache>(
      loaded.read_list(entries),
      [memory](RemoteAddr from, std::span<std::byte> into) { return memory->read(from, into); });
  return loaded;
}

LoadedModules LoadedModules::of_child(const LoadedModules& parent, Pid pid,
                                      std::shared_ptr<target::Memory> memory) {
  LoadedModules loaded;
  loaded.pid_ = pid;
  loaded.memory_ = memory;
  loaded.code_ = parent.code_;
  loaded.cache_ = std::make_unique<probes::ModuleCache>(
      parent.cache(),
      [memory](RemoteAddr from, std::span<std::byte> into) { return memory->read(from, into); });
  return loaded;
}

Result<bool> LoadedModules::changed() const {
  TL_TRY_ASSIGN(const std::vector<symbols::MapEntry> entries, read_entries(pid_));
  return code_of(entries) != code_;
}

std::vector<std::size_t> LoadedModules::forget_gone(std::span<const symbols::MapEntry> code) {
  std::vector<std::size_t> gone;
  const std::vector<const symbols::MapEntry*> left = without(code_, code);
  for (const std::size_t i : cache_->mapped()) {
    const auto was_there = [&](const symbols::MapEntry* e) {
      return overlap(cache_->module(i), *e);
    };
    if (std::ranges::any_of(left, was_there)) gone.push_back(i);
  }
  for (const std::size_t i : gone) cache_->remove(i);
  std::vector<symbols::MapEntry> still;
  for (const symbols::MapEntry& e : code_) {
    if (std::ranges::find(code, e) != code.end()) still.push_back(e);
  }
  code_ = std::move(still);
  return gone;
}

Result<std::vector<std::size_t>> LoadedModules::forget_gone() {
  TL_TRY_ASSIGN(const std::vector<symbols::MapEntry> entries, read_entries(pid_));
  return forget_gone(code_of(entries));
}

Result<ModuleChanges> LoadedModules::refresh() {
  ModuleChanges changes;
  TL_TRY_ASSIGN(const std::vector<symbols::MapEntry> entries, read_entries(pid_));
  std::vector<symbols::MapEntry> code = code_of(entries);
  if (code == code_) return changes;
  // A file of which any mapping of code has come or gone is read anew.
  std::set<FileKey> files;
  for (const symbols::MapEntry* e : without(code_, code)) files.insert(file_of(*e));
  for (const symbols::MapEntry* e : without(code, code_)) files.insert(file_of(*e));
  changes.gone = forget_gone(code);
  std::vector<symbols::MapEntry> to_read;
  for (const symbols::MapEntry& e : entries) {
    if (files.contains(file_of(e))) to_read.push_back(e);
  }
  for (symbols::Module& module : read_list(to_read).modules) {
    // Another copy of a file, of which one has come or gone, may be known.
    if (cache_->containing(module.text.front().begin)) continue;
    if (module.role == symbols::ModuleRole::kExecutable)
      module.role = symbols::ModuleRole::kLibrary;
    changes.came.push_back(cache_->add(std::move(module)));
  }
  code_ = std::move(code);
  return changes;
}

}  // namespace trapline::session
