// TL_CHECK: an invariant of our own code, kept in release builds. No input may trip it.

#pragma once

namespace trapline {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace trapline

#define TL_CHECK(condition) \
  ((condition) ? (void)0 : ::trapline::check_failed(#condition, __FILE__, __LINE__))
