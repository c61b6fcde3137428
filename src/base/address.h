// Addresses that cannot be mixed up.
//
// RemoteAddr: in the traced process. LinkAddr: as a file's symbols and program headers give it,
// before loading. FileOffset: a position in a file. LoadBias is the one bridge: remote = link +
// bias (modulo 2^64).

#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace trapline {

template <typename Tag>
class TaggedAddress {
 public:
  constexpr TaggedAddress() = default;
  constexpr explicit TaggedAddress(std::uint64_t value) : value_(value) {}
  constexpr std::uint64_t value() const { return value_; }
  constexpr auto operator<=>(const TaggedAddress&) const = default;

  friend constexpr TaggedAddress operator+(TaggedAddress a, std::uint64_t n) {
    return TaggedAddress(a.value_ + n);
  }
  friend constexpr TaggedAddress operator-(TaggedAddress a, std::uint64_t n) {
    return TaggedAddress(a.value_ - n);
  }
  friend constexpr std::uint64_t operator-(TaggedAddress a, TaggedAddress b) {
    return a.value_ - b.value_;
  }
  constexpr TaggedAddress& operator+=(std::uint64_t n) {
    value_ += n;
    return *this;
  }

 private:
  std::uint64_t value_ = 0;
};

using RemoteAddr = TaggedAddress<struct RemoteTag>;
using LinkAddr = TaggedAddress<struct LinkTag>;
using FileOffset = TaggedAddress<struct FileTag>;

struct LoadBias {
  std::uint64_t value = 0;
  RemoteAddr to_remote(LinkAddr a) const { return RemoteAddr(a.value() + value); }
  LinkAddr to_link(RemoteAddr a) const { return LinkAddr(a.value() - value); }
};

struct Pid {
  pid_t value = 0;
  auto operator<=>(const Pid&) const = default;
};
struct Tid {
  pid_t value = 0;
  auto operator<=>(const Tid&) const = default;
};

}  // namespace trapline

template <typename Tag>
struct std::hash<trapline::TaggedAddress<Tag>> {
  std::size_t operator()(trapline::TaggedAddress<Tag> a) const noexcept {
    return std::hash<std::uint64_t>{}(a.value());
  }
};
