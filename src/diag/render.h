// Diagnostics as text: the form of a modern compiler, and the one-line form of the dtrace command.

#pragma once

#include <string>

#include "diag/diagnostic.h"
#include "diag/source.h"

namespace trapline::diag {

enum class Excerpt : std::uint8_t { kOmit, kShow };  // the source line with a caret under it
enum class Tags : std::uint8_t { kHide, kShow };     // "[D_TAG] ", option errtags

// file:line:column: error: text [D_TAG]
//    12 | trace(x;
//       |        ^
//   hint: ...
//   file:line:column: note: ...
std::string render(const SourceManager& sources, const Diagnostic& diagnostic);

// All of them in source order, with "N more errors" where the cap was reached.
std::string render_all(const SourceManager& sources, const Diagnostics& diagnostics);

// What follows the command's own words, on one line and without newline:
//   [D_SYNTAX] line 12: syntax error near "x"             a script
//   [D_SYNTAX] "lib.d", line 12: syntax error ...         a library, or text that a line marker
//   renamed [D_SYNTAX] in action list: syntax error ...           an argument of the command
std::string classic_text(const SourceManager& sources, const Diagnostic& diagnostic, Tags tags);

// The whole answer of the command to a program that does not compile. The first error is told as
// dtrace does:
//   dtrace: failed to compile script FILE: ...            a script
//   dtrace: invalid probe specifier TEXT: ...             an argument of the command
// the others, and warnings, in the form of render(). Excerpt::kShow adds source line, caret, hint
// and notes to each. `program` is "dtrace" or what argv[0] is; `specifier` is the argument as the
// user gave it, or the script's name.
std::string render_classic(const SourceManager& sources, const Diagnostics& diagnostics,
                           std::string_view program, SourceKind kind, std::string_view specifier,
                           Tags tags, Excerpt excerpt);

}  // namespace trapline::diag
