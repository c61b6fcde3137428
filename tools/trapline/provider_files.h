// What a program with probes of its own is built with: -h writes the header, -G the object file
// (src/usdt). No process is traced.

#pragma once

#include <string>

#include "command_line.h"

namespace trapline::tool {

// Each returns the command's exit status.
int write_header(const CommandLine& command);
int write_object(const CommandLine& command);

// "dir/prov.d": prov.h; "": the script's name does not end in .d, or there is no script.
std::string output_name(const SourceArgument& source, char extension);

}  // namespace trapline::tool
