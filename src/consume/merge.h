// Puts the records of several threads into one sequence by time stamp.

#pragma once

#include <vector>

#include "consume/record.h"

namespace trapline::consume {

// The order within a source is kept whatever its time stamps say; among the sources' next records
// the earliest goes first, the lower source on a tie.
std::vector<Record> merge_by_time(std::vector<std::vector<Record>> sources);

}  // namespace trapline::consume
