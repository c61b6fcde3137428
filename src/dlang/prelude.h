// The D library that every program begins with: what DTrace's own libraries say about the process
// and the thread that a probe fires in, as far as it can be known there.

#pragma once

#include <string_view>

namespace trapline::dlang {

// D source.
std::string_view prelude();

}  // namespace trapline::dlang
