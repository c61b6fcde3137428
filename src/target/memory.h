// Reading and writing another process's memory.
//
// Reads go through /proc/PID/mem, which is bound to one program image for good; while a thread is
// known to be stopped by the caller (so that its id cannot be used again) through process_vm_readv,
// which takes many ranges a call. Writes go through /proc/PID/mem, which also writes to text and to
// mappings without write permission (private copies are made: the file is never changed); where the
// kernel's proc_mem.force_override refuses that, word by word with PTRACE_POKEDATA, which needs the
// stopped thread.
//
// A Memory belongs to one program image: after exec open another. An image that is gone gives
// kTargetGone; an address that is not mapped gives kOs with EFAULT or EIO. Sources:
// process_vm_readv(2), proc(5), fs/proc/base.c (mem_rw, proc_mem_foll_force).

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

  // A thread in a ptrace stop of the calling thread; {}: none any more.
  void set_stopped_thread(Tid tid) { tid_ = tid; }
  // Tests only: as if /proc/PID/mem could not be written.
  void write_by_words() { by_words_ = true; }

 private:
  Memory(Pid pid, Fd fd) : pid_(pid), fd_(std::move(fd)) {}
  Result<std::size_t> read_through_file(RemoteAddr from, std::span<std::byte> to) const;
  Result<> poke(RemoteAddr to, std::span<const std::byte> bytes);

  Pid pid_;
  Tid tid_{};  // stopped; 0: none
  Fd fd_;
  bool by_words_ = false;
};

}  // namespace trapline::target
