// The syntax tree as text: for -x tree and for tests.

#pragma once

#include <string>

#include "dlang/ast.h"

namespace trapline::dlang {

// One node a line, indented by two blanks a level.
std::string print_tree(const Program& program);

// One line: every operation in parentheses, names and constants as D writes them: "(= x (+ 1 y))".
std::string to_text(const Expression& expression);
std::string to_text(const TypeName& type);
std::string to_text(const Specifiers& specifiers);
// In words, from the name outwards: "a: array 3 of pointer to int".
std::string to_text(const Specifiers& specifiers, const Declarator& declarator);
std::string to_text(const ProbeDescription& probe);  // provider:module:function:name

}  // namespace trapline::dlang
