#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace trapline {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "trapline: internal error: %s does not hold at %s:%d\n", condition, file,
               line);
  std::abort();
}

}  // namespace trapline
