// provider:module:function:name, as written in a program, to its parts.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "dlang/ast.h"
#include "dlang/parser.h"

namespace trapline::dlang {

// The value of $name (given without '$'); false: undefined.
using MacroLookup = std::function<bool(std::string_view name, std::string& value)>;

struct DescriptionResult {
  ProbeDescription probe;  // without range
  std::string problem;     // empty: none
  std::string hint;
};

// Parts are filled from the right: a description of `kind` kName ends with the name, of kFunction
// with the function. Macros stand anywhere in a part; their values are not split again. A part may
// be written in quotes; within them `\"` and `\\` stand for the character, and `:` and `$` for
// themselves.
DescriptionResult parse_description(std::string_view text, DescriptionKind kind,
                                    const MacroLookup& lookup);

}  // namespace trapline::dlang
