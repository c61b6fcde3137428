// Where an ElfImage's bytes come from: a file, bytes, or a process's memory. Internal to ElfImage.
//
// Positions are file offsets for files and bytes; for a process's memory they are link addresses,
// except for header_bytes(), which counts from the mapped ELF header. Reads are bounded by the
// source's size and kMaxRead, checked for short reads, and kept, so that the spans stay valid as
// long as the source. Reads are widened to a window, since small neighbouring reads are the rule.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"
#include "symbols/elf_image.h"

namespace trapline::symbols {

class ByteSource {
 public:
  struct Extent {
    std::uint64_t begin;
    std::uint64_t end;
  };
  static constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 30;

  // Only regular files: a FIFO or device would block, or never end.
  static Result<ByteSource> open(const std::string& path);
  static Result<ByteSource> from_fd(Fd fd, const std::string& name);
  static ByteSource from_bytes(std::vector<std::byte> bytes);
  static ByteSource from_memory(MemoryReader reader, RemoteAddr header);

  ImageSource kind() const { return kind_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t bias() const { return bias_; }
  // For a process's memory, once the link address of the ELF header is known.
  void set_bias(std::uint64_t header_link_address) {
    bias_ = header_.value() - header_link_address;
  }

  Result<std::span<const std::byte>> header_bytes(std::uint64_t offset, std::uint64_t size) const;
  // The bytes at a position; the read may be widened within `extent`.
  Result<std::span<const std::byte>> view(std::uint64_t position, std::uint64_t size,
                                          Extent extent) const;
  Result<Bytes> copy(std::uint64_t position, std::uint64_t size) const;

 private:
  ByteSource(ImageSource kind, std::uint64_t size) : kind_(kind), size_(size) {}
  std::optional<std::span<const std::byte>> kept(std::uint64_t position, std::uint64_t size) const;
  Result<Bytes> read(std::uint64_t position, std::uint64_t size) const;

  ImageSource kind_;
  std::uint64_t size_;
  Fd fd_;
  std::vector<std::byte> bytes_;
  MemoryReader reader_;
  RemoteAddr header_;
  std::uint64_t bias_ = 0;
  struct Kept {
    std::uint64_t position;
    Bytes bytes;
  };
  mutable std::map<std::uint64_t, Bytes> windows_;  // at most a window long, by position
  mutable std::vector<Kept> long_reads_;            // whole segments and tables: few
  mutable std::vector<Bytes> headers_;              // of a process's memory
};

}  // namespace trapline::symbols
