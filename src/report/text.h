// Building text: printf-like appending, hex dumps, escapes.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trapline::report {

// printf onto the end of a string. Text of any length; a NUL that "%c" makes is kept.
[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...);

// DTrace's dump of bytes: 16 a row, offsets and characters beside them, a newline before and after.
// Nothing for no bytes.
void append_hex_dump(std::string& out, std::string_view bytes);

// Bytes up to a NUL with C escapes for what is not printable; the NUL itself as "\0" if there is
// one.
std::string escape(std::string_view bytes);

// Bytes as DTrace's default printa() shows a key: as text, left-justified in `width` columns, where
// all are printable (up to NULs at the end), else as a hex dump.
void append_bytes(std::string& out, std::string_view bytes, int width);

}  // namespace trapline::report
