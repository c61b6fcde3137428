// trapline/testing.hpp with Catch2.

#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#include <cstdlib>
#include <trapline/testing.hpp>
#include <vector>

#include "probed.h"

PROBED int probed_caught(int number) {
  keep(number);
  return number + 1;
}

TEST_CASE("no allocations") {
  std::vector<int> numbers;
  numbers.reserve(10);
  CHECK_NO_ALLOCATIONS { numbers.push_back(1); }
  CHECK_NO_ALLOCATIONS_IN_ANY_THREAD { numbers.push_back(1); }
}

TEST_CASE("so many calls") {
  CHECK_CALLS("a.out", "probed_caught", 2) {
    probed_caught(1);
    probed_caught(2);
  }
  CHECK_CALLS_IN_ALL_THREADS("a.out", "probed_caught", 1) { probed_caught(1); }
  CHECK(1 == trapline::testing::count_calls("a.out", "probed_caught", [] { probed_caught(1); }));
}

TEST_CASE("an allocation is told", "[!shouldfail]") {
  CHECK_NO_ALLOCATIONS {
    void* volatile block = std::malloc(10);
    std::free(block);
  }
}

TEST_CASE("a call too few is told", "[!shouldfail]") {
  CHECK_CALLS("a.out", "probed_caught", 1) {}
}
