// Reading D scripts, through the system's C preprocessor where -C asks for it.

#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/options.h"

namespace trapline::session {

// Scripts larger than this are refused, in bytes.
inline constexpr std::size_t kLargestScript = 64 * 1024 * 1024;

// The text of a script; "-" reads standard input. Errors: kOs with the file's name, kBadInput for a
// folder or a file that is too large.
Result<std::string> read_script(const std::string& path);

// What cpp(1) makes of `text`, which came from `path`: options cpppath, cppargs, cpphdrs, stdc; -D,
// -U and -I in `cpp_arguments`, in their order. cpp's own messages go to our standard error.
// Errors: kOs, or kBadInput when cpp failed.
Result<std::string> preprocess(const std::string& text, const std::string& path,
                               const plan::Options& options,
                               const std::vector<std::string>& cpp_arguments);

}  // namespace trapline::session
