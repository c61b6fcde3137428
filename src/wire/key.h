// Keys of aggregations and associative arrays: how a tuple becomes words, and their hash.
//
// A key is its components one after another: an integer as one word, extended by its type's
// signedness; a string as a word with its length (without the NUL), then its bytes, padded with
// zeros to a whole word; bytes of a fixed size as themselves, padded likewise. An array of scope
// `self` has the thread's id as its first word. Bodies, the interpreter and the consumer share
// this; so two equal tuples are equal word by word. Freestanding.

#pragma once

#include <stdint.h>

#include "wire/arena.h"

namespace trapline::wire {

constexpr uint32_t round_up_to_word(uint32_t bytes) { return (bytes + 7) & ~uint32_t{7}; }

// The most bytes that one component takes. `strsize` counts the NUL, which is not stored.
inline constexpr uint32_t kIntegerKeyBytes = 8;
constexpr uint32_t string_key_bytes(uint32_t strsize) {
  return 8 + round_up_to_word(strsize == 0 ? 0 : strsize - 1);
}

// One step, and the end, of the hash over the words of a key. `seed` tells tables apart.
constexpr uint64_t hash_start(uint64_t seed) { return seed; }
constexpr uint64_t hash_step(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kHashMultiplier;
  return hash ^ (hash >> 32);
}
constexpr uint32_t hash_end(uint64_t hash) {
  // The multiplication mixes upwards only, so low bits are poor; the last step's shift has put the
  // high ones there.
  return static_cast<uint32_t>(hash);
}
constexpr uint32_t hash_key(const uint64_t* words, uint32_t count, uint64_t seed) {
  uint64_t hash = hash_start(seed);
  for (uint32_t i = 0; i < count; ++i) hash = hash_step(hash, words[i]);
  return hash_end(hash);
}

// Writes a key into a buffer of `capacity` words. A component that does not fit makes it fail for
// good.
class KeyWriter {
 public:
  constexpr KeyWriter(uint64_t* words, uint32_t capacity) : words_(words), capacity_(capacity) {}

  constexpr void append_integer(uint64_t value) {
    if (count_ >= capacity_) {
      failed_ = true;
      return;
    }
    words_[count_++] = value;
  }

  // The bytes of `text` up to its NUL, at most `strsize` - 1 of them.
  constexpr void append_string(const char* text, uint32_t strsize) {
    if (count_ >= capacity_) {
      failed_ = true;
      return;
    }
    const uint32_t length_at = count_++;
    uint32_t length = 0;
    uint64_t word = 0;
    while (length + 1 < strsize && text[length] != 0) {
      word |= static_cast<uint64_t>(static_cast<unsigned char>(text[length])) << (length % 8 * 8);
      ++length;
      if (length % 8 == 0) {
        append_integer(word);
        word = 0;
      }
    }
    if (length % 8 != 0) append_integer(word);
    words_[length_at] = length;
  }

  constexpr void append_bytes(const unsigned char* bytes, uint32_t size) {
    for (uint32_t at = 0; at < size; at += 8) {
      uint64_t word = 0;
      for (uint32_t i = 0; i < 8 && at + i < size; ++i) word |= uint64_t{bytes[at + i]} << (i * 8);
      append_integer(word);
    }
  }

  constexpr uint32_t count() const { return count_; }
  constexpr bool failed() const { return failed_; }

 private:
  uint64_t* words_;
  uint32_t capacity_;
  uint32_t count_ = 0;
  bool failed_ = false;
};

// Reads a key that may be forged: nothing is read past `count` words, and a lie sets failed().
class KeyReader {
 public:
  constexpr KeyReader(const uint64_t* words, uint32_t count) : words_(words), count_(count) {}

  constexpr uint64_t read_integer() {
    if (next_ >= count_) {
      failed_ = true;
      return 0;
    }
    return words_[next_++];
  }

  struct Bytes {
    const uint64_t* words;  // the bytes, in memory order
    uint32_t length;
  };
  constexpr Bytes read_string() {
    const uint64_t length = read_integer();
    const uint64_t needed = length / 8 + (length % 8 != 0 ? 1 : 0);
    if (failed_ || needed > count_ - next_) {
      failed_ = true;
      return {words_, 0};
    }
    const Bytes bytes{words_ + next_, static_cast<uint32_t>(length)};
    next_ += static_cast<uint32_t>(needed);
    return bytes;
  }

  constexpr bool at_end() const { return next_ == count_; }
  constexpr bool failed() const { return failed_; }

 private:
  const uint64_t* words_;
  uint32_t count_;
  uint32_t next_ = 0;
  bool failed_ = false;
};

}  // namespace trapline::wire
