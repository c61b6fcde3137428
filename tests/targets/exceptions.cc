// exceptions [--wait] [N]: N times an exception is thrown through three functions, caught, rethrown
// and caught again; then N times longjmp leaves three functions. Prints how often each function was
// entered, and how often the handlers ran, which no tracer may change.

#include <csetjmp>
#include <stdexcept>

#include "target.h"

static volatile long sink;
static volatile long
    entered;  // counted first in each, so that no call is among the first five bytes
static long caught, rethrown, jumped;
static std::jmp_buf place;

struct Guard {
  ~Guard() { sink = sink + 1; }
};

extern "C" PROBED void throw_inner(long i) {
  if (i >= 0) throw std::runtime_error("thrown");
}
extern "C" PROBED void throw_middle(long i) {
  entered = entered + 1;
  Guard guard;
  throw_inner(i);
  sink = sink + 2;
}
extern "C" PROBED void throw_outer(long i) {
  entered = entered + 1;
  try {
    throw_middle(i);
    sink = sink + 3;
  } catch (const std::runtime_error&) {
    ++rethrown;
    throw;
  }
}

extern "C" PROBED void jump_inner(long i) {
  if (i >= 0) std::longjmp(place, 1);
}
extern "C" PROBED void jump_middle(long i) {
  entered = entered + 1;
  jump_inner(i);
  sink = sink + 4;
}
extern "C" PROBED void jump_outer(long i) {
  entered = entered + 1;
  jump_middle(i);
  sink = sink + 5;
}
extern "C" PROBED void catch_one(long i) {
  entered = entered + 1;
  try {
    throw_outer(i);
  } catch (const std::exception& e) {
    caught += e.what()[0] == 't';
  }
}
extern "C" PROBED void land_one(long i) {
  entered = entered + 1;
  if (setjmp(place) == 0) {
    jump_outer(i);
  } else {
    ++jumped;
  }
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long n = number_argument(argc, argv, 1, 1000);
  for (long i = 0; i < n; ++i) catch_one(i);
  for (long i = 0; i < n; ++i) land_one(i);
  put_count("caught", caught);
  put_count("rethrown", rethrown);
  put_count("destroyed", sink);
  put_count("jumped", jumped);
  return 0;
}
