// A bounds-checked reader over bytes that may be hostile: a file, or memory that another process
// writes.
//
// A read past the end sets failed() and gives zero; so a parser reads a whole structure and checks
// once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace trapline {

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }
  bool failed() const { return failed_; }

  void seek(std::size_t offset) {
    if (offset > bytes_.size()) {
      fail();
    } else {
      offset_ = offset;
    }
  }
  void skip(std::size_t n) {
    if (n > remaining()) {
      fail();
    } else {
      offset_ += n;
    }
  }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  T read() {
    T value{};
    if (sizeof(T) > remaining()) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  std::span<const std::byte> read_bytes(std::size_t n) {
    if (n > remaining()) {
      fail();
      return {};
    }
    const auto out = bytes_.subspan(offset_, n);
    offset_ += n;
    return out;
  }

 private:
  void fail() {
    failed_ = true;
    offset_ = bytes_.size();
  }

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  bool failed_ = false;
};

}  // namespace trapline
