// D's string subroutines, for bodies in the traced process and for the tracer.
//
// Freestanding, like all of wire: no library, no table of jumps, little stack. Every string ends
// with a NUL within `size` bytes, or is taken to end there; results are cut to `size` - 1 bytes and
// are always terminated. `out` never overlaps an argument. Another thread may change an argument
// meanwhile: each byte is read once where it decides, and every loop is bounded.
//
// Sources: the DTrace manuals of Oracle and illumos; getaddrinfo's text forms: RFC 4291, 2.2.

#pragma once

#include <stdint.h>

namespace trapline::wire {

using TextByte = unsigned char;

inline TextByte text_at(const TextByte* text, uint64_t i) {
  return *const_cast<const volatile TextByte*>(text + i);
}

// Writes what fits. Volatile: the compiler is not to make a call of memcpy out of it.
class TextWriter {
 public:
  TextWriter(TextByte* out, uint64_t size) : out_(out), size_(size) {}
  void put(TextByte byte) {
    if (length_ + 1 < size_) *const_cast<volatile TextByte*>(out_ + length_++) = byte;
  }
  void finish() {
    if (size_ != 0) *const_cast<volatile TextByte*>(out_ + length_) = 0;
  }
  uint64_t length() const { return length_; }
  void cut(uint64_t length) { length_ = length; }
  TextByte back_at(uint64_t i) const { return text_at(out_, i); }

