// The few statistics that the benchmarks report.

#pragma once

#include <vector>

namespace trapline::bench {

struct Summary {
  double median = 0;
  double low = 0;   // first quartile
  double high = 0;  // third quartile
};

// Of no values: all zero.
Summary summarize(std::vector<double> values);

}  // namespace trapline::bench
