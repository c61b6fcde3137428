#include "client/request.h"

#include <cstdio>

namespace trapline::client {

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xc2 && first < 0xe0   ? 2
                               : first >= 0xe0 && first < 0xf0 ? 3
                               : first >= 0xf0 && first < 0xf5 ? 4
                                                               : 0;
    if (length == 0) return false;
    const unsigned least = first == 0xe0 ? 0xa0u : first == 0xf0 ? 0x90u : 0x80u;
    const unsigned greatest = first == 0xed ? 0x9fu : first == 0xf4 ? 0x8fu : 0xbfu;
    if (byte(i + 1) < least || byte(i + 1) > greatest) return false;
    for (std::size_t k = 2; k < length; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xbf) return false;
    }
    i += length;
  }
  return true;
}

Request::Request(std::uint64_t id, std::string_view method)
    : line_("{\"jsonrpc\":\"2.0\",\"id\":" + std::to_string(id) + ",\"method\":\"" +
            std::string(method) + "\",\"params\":") {
  begin_object();
}

void Request::separate() {
  if (needs_comma_) line_ += ',';
  needs_comma_ = true;
}

Request& Request::key(std::string_view name) {
  text(name);
  line_ += ':';
  needs_comma_ = false;
  return *this;
}

Request& Request::text(std::string_view value) {
  separate();
  if (!is_utf8(value)) invalid_ = true;
  line_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line_ += '\\';
      line_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      line_ += escaped;
    } else {
      line_ += c;
    }
  }
  line_ += '"';
  return *this;
}

Request& Request::integer(std::int64_t value) {
  separate();
  line_ += std::to_string(value);
  return *this;
}

Request& Request::boolean(bool value) {
  separate();
  line_ += value ? "true" : "false";
  return *this;
}

Request& Request::begin_object() {
  separate();
  line_ += '{';
  needs_comma_ = false;
  return *this;
}

Request& Request::end_object() {
  line_ += '}';
  needs_comma_ = true;
  return *this;
}

Request& Request::begin_array() {
  separate();
  line_ += '[';
  needs_comma_ = false;
  return *this;
}

Request& Request::end_array() {
  line_ += ']';
  needs_comma_ = true;
  return *this;
}

Outcome<std::string> Request::finish() {
  if (invalid_) return Failure{TRAPLINE_ERROR_ARGUMENT, "a text is not UTF-8"};
  end_object();
  line_ += "}\n";
  return std::move(line_);
}

}  // namespace trapline::client
