// Outcome<T>: what a fallible function of this module returns: a value, or a code of the public
// interface with its text. (base's Result has the codes of the tracer.)

#pragma once

#include <trapline/trapline.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace trapline::client {

struct Failure {
  trapline_error code = TRAPLINE_ERROR_INTERNAL;
  std::string text;
};

// A system call that gave -errno: "doing: reason".
Failure os_failure(std::string_view doing, long negative_errno);

template <typename T = void>
class [[nodiscard]] Outcome : public std::expected<T, Failure> {
 public:
  using std::expected<T, Failure>::expected;
  Outcome(Failure failure) : std::expected<T, Failure>(std::unexpect, std::move(failure)) {}
};

// Returns the failure of an Outcome to the caller, or goes on.
#define TC_TRY(expression)                                               \
  do {                                                                   \
    if (auto tc_outcome = (expression); !tc_outcome) {                   \
      return ::trapline::client::Failure(std::move(tc_outcome).error()); \
    }                                                                    \
  } while (false)

// Runs a public function's body: keeps the text of its failure for trapline_error_text(), and turns
// an exception (there is but one kind: out of memory) into a code.
trapline_error remember(Failure failure) noexcept;
trapline_error remember_out_of_memory() noexcept;
const char* remembered_text() noexcept;

template <typename Body>
trapline_error guarded(Body&& body) noexcept {
  try {
    Outcome<> outcome = body();
    if (outcome) return TRAPLINE_OK;
    return remember(std::move(outcome).error());
  } catch (...) {
    return remember_out_of_memory();
  }
}

}  // namespace trapline::client
