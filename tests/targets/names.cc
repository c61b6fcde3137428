// names [--wait]: functions whose names are each other's beginnings, overloads, namespaces,
// templates, clones. main_test() runs twice, overload(int) 3 times, overload(double) 4 times,
// shapes::Square::area 5 times, largest<int> 6 times.

#include "target.h"

static volatile long sink;

extern "C" PROBED void main_test(int v) { sink = sink + v; }
PROBED void overload(int v) { sink = sink + v; }
PROBED void overload(double v) { sink = sink + static_cast<long>(v); }

namespace shapes {
class Square {
 public:
  explicit Square(long side) : side_(side) {}
  PROBED long area() const { return side_ * side_; }

 private:
  long side_;
};
}  // namespace shapes

template <typename T>
PROBED T largest(T a, T b) {
  return a > b ? a : b;
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  for (int i = 0; i < 2; ++i) main_test(i);
  for (int i = 0; i < 3; ++i) overload(i);
  for (int i = 0; i < 4; ++i) overload(i + 0.5);
  for (int i = 0; i < 5; ++i) sink = sink + shapes::Square(i).area();
  for (int i = 0; i < 6; ++i) sink = sink + largest<int>(i, 3);
  put("main_test 2\noverload(int) 3\noverload(double) 4\narea 5\nlargest 6\n");
  return 0;
}
