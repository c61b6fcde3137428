// Memory of one immutable object: allocated piece by piece, freed as a whole.
//
// Only for types without destructors. Throws std::bad_alloc.

#pragma once

#include <trapline/trapline.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trapline::client {

class Arena {
 public:
  // `count` objects, value-initialised; empty for 0.
  template <typename T>
  std::span<T> make(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlignment);
    if (count == 0) return {};
    if (count > kMaxBytes / sizeof(T)) throw std::bad_alloc();
    T* first = static_cast<T*>(take(count * sizeof(T)));
    std::uninitialized_value_construct_n(first, count);
    return {first, count};
  }
  // A copy that ends in a NUL.
  trapline_string copy(std::string_view text) {
    if (text.empty()) return {"", 0};
    auto* data = static_cast<char*>(take(text.size() + 1));
    std::memcpy(data, text.data(), text.size());
    data[text.size()] = '\0';
    return {data, text.size()};
  }
  // Bytes that were allocated for it.
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kAlignment = 16;
  static constexpr std::size_t kBlock = std::size_t{2} << 10;  // the first; later ones are larger
  static constexpr std::size_t kLargestBlock = std::size_t{256} << 10;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 40;

  void* take(std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > left_) grow(bytes);
    char* taken = next_;
    next_ += bytes;
    left_ -= bytes;
    return taken;
  }
  void grow(std::size_t bytes) {
    const std::size_t usual = std::clamp(size_, kBlock, kLargestBlock);
    const std::size_t block = std::max(bytes, usual);
    blocks_.push_back(std::unique_ptr<char[]>(new char[block]));
    next_ = blocks_.back().get();
    left_ = block;
    size_ += block;
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  std::size_t left_ = 0;
  std::size_t size_ = 0;
};

}  // namespace trapline::client
