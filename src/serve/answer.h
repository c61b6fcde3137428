// Lines that go to the client: answers, failures, notifications.

#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trapline::serve {

// Why a request was not done, as the protocol has it.
enum class Kind : std::int16_t {
  kParse,
  kRequest,
  kMethod,
  kParameters,
  kCompile,
  kState,
  kPermission,
  kNotFound,
  kGone,
  kUnsupported,
  kOs,
  kInternal,
};

struct Failure {
  Kind kind = Kind::kInternal;
  std::string message;
  std::string data;  // more members of "data", as JSON: "\"rule\":\"yama\""; empty: none
};

// The result of a request, as a JSON object's text.
using Answer = std::expected<std::string, Failure>;

// What a Result's error is to the client; kBadInput is about the request's parameters.
Failure failure_of(const Error& error);

// `id` is JSON. All end in '\n'.
std::string answer_line(std::string_view id, std::string_view result);
std::string failure_line(std::string_view id, const Failure& failure);
// `members`: those of "params".
std::string notification_line(std::string_view method, std::string_view members);

// ["a","b"], of messages.
std::string json_list(const std::vector<std::string>& texts);

}  // namespace trapline::serve
