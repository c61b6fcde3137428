// Pieces of JSON text.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trapline::report {

__extension__ using Wide = __int128;

// A number up to 2^53 in magnitude, else {"integer":"..."}, the decimal digits: no reader may round
// it.
std::string json_integer(std::int64_t value);
std::string json_unsigned(std::uint64_t value);
std::string json_wide(Wide value);

// A JSON string if the bytes are UTF-8, else json_hex.
std::string json_string(std::string_view bytes);
// {"hex":"00ff"}
std::string json_hex(std::string_view bytes);
// A JSON string whatever the bytes are: what is not UTF-8 becomes U+FFFD. For messages.
std::string json_message(std::string_view bytes);

std::string decimal(unsigned __int128 value);

}  // namespace trapline::report
