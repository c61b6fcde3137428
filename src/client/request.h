// Requests as lines of JSON.

#pragma once

#include <trapline/trapline.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "client/failure.h"

namespace trapline::client {

// Writes one request. Members in any order; what is opened must be closed by the caller. Strings
// must be UTF-8: finish() tells if one was not.
class Request {
 public:
  Request(std::uint64_t id, std::string_view method);

  Request& key(std::string_view name);  // before each value within an object
  Request& text(std::string_view value);
  Request& integer(std::int64_t value);
  Request& boolean(bool value);
  Request& begin_object();
  Request& end_object();
  Request& begin_array();
  Request& end_array();

  // The line, ended by '\n'. ARGUMENT: a string is not UTF-8.
  Outcome<std::string> finish();

 private:
  void separate();

  std::string line_;
  bool needs_comma_ = false;
  bool invalid_ = false;
};

// Whether `text` is UTF-8 as RFC 3629 has it: no surrogates, no overlong forms.
bool is_utf8(std::string_view text);

}  // namespace trapline::client
