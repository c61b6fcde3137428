// From D text to a syntax tree.
//
// A parser by recursive descent over tokens that the lexer makes on demand, as D's tokens depend on
// where one is: a probe description (`pid$target:libc.so.6::entry`) is one token outside of clauses
// and nonsense inside them. Mistakes become diagnostics; the parser goes on after the next `;` or
// `}`.
//
// Grammar: Oracle's DTrace for Linux 2.0, with quoted function names as an extension.
// Limits: nesting of kMaxNesting, trees of kMaxTreeDepth; deeper programs are refused with a
// diagnostic.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diag/diagnostic.h"
#include "diag/source.h"
#include "dlang/ast.h"

namespace trapline::dlang {

inline constexpr std::uint32_t kMaxNesting =
    256;  // parentheses, operators without end, declarators within declarators

// What stands for $name and $1.
struct Macros {
  // $0, $1, ...: [0] is the script's name, or the command's for an argument of it.
  std::vector<std::string> arguments;
  // "pid", "ppid", "uid", "gid", "euid", "egid", "pgid", "sid", "projid", "taskid", "target". A
  // name that is missing here is D_MACRO_UNDEF where it is used.
  std::map<std::string, std::int64_t, std::less<>> variables;
};

// Which part a description with fewer than four parts ends with (-n, -P, -m, -f), or a number (-i).
enum class DescriptionKind : std::uint8_t { kName, kProvider, kModule, kFunction, kId };

// Names that are types, so that `(name)x` is a cast. Kept by the caller across the programs and
// libraries of a session; declarations add to it.
class TypeNames {
 public:
  TypeNames();  // D's own: int8_t ... uint64_t, size_t, pid_t, uchar_t, ... as in ctypes::TypeTable
  bool contains(std::string_view name) const { return names_.contains(name); }
  void add(std::string_view name) { names_.emplace(name); }

 private:
  std::set<std::string, std::less<>> names_;
};

struct ParseRequest {
  diag::SourceId source = diag::kNoSource;
  DescriptionKind kind = DescriptionKind::kName;
  const Macros* macros = nullptr;  // nullptr: none are defined
  TypeNames* types = nullptr;      // nullptr: D's own, for this parse only
  // Whether a name is a type elsewhere: in the checker's ctypes::TypeTable, in the traced program.
  // Asked only where it matters, and not for D's built-in variables.
  std::function<bool(std::string_view)> is_type;
  bool default_arguments = false;    // option defaultargs: a missing $1 is 0 (and $$1 "")
  bool unused_arguments_ok = false;  // option argref
  bool empty_ok = false;             // option empty
  bool prefer_descriptions =
      false;  // option pspec, and every argument of the command: `foo*` is a probe, not a type
};

struct ParseResult {
  std::unique_ptr<Program> program;  // never null; what could be parsed, also after errors
  std::vector<bool> arguments_used;  // as many as Macros::arguments
  bool default_arguments = false;    // also from pragmas
  bool unused_arguments_ok = false;
  bool empty_ok = false;
};

// Parses a program. Line markers and macro uses are recorded in `sources`. Reports D_EMPTY and
// D_MACRO_UNUSED (the last argument, as DTrace does) unless told otherwise.
ParseResult parse(const ParseRequest& request, diag::SourceManager& sources,
                  diag::Diagnostics& diagnostics);

// Parses one expression, one type; the whole source. nullptr after errors. Ids of the expression
// count from 0.
ExpressionPtr parse_expression(const ParseRequest& request, diag::SourceManager& sources,
                               diag::Diagnostics& diagnostics);
TypeNamePtr parse_type_name(const ParseRequest& request, diag::SourceManager& sources,
                            diag::Diagnostics& diagnostics);

}  // namespace trapline::dlang
