// The names that D itself defines: built-in variables, subroutines, actions, aggregating functions;
// their types.
//
// Prototypes are DTrace's documented ones. A name being here means that its uses are checked;
// whether Trapline can run it is decided when it is lowered.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ctypes/type.h"
#include "plan/plan.h"

namespace trapline::dlang {

enum class FunctionKind : std::uint8_t { kSubroutine, kAction, kAggregating };

// Those that lowering or special checks know by name.
enum class FunctionId : std::uint8_t {
  kOther,
  kAlloca,
  kBasename,
  kBcopy,
  kChill,
  kCleanpath,
  kClear,
  kCommit,
  kCopyinto,
  kCopyout,
  kCopyoutstr,
  kDirname,
  kFtruncate,
  kGetmajor,
  kGetminor,
  kIndex,
  kInetNtoa,
  kInetNtoa6,
  kInetNtop,
  kJson,
  kLinkNtop,
  kLltostr,
  kProgenyof,
  kRand,
  kRindex,
  kSpeculation,
  kStop,
  kStrchr,
  kStrrchr,
  kStrstr,
  kStrtok,
  kStrtoll,
  kSubstr,
  kSwap16,
  kSwap32,
  kSwap64,
  kToLower,
  kToUpper,
  kCopyin,
  kCopyinstr,
  kDenormalize,
  kDiscard,
  kExit,
  kFreopen,
  kJstack,
  kNormalize,
  kPrint,
  kPrinta,
  kPrintf,
  kRaise,
  kSetopt,
  kSpeculate,
  kStack,
  kStrjoin,
  kStrlen,
  kSystem,
  kTrace,
  kTracemem,
  kTrunc,
  kUstack,
  kAvg,
  kCount,
  kLlquantize,
  kLquantize,
  kMax,
  kMin,
  kQuantize,
  kStddev,
  kSum,
  kDestructive,  // any other action that changes the traced process or the system
};

struct FunctionInfo {
  std::string_view name;
  FunctionKind kind = FunctionKind::kSubroutine;
  FunctionId id = FunctionId::kOther;
  std::string_view result;  // a type, as parse_prototype_type() reads it
  std::string_view
      parameters;  // comma-separated; "@" is any type, "[T]" may be left out, "..." anything
};

struct BuiltinVariable {
  std::string_view name;
  std::string_view type;
  // What it lowers to: an argument, a built-in, or neither (not offered).
  int argument = -1;
  std::optional<plan::Builtin> builtin;
};

// An integer constant of the D libraries: signals, error numbers, open flags.
struct NamedConstant {
  std::string_view name;
  std::int32_t value;
};

// nullptr: no such name.
const FunctionInfo* find_function(std::string_view name);
const BuiltinVariable* find_builtin(std::string_view name);
const NamedConstant* find_constant(std::string_view name);

// An element of uregs[].
const BuiltinVariable& register_builtin();

std::span<const FunctionInfo> all_functions();
std::span<const BuiltinVariable> all_builtins();

// "const char *", "uint32_t", "struct path *": tags that the table does not know become incomplete
// ones.
ctypes::TypeId parse_prototype_type(ctypes::TypeTable& table, std::string_view text);

}  // namespace trapline::dlang
