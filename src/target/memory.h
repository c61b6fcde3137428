// Reading and writing another process's memory.
//
// Reads go through process_vm_readv (many ranges a call; the process may run). What it refuses (pages without
// read permission) is read through /proc/PID/mem. Writes go through /proc/PID/mem, which also writes to text and
// to mappings without write permission (private copies are made: the file is never changed); where the kernel's
// proc_mem.force_override refuses that, word by word with PTRACE_POKEDATA, which needs the thread `tid` to be stopped by the
// caller.
//
// A Memory belongs to one program image: after exec open another. An image that is gone gives kTargetGone; an address
// that is not mapped gives kOs with EFAULT or EIO.
// Sources: process_vm_readv(2), proc(5), fs/proc/base.c (mem_rw, proc_mem_foll_force).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"

namespace trapline::target {

struct ReadRequest {
  RemoteAddr from;
  std::span<std::byte> to;
};

class Memory {
 public:
  // `tid`: a live thread of the process through which it is reached (its leader may be a zombie).
  static Result<Memory> open(Pid pid, Tid tid);
  static Result<Memory> open(Pid pid) { return open(pid, Tid{pid.value}); }

  // All of `to` or an error.
  Result<> read(RemoteAddr from, std::span<std::byte> to) const;
  // As much as is mapped and readable from `from` on; 0 bytes is no error.
  Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> to) const;
  // All requests or an error; bulk.
  Result<> read_all(std::span<const ReadRequest> requests) const;
  // Up to the NUL, which is not included, or `limit` bytes.
  Result<std::string> read_string(RemoteAddr from, std::size_t limit) const;

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  Result<T> read_value(RemoteAddr from) const {
    T value{};
    TL_TRY(read(from, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }

  // All of `bytes` or an error (then some may have been written).
  Result<> write(RemoteAddr to, std::span<const std::byte> bytes);
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  Result<> write_value(RemoteAddr to, const T& value) {
    return write(to, std::as_bytes(std::span(&value, 1)));
  }

  // The stopped thread that PTRACE_POKEDATA may go through.
  void set_stopped_thread(Tid tid) { tid_ = tid; }

 private:
  Memory(Pid pid, Tid tid, Fd fd) : pid_(pid), tid_(tid), fd_(std::move(fd)) {}
  Result<std::size_t> read_through_file(RemoteAddr from, std::span<std::byte> to) const;
  Result<> poke(RemoteAddr to, std::span<const std::byte> bytes);

  Pid pid_;
  Tid tid_;
  Fd fd_;
};

}  // namespace trapline::target
