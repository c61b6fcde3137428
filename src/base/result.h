// Result<T>: what a fallible function returns.
//
// A Result carries a value or an Error. Callers branch on the error's code; its text is for people,
// and each layer adds in front what it was doing. kTargetGone is ordinary everywhere: a traced
// process may end at any moment, and callers end cleanly.

#pragma once

#include <cstdint>
#include <cstring>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace trapline {

enum class ErrorCode : std::uint8_t {
  kOs,           // a system call failed; see Error::os_errno
  kTargetGone,   // the traced process or thread has ended
  kPermission,   // the system does not allow it; the text names the rule and the way out
  kBadInput,     // what the user or a file gave us is wrong
  kUnsupported,  // understood, and not offered (yet)
  kTimeout,      // a bounded wait ran out
  kNotFound,     // no such process, file, symbol
  kInternal,     // a fault of our own
};

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string text, int os_errno = 0)
      : text_(std::move(text)), os_errno_(os_errno), code_(code) {}

  // The error of a system call that just failed: ESRCH becomes kTargetGone only where the caller
  // says so.
  static Error os(int err, std::string_view doing) {
    return {ErrorCode::kOs, std::string(doing) + ": " + std::strerror(err), err};
  }

  ErrorCode code() const { return code_; }
  int os_errno() const { return os_errno_; }  // 0: none
  const std::string& text() const { return text_; }

  // The same error with what the caller was doing in front: "arming pid 12: ...".
  Error within(std::string_view doing) const {
    return {code_, std::string(doing) + ": " + text_, os_errno_};
  }

 private:
  std::string text_;
  int os_errno_;
  ErrorCode code_;
};

template <typename T = void>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using std::expected<T, Error>::expected;
  Result(Error error) : std::expected<T, Error>(std::unexpect, std::move(error)) {}
};

#define TL_CONCAT_(a, b) a##b
#define TL_CONCAT(a, b) TL_CONCAT_(a, b)

// Returns the error of a Result<> expression to the caller, or goes on.
#define TL_TRY(expression) TL_TRY_(TL_CONCAT(tl_result_, __LINE__), expression)
#define TL_TRY_(name, expression)                        \
  do {                                                   \
    if (auto name = (expression); !name) {               \
      return ::trapline::Error(std::move(name).error()); \
    }                                                    \
  } while (false)

// TL_TRY_ASSIGN(auto x, f()): the value of a Result, or a return with its error.
#define TL_TRY_ASSIGN(declaration, expression) \
  TL_TRY_ASSIGN_(TL_CONCAT(tl_result_, __LINE__), declaration, expression)
#define TL_TRY_ASSIGN_(name, declaration, expression)           \
  auto name = (expression);                                     \
  if (!name) return ::trapline::Error(std::move(name).error()); \
  declaration = std::move(*name)

}  // namespace trapline
