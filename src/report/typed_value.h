// print(): what lies at an address, as a tree of members.
//
//   0x7f12 = *
//                                               (struct point) {
//                                                .x = (int)1,
//                                               }
//
// Members that are all zero are left out. Bytes that were not recorded (option printsize) show as
// "...". The layout is Oracle's DTrace's.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ctypes/type.h"

namespace trapline::report {

std::string typed_value_text(const ctypes::TypeTable& types, ctypes::TypeId type,
                             std::uint64_t address, std::string_view bytes);

}  // namespace trapline::report
