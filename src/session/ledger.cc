#include "session/ledger.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "session/processes.h"
#include "target/memory.h"

namespace trapline::session {

namespace {

constexpr std::size_t kEntries = std::size_t{1} << 18;
constexpr std::byte kInt3{0xcc};

struct stat executable(Pid pid) {
  struct stat file{};
  (void)::stat(("/proc/" + std::to_string(pid.value) + "/exe").c_str(), &file);
  return file;
}

}  // namespace

struct Ledger::Table {
  std::uint64_t count;
  Entry entries[kEntries];
};

Ledger::Ledger() : first_{::getpid()} {
  void* const memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  table_ = memory == MAP_FAILED ? nullptr : static_cast<Table*>(memory);
}

Ledger::~Ledger() {
  if (table_ != nullptr) ::munmap(table_, sizeof(Table));
}

bool Ledger::is_deserted() const {
  return ::getpid() != first_.value && ::getppid() != first_.value;
}

Result<> Ledger::enter(const target::ProcessIdentity& process, RemoteAddr at,
                       std::span<const std::byte> original) {
  if (table_ == nullptr || table_->count == kEntries)
    return Error(ErrorCode::kUnsupported, "more breakpoints than there is a list for");
  const struct stat file = executable(process.pid);
  Entry& entry = table_->entries[table_->count];
  entry.size = static_cast<std::uint32_t>(std::min(original.size(), sizeof(entry.original)));
  std::memcpy(entry.original, original.data(), entry.size);
  entry.start_time = process.start_time;
  entry.at = at.value();
  entry.device = file.st_dev;
  entry.inode = file.st_ino;
  __atomic_store_n(&entry.pid, process.pid.value, __ATOMIC_RELEASE);
  __atomic_store_n(&table_->count, table_->count + 1, __ATOMIC_RELEASE);
  return {};
}

void Ledger::erase(Pid pid) {
  if (table_ == nullptr) return;
  for (std::uint64_t i = 0; i < table_->count; ++i) {
    Entry& entry = table_->entries[i];
    if (entry.pid == pid.value) __atomic_store_n(&entry.pid, 0, __ATOMIC_RELEASE);
  }
  while (table_->count != 0 && table_->entries[table_->count - 1].pid == 0)
    __atomic_store_n(&table_->count, table_->count - 1, __ATOMIC_RELEASE);
}

bool Ledger::concerns(const Entry& entry, Pid pid) {
  if (entry.pid == pid.value) {
    const auto identity = target::identify(pid);
    return identity && identity->start_time == entry.start_time;
  }
  const struct stat file = executable(pid);
  return file.st_dev == entry.device && file.st_ino == entry.inode && entry.inode != 0;
}

Ledger::Outcome Ledger::restore() const {
  Outcome outcome;
  if (table_ == nullptr) return outcome;
  const std::span<const Entry> entries(table_->entries, std::min(table_->count, kEntries));
  // The traced ones first: each moment counts.
  std::vector<Pid> pids;
  for (const Entry& entry : entries) {
    if (entry.pid != 0 && (pids.empty() || pids.back() != Pid{entry.pid}))
      pids.push_back(Pid{entry.pid});
  }
  if (pids.empty()) return outcome;
  std::ranges::copy(all_processes(), std::back_inserter(pids));
  std::set<int> seen;
  for (const Pid pid : pids) {
    if (!seen.insert(pid.value).second) continue;
    const auto concerned = std::ranges::find_if(
        entries, [pid](const Entry& e) { return e.pid != 0 && concerns(e, pid); });
    if (concerned == entries.end()) continue;
    auto memory = target::Memory::open(pid);
    if (!memory) continue;
    std::size_t sites = 0;
    for (const Entry& entry : entries) {
      if (entry.pid != concerned->pid) continue;
      std::byte there[sizeof(entry.original)];
      const std::span<std::byte> bytes(there, std::min<std::size_t>(entry.size, sizeof(there)));
      if (bytes.empty() || !memory->read(RemoteAddr(entry.at), bytes) || bytes[0] != kInt3 ||
          std::memcmp(there + 1, entry.original + 1, bytes.size() - 1) != 0)
        continue;
      if (memory->write(RemoteAddr(entry.at), std::span(entry.original).first(1))) ++sites;
    }
    outcome.sites += sites;
    if (sites != 0) ++outcome.processes;
  }
  return outcome;
}

}  // namespace trapline::session
