// C++ names, exceptions with landing pads, aliases.

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace fixture {

struct Shape {
  explicit Shape(int s) : sides(s) {}
  [[gnu::noinline]] int area(int factor) const;
  int sides;
};

int Shape::area(int factor) const { return sides * factor + 1; }

template <typename T>
[[gnu::noinline]] T twice(T value) {
  return value + value;
}
template int twice<int>(int);
template double twice<double>(double);

}  // namespace fixture

extern "C" {

int fixture_checked(const char* text, int n) { return n * 3 + text[0]; }

int fixture_catching(int n) {
  try {
    std::string guarded(static_cast<std::size_t>(n), 'x');
    if (n > 100) throw std::runtime_error(guarded);
    return std::atoi(guarded.c_str());
  } catch (const std::runtime_error&) {
    return -1;
  }
}

int fixture_original(int n) { return n + 7; }
int fixture_alias(int n) __attribute__((alias("fixture_original")));
int __fixture_alias(int n) __attribute__((weak, alias("fixture_original")));
}
