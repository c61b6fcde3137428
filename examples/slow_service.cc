// Something for the watchdog to watch: ten queries, two of which are slow.

#include <unistd.h>

#include <iostream>

extern "C" [[gnu::noinline]] int query(int table, int rows) {
  if (rows > 1000) ::usleep(20000);
  return table * rows;
}

int main() {
  int sum = 0;
  for (int i = 1; i <= 10; ++i) sum += query(i, i % 5 == 0 ? 5000 : 10);
  std::cout << "sum " << sum << '\n';
}