 private:
  TextByte* out_;
  uint64_t size_;
  uint64_t length_ = 0;
};

inline uint64_t text_length(const TextByte* text, uint64_t size) {
  uint64_t i = 0;
  while (i + 1 < size && text_at(text, i) != 0) ++i;
  return i;
}

inline void text_copy(TextByte* out, const TextByte* from, uint64_t count, uint64_t size) {
  TextWriter writer(out, size);
  for (uint64_t i = 0; i < count; ++i) {
    const TextByte byte = text_at(from, i);
    if (byte == 0) break;
    writer.put(byte);
  }
  writer.finish();
}

inline bool text_contains(const TextByte* set, TextByte byte, uint64_t size) {
  for (uint64_t i = 0; i + 1 < size; ++i) {
    const TextByte one = text_at(set, i);
    if (one == 0) return false;
    if (one == byte) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------- searching

inline constexpr int64_t kTextNotFound = -1;

// The position of the first (last: backwards) `byte`.
inline int64_t text_find_byte(const TextByte* text, TextByte byte, bool last, uint64_t size) {
  int64_t found = kTextNotFound;
  for (uint64_t i = 0; i + 1 < size; ++i) {
    const TextByte one = text_at(text, i);
    if (one == byte && one != 0) {
      found = static_cast<int64_t>(i);
      if (!last) break;
    }
    if (one == 0) break;
  }
  return found;
}

inline bool text_matches(const TextByte* text, uint64_t at, const TextByte* wanted,
                         uint64_t wanted_length) {
  for (uint64_t i = 0; i < wanted_length; ++i) {
    if (text_at(text, at + i) != text_at(wanted, i)) return false;
  }
  return true;
}

// index(): the first place at or behind `from`; from < 0 is 0, and an empty string is found at
// `from`, or at the end where that lies beyond it.
inline int64_t text_index(const TextByte* text, const TextByte* wanted, int64_t from,
                          uint64_t size) {
  const auto length = static_cast<int64_t>(text_length(text, size));
  const auto wanted_length = static_cast<int64_t>(text_length(wanted, size));
  if (from < 0) from = 0;
  if (wanted_length == 0) return from > length ? length : from;
  for (int64_t at = from; at <= length - wanted_length; ++at) {
    if (text_matches(text, static_cast<uint64_t>(at), wanted,
                     static_cast<uint64_t>(wanted_length))) {
      return at;
    }
  }
  return kTextNotFound;
}

// rindex(): the last place at or before `from`; from < 0: none, but for an empty string, which is
// then found at 0.
inline int64_t text_rindex(const TextByte* text, const TextByte* wanted, int64_t from,
                           uint64_t size) {
  const auto length = static_cast<int64_t>(text_length(text, size));
  const auto wanted_length = static_cast<int64_t>(text_length(wanted, size));
  if (from < 0) return wanted_length == 0 ? 0 : kTextNotFound;
  int64_t at = length - wanted_length;
  if (at > from) at = from;
  for (; at >= 0; --at) {
    if (text_matches(text, static_cast<uint64_t>(at), wanted,
                     static_cast<uint64_t>(wanted_length))) {
      return at;
    }
  }
  return kTextNotFound;
}

// substr(): as in Perl. A start before the text takes its share of the length.
inline void text_substr(TextByte* out, const TextByte* text, int64_t start, int64_t count,
                        bool has_count, uint64_t size) {
  const auto length = static_cast<int64_t>(text_length(text, size));
  int64_t first = start;
  if (first < 0)
    first = first < -length - (int64_t{1} << 40) ? -(int64_t{1} << 40) : first + length;
  int64_t end = length;
  if (has_count && count < 0) {
    end = count < -length ? 0 : length + count;
  } else if (has_count && count < (int64_t{1} << 40)) {
    end = first + count;
  }
  if (first < 0) first = 0;
  if (end > length) end = length;
  const uint64_t taken = first < end ? static_cast<uint64_t>(end - first) : 0;
  text_copy(out, text + (taken == 0 ? 0 : first), taken, size);
}

// --------------------------------------------------------------------------------- paths

inline void text_basename(TextByte* out, const TextByte* path, uint64_t size) {
  TextWriter writer(out, size);
  uint64_t end = text_length(path, size);
  if (end == 0) {
    writer.put('.');
    return writer.finish();
  }
  while (end != 0 && text_at(path, end - 1) == '/') --end;
  if (end == 0) {
    writer.put('/');
    return writer.finish();
  }
  uint64_t start = end;
  while (start != 0 && text_at(path, start - 1) != '/') --start;
  text_copy(out, path + start, end - start, size);
}

inline void text_dirname(TextByte* out, const TextByte* path, uint64_t size) {
  TextWriter writer(out, size);
  const uint64_t length = text_length(path, size);
  uint64_t end = length;
  while (end != 0 && text_at(path, end - 1) == '/') --end;
  const bool only_slashes = end == 0 && length != 0;
  while (end != 0 && text_at(path, end - 1) != '/') --end;
  const bool has_slash = end != 0 || only_slashes;
  while (end != 0 && text_at(path, end - 1) == '/') --end;
  if (end != 0) return text_copy(out, path, end, size);
  writer.put(has_slash ? '/' : '.');
  writer.finish();
}

// Whether the last component written, from `start` on, is "..".
inline bool text_ends_with_parent(const TextWriter& writer, uint64_t root) {
  const uint64_t length = writer.length();
  return length >= root + 2 && writer.back_at(length - 1) == '.' &&
         writer.back_at(length - 2) == '.' &&
         (length == root + 2 || writer.back_at(length - 3) == '/');
}

// cleanpath(): without "//", "/./" and "x/../", by the text alone.
inline void text_cleanpath(TextByte* out, const TextByte* path, uint64_t size) {
  TextWriter writer(out, size);
  const uint64_t length = text_length(path, size);
  const bool absolute = length != 0 && text_at(path, 0) == '/';
  if (absolute) writer.put('/');
  const uint64_t root = absolute ? 1 : 0;
  for (uint64_t i = 0; i < length;) {
    while (i < length && text_at(path, i) == '/') ++i;
    uint64_t end = i;
    while (end < length && text_at(path, end) != '/') ++end;
    const uint64_t count = end - i;
    const bool here = count == 1 && text_at(path, i) == '.';
    const bool parent = count == 2 && text_at(path, i) == '.' && text_at(path, i + 1) == '.';
    if (parent && writer.length() > root && !text_ends_with_parent(writer, root)) {
      uint64_t cut = writer.length();
      while (cut > root && writer.back_at(cut - 1) != '/') --cut;
      if (cut > root) --cut;
      writer.cut(cut);
    } else if (count != 0 && !here && !(parent && absolute)) {
      if (writer.length() > root) writer.put('/');
      for (uint64_t k = i; k < end; ++k) writer.put(text_at(path, k));
    }
    i = end;
  }
  if (writer.length() == 0 && length != 0) writer.put('.');
  writer.finish();
}

// -------------------------------------------------------------------------------- tokens

// What strtok() keeps between calls: `next` is the position + 1 in `text`, 0: nothing begun.
struct TokenState {
  uint64_t next;
  // followed by `size` bytes of text
};
inline TextByte* token_text(TokenState* state) { return reinterpret_cast<TextByte*>(state + 1); }

// `text` nullptr: goes on. false: there is no token left. Precondition: with a null `text`,
// state->next is not 0.
inline bool text_token(TextByte* out, const TextByte* text, const TextByte* delimiters,
                       TokenState* state, uint64_t size) {
  TextByte* kept = token_text(state);
  if (text != nullptr) {
    text_copy(kept, text, size, size);
    state->next = 1;
  }
  const uint64_t length = text_length(kept, size);
  uint64_t start = state->next - 1;
  if (start > length) start = length;
  while (start < length && text_contains(delimiters, text_at(kept, start), size)) ++start;
  uint64_t end = start;
  while (end < length && !text_contains(delimiters, text_at(kept, end), size)) ++end;
  if (start == end) {
    state->next = length + 1;
    return false;
  }
  state->next = end + 1;
  text_copy(out, kept + start, end - start, size);
  return true;
}

// ------------------------------------------------------------------------------- numbers

inline uint64_t text_digit(TextByte byte) {
  if (byte >= '0' && byte <= '9') return byte - uint64_t{'0'};
  if (byte >= 'a' && byte <= 'z') return byte - uint64_t{'a'} + 10;
  if (byte >= 'A' && byte <= 'Z') return byte - uint64_t{'A'} + 10;
  return 99;
}

inline void text_put_number(TextWriter& writer, uint64_t value, uint64_t base) {
  uint64_t power = 1;
  while (value / power >= base) power *= base;
  for (; power != 0; power /= base) {
    const uint64_t digit = value / power % base;
    writer.put(static_cast<TextByte>(digit < 10 ? '0' + digit : 'a' + digit - 10));
  }
}

inline constexpr uint64_t kMinTextBase = 2;
inline constexpr uint64_t kMaxTextBase = 36;

// lltostr(). Precondition: 2 <= base <= 36. Base 8 and 16 are marked as C does it; as in illumos,
// numbers in another base than 10 are unsigned.
inline void text_from_number(TextByte* out, int64_t value, uint64_t base, uint64_t size) {
  TextWriter writer(out, size);
  auto magnitude = static_cast<uint64_t>(value);
  if (base == 10 && value < 0) {
    writer.put('-');
    magnitude = 0 - magnitude;
  }
  if (base == 8 && magnitude != 0) writer.put('0');
  if (base == 16) {
    writer.put('0');
    writer.put('x');
  }
  text_put_number(writer, magnitude, base);
  writer.finish();
}

// strtoll(): blanks, a sign, digits; base 16 allows 0x in front. Stops at what is no digit; the
// value wraps. Precondition: 2 <= base <= 36.
inline int64_t text_to_number(const TextByte* text, uint64_t base, uint64_t size) {
  uint64_t i = 0;
  const uint64_t length = text_length(text, size);
  while (i < length &&
         (text_at(text, i) == ' ' || (text_at(text, i) >= '\t' && text_at(text, i) <= '\r'))) {
    ++i;
  }
  bool negative = false;
  if (i < length && (text_at(text, i) == '-' || text_at(text, i) == '+')) {
    negative = text_at(text, i++) == '-';
  }
  if (base == 16 && i + 1 < length && text_at(text, i) == '0' &&
      (text_at(text, i + 1) | 0x20) == 'x') {
    i += 2;
  }
  uint64_t value = 0;
  for (; i < length; ++i) {
    const uint64_t digit = text_digit(text_at(text, i));
    if (digit >= base) break;
    value = value * base + digit;
  }
  return static_cast<int64_t>(negative ? 0 - value : value);
}

inline void text_change_case(TextByte* out, const TextByte* text, bool upper, uint64_t size) {
  TextWriter writer(out, size);
  const TextByte first = upper ? 'a' : 'A';
  for (uint64_t i = 0; i + 1 < size; ++i) {
    const TextByte byte = text_at(text, i);
    if (byte == 0) break;
    writer.put(byte >= first && byte < first + 26 ? byte ^ 0x20 : byte);
  }
  writer.finish();
}

// ------------------------------------------------------------------------------ addresses

inline void text_put_ipv4(TextWriter& writer, const TextByte* address) {
  for (uint64_t i = 0; i < 4; ++i) {
    if (i != 0) writer.put('.');
    text_put_number(writer, text_at(address, i), 10);
  }
}

inline void text_ipv4(TextByte* out, const TextByte* address, uint64_t size) {
  TextWriter writer(out, size);
  text_put_ipv4(writer, address);
  writer.finish();
}

inline uint64_t text_group(const TextByte* address, uint64_t i) {
  return uint64_t{text_at(address, 2 * i)} << 8 | text_at(address, 2 * i + 1);
}

// The longest run of zero groups, the first of equally long ones; `count` 0 or 1: none worth it.
struct ZeroRun {
  uint64_t start = 0;
  uint64_t count = 0;
};
inline ZeroRun text_zero_run(const TextByte* address) {
  ZeroRun best;
  uint64_t start = 0;
  for (uint64_t i = 0; i < 8; ++i) {
    if (text_group(address, i) != 0) {
      start = i + 1;
    } else if (i + 1 - start > best.count) {
      best.start = start;
      best.count = i + 1 - start;
    }
  }
  return best;
}

// inet_ntoa6(). An address that holds an IPv4 one is written as that, in full only if `strict`.
inline void text_ipv6(TextByte* out, const TextByte* address, bool strict, uint64_t size) {
  TextWriter writer(out, size);
  bool leading_zero = true;
  for (uint64_t i = 0; i < 5; ++i) leading_zero = leading_zero && text_group(address, i) == 0;
  const bool mapped = leading_zero && text_group(address, 5) == 0xffff;
  const bool compatible =
      leading_zero && text_group(address, 5) == 0 && text_group(address, 6) != 0;
  if (mapped || compatible) {
    if (strict) {
      writer.put(':');
      writer.put(':');
      if (mapped) {
        for (uint64_t i = 0; i < 4; ++i) writer.put('f');
        writer.put(':');
      }
    }
    text_put_ipv4(writer, address + 12);
    return writer.finish();
  }
  const ZeroRun zeros = text_zero_run(address);
  for (uint64_t i = 0; i < 8; ++i) {
    if (zeros.count > 1 && i == zeros.start) {
      writer.put(':');
      if (i == 0) writer.put(':');
      i += zeros.count - 1;
      continue;
    }
    text_put_number(writer, text_group(address, i), 16);
    if (i != 7) writer.put(':');
  }
  writer.finish();
}

// link_ntop(): `count` bytes in hexadecimal.
inline void text_link(TextByte* out, const TextByte* address, uint64_t count, uint64_t size) {
  TextWriter writer(out, size);
  for (uint64_t i = 0; i < count; ++i) {
    if (i != 0) writer.put(':');
    for (uint64_t shift = 8; shift != 0;) {
      shift -= 4;
      const uint64_t digit = text_at(address, i) >> shift & 15;
      writer.put(static_cast<TextByte>(digit < 10 ? '0' + digit : 'a' + digit - 10));
    }
  }
  writer.finish();
}

}  // namespace trapline::wire
