// The runtime's bitcode, embedded.

#pragma once

#include <string_view>

namespace trapline::codegen {

std::string_view runtime_bitcode();

}  // namespace trapline::codegen
