// json(): one value out of a JSON text, for bodies in the traced process and for the tracer.
//
// One pass forwards: what is not wanted is skipped by its brackets and quotes alone, so a text that
// is malformed elsewhere still gives its value. Freestanding and bounded as text.h says.
//
// The wanted element is a path: names and indices, as "request.headers[2].name"; an index may
// also stand between dots. A string's value comes without its quotes, its escapes as they are
// written; a number, true, false and null as their text; an object or array as its whole text. A
// name is compared with what stands between the quotes, escapes and all.
//
// Sources: illumos' DTrace guide (json()); RFC 8259.

#pragma once

#include "wire/text.h"

namespace trapline::wire {

// A place in a JSON text. Every step goes forwards; at the end, current() is 0.
class JsonCursor {
 public:
  JsonCursor(const TextByte* text, uint64_t size) : text_(text), length_(text_length(text, size)) {}

  uint64_t position() const { return at_; }
  TextByte current() const { return at_ < length_ ? text_at(text_, at_) : TextByte{0}; }

  // Whether `byte` was next; then it is behind.
  bool take(TextByte byte) {
    if (byte == 0 || current() != byte) return false;
    ++at_;
    return true;
  }

  void skip_blanks() {
    while (current() == ' ' || current() == '\t' || current() == '\n' || current() == '\r') ++at_;
  }

  // Behind the closing quote of a string whose opening one is behind. False: it has none.
  bool skip_string() {
    while (at_ < length_) {
      const TextByte byte = text_at(text_, at_++);
      if (byte == '"') return true;
      if (byte == '\\') ++at_;
    }
    return false;
  }

  // Behind a value. False: there is none, or it has no end.
  bool skip_value() {
    const TextByte first = current();
    if (first == '"') return ++at_, skip_string();
    if (first == '{' || first == '[') return skip_container();
    const uint64_t start = at_;
    while (is_literal(current())) ++at_;
    return at_ != start;
  }

 private:
  static bool is_literal(TextByte byte) {
    return text_digit(byte) < kMaxTextBase || byte == '-' || byte == '+' || byte == '.';
  }

  bool skip_container() {
    uint64_t depth = 0;
    while (at_ < length_) {
      const TextByte byte = text_at(text_, at_++);
      if (byte == '"' && !skip_string()) return false;
      if (byte == '{' || byte == '[') ++depth;
      if ((byte == '}' || byte == ']') && --depth == 0) return true;
    }
    return false;
  }

  const TextByte* text_;
  uint64_t length_;
  uint64_t at_ = 0;
};

// One name or index of a path: the bytes from `start` to `end`.
struct JsonStep {
  uint64_t start;
  uint64_t end;
};

// The step at `at`, which goes behind it. False: the path ends there, or is none.
inline bool json_next_step(const TextByte* path, uint64_t length, uint64_t& at, JsonStep& step) {
  if (at < length && at != 0 && text_at(path, at) == '.') ++at;
  const bool bracketed = at < length && text_at(path, at) == '[';
  if (bracketed) ++at;
  step.start = at;
  while (at < length && text_at(path, at) != '[' && text_at(path, at) != ']' &&
         text_at(path, at) != '.') {
    ++at;
  }
  step.end = at;
  if (!bracketed) return step.start != step.end;
  return at < length && text_at(path, at++) == ']' && step.start != step.end;
}

// Into the array whose opening bracket is behind, to the value that the step names.
inline bool json_enter_array(JsonCursor& cursor, const TextByte* path, const JsonStep& step) {
  uint64_t index = 0;
  for (uint64_t i = step.start; i < step.end; ++i) {
    const uint64_t digit = text_digit(text_at(path, i));
    if (digit > 9 || index > 0xffffffff) return false;
    index = index * 10 + digit;
  }
  cursor.skip_blanks();
  for (; index != 0; --index) {
    if (!cursor.skip_value()) return false;
    cursor.skip_blanks();
    if (!cursor.take(',')) return false;
    cursor.skip_blanks();
  }
  return cursor.current() != ']';
}

// Into the object whose opening brace is behind, to the value that the step names.
inline bool json_enter_object(JsonCursor& cursor, const TextByte* json, const TextByte* path,
                              const JsonStep& step) {
  while (true) {
    cursor.skip_blanks();
    if (!cursor.take('"')) return false;
    const uint64_t start = cursor.position();
    if (!cursor.skip_string()) return false;
    const uint64_t length = cursor.position() - 1 - start;
    bool same = length == step.end - step.start;
    for (uint64_t i = 0; same && i < length; ++i)
      same = text_at(json, start + i) == text_at(path, step.start + i);
    cursor.skip_blanks();
    if (!cursor.take(':')) return false;
    cursor.skip_blanks();
    if (same) return true;
    if (!cursor.skip_value()) return false;
    cursor.skip_blanks();
    if (!cursor.take(',')) return false;
  }
}

// false: there is no such element, or the text is none of JSON on the way to it.
inline bool text_json(TextByte* out, const TextByte* json, const TextByte* path, uint64_t size) {
  JsonCursor cursor(json, size);
  const uint64_t path_length = text_length(path, size);
  cursor.skip_blanks();
  for (uint64_t at = 0; at < path_length;) {
    JsonStep step{};
    if (!json_next_step(path, path_length, at, step)) return false;
    const bool found = cursor.take('[')   ? json_enter_array(cursor, path, step)
                       : cursor.take('{') ? json_enter_object(cursor, json, path, step)
                                          : false;
    if (!found) return false;
  }
  uint64_t start = cursor.position();
  const bool quoted = cursor.current() == '"';
  if (path_length == 0 || !cursor.skip_value()) return false;
  uint64_t end = cursor.position();
  if (quoted) ++start, --end;
  text_copy(out, json + start, end - start, size);
  return true;
}

}  // namespace trapline::wire
