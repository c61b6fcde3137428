// The plan: a lowered, typed probe program. The seam between the front end and everything that runs
// or decodes.
//
// dlang makes a Program out of D text. codegen turns its clauses into machine code, interp
// evaluates them, consume decodes what they recorded, report prints it. None of these knows
// another.
//
// Code is a list of instructions over 64-bit registers; jumps go forward only, so every clause
// ends. A clause is its predicate, kReserve, its statements. Semantics that all engines share:
//   - Integers are 64-bit two's complement and wrap. A narrower type's value is kept extended by
//   its signedness
//     (kExtend). Shifts use the low 6 bits of the count. Division by zero is a fault; INT64_MIN /
//     -1 is INT64_MIN and INT64_MIN % -1 is 0.
//   - A string register holds 0, which is NULL, or the address of NUL-terminated bytes, at most
//     Program::strsize with the NUL, in memory of ours: a constant, a variable, or scratch. Never
//     the traced process's own memory. NULL may be stored and compared (it is less than any
//     string); every other use of it is a fault, kBadAddress.
//   - A pointer register holds an address in the traced process or of ours. Instructions that read
//     or write memory check it and fault (kBadAddress) instead of crashing. Of ours can be read:
//     constants, variables, static scratch, and what the clause has taken of the dynamic scratch.
//     Variables and scratch can be written; the traced process's memory by kCopyOut alone.
//   - A fault ends the clause: its record is thrown away, aggregations and assignments done before
//   stay, a fault
//     record is written, and the probe's next clause runs. The tracer then runs the ERROR probe's
//     clauses.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctypes/type.h"
#include "plan/provider.h"

namespace trapline::plan {

using Reg = std::uint32_t;
inline constexpr Reg kNoReg = ~Reg{0};
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Values as DTrace's ERROR probe reports them (arg4).
enum class Fault : std::uint32_t {
  kNoFault = 0,
  kBadAddress = 1,
  kBadAlignment = 2,
  kIllegalOperation = 3,
  kDivideByZero = 4,
  kNoScratch = 5,
  kKernelPrivilege = 6,
  kUserPrivilege = 7,
  kTupleOverflow = 8,
  kBadStack = 9,
  kBadSize = 10,
  kBadIndex = 11,
};

// ---------------------------------------------------------------------------- values and variables

enum class ValueKind : std::uint8_t { kInteger, kString, kBytes };

// The machine's view of a value: what a key component, a field or a variable holds.
struct ValueType {
  ValueKind kind = ValueKind::kInteger;
  bool is_signed = true;    // kInteger
  std::uint32_t size = 8;   // bytes: 1, 2, 4, 8 for integers; strsize for strings; any for bytes
  bool is_pointer = false;  // kInteger that D's type system calls a pointer
  bool is_char = false;     // kInteger of type char
  bool is_float = false;    // kBytes that are a float (4), double (8) or long double (16)
  auto operator<=>(const ValueType&) const = default;
};

enum class Scope : std::uint8_t { kGlobal, kSelf, kThis };

// A scalar or associative variable. A string is stored with a byte in front that is 0 for NULL, 1
// else: memory that nobody has written is NULL. `offset` of a scalar is from the start of its
// scope's area: the arena's globals, the slot's self area, or (kThis) the level's scratch. An
// associative array (kGlobal and kSelf) is a table in the globals, see wire/dynvar.h; `keys` gives
// the types of its tuple.
struct Variable {
  std::string name;
  Scope scope = Scope::kGlobal;
  ValueType type;
  bool is_array = false;
  std::vector<ValueType> keys;
  std::uint64_t offset = 0;
  std::uint32_t capacity = 0;   // arrays: number of cells, a power of two
  std::uint32_t cell_size = 0;  // arrays: bytes a cell, header included
};

enum class AggregationKind : std::uint8_t {
  kCount,
  kSum,
  kMin,
  kMax,
  kAvg,
  kStddev,
  kQuantize,
  kLquantize,
  kLlquantize,
};

// An aggregation `@name[keys]`. Where its counters live (see wire/arena.h):
//   - direct (no keys; count, sum and the histograms): `direct_words` 64-bit cells in the slot, at
//   `direct_offset`
//     from the slot's direct area. Count: one cell. Others: cell 0 is set to 1 by each update, the
//     rest are the sum or the bins.
//   - else a table entry of `value_words` words: count {n}, sum {s}, min {v}, max {v}, avg {n,
//   sum},
//     stddev {n, sum, low and high half of the 128-bit sum of squares}, histograms {bins}.
//   - sparse (histograms of more than kMaxDenseBins bins): a table entry a bin, whose key has the
//   bin's index as one
//     more word at its end and whose value is {weight}; never direct.
struct Aggregation {
  std::string name;  // without '@'; empty for the unnamed one
  AggregationKind kind = AggregationKind::kCount;
  std::vector<ValueType> keys;
  // lquantize: base, step, levels. llquantize: factor, low magnitude, high magnitude, steps
  // (Oracle's).
  std::int64_t parameters[4] = {};
  // Option aggpercpu: the last of `keys` is the processor that an update was made on. It is not
  // part of what is printed as the key (printed_keys()).
  bool per_processor = false;
  std::uint32_t bins = 0;  // histograms: 127, levels + 2, or wire::llquantize_bins
  bool direct = false;
  bool sparse = false;
  std::uint32_t direct_offset = 0;  // bytes
  std::uint32_t direct_words = 0;
  std::uint32_t value_words = 0;
};
inline constexpr std::uint32_t kMaxDenseBins = 1024;
constexpr std::size_t printed_keys(const Aggregation& aggregation) {
  return aggregation.keys.size() - (aggregation.per_processor ? 1 : 0);
}

// ------------------------------------------------------------------------------------ instructions

enum class Builtin : std::uint8_t {
  // integers
  kPid,
  kPpid,
  kTid,
  kUid,
  kGid,
  kCpu,
  kProbeId,
  kTimestamp,
  kWallTimestamp,
  kVirtualTimestamp,
  kErrno,           // of the system call that the probe is in: 0 outside of one
  kRandom,          // 31 bits that nobody can foresee, other ones each time
  kEpid,            // identifies the probe and the clause
  kUserCaller,      // where the function returns to; of an instruction within it: kBadStack
  kUserStackDepth,  // frames of the stack; in the tracer's own probes, else as above
  kProcessGroup,    // this and the next: in the tracer alone
  kPriority,        // of the thread, as the kernel has it
  // strings
  kExecname,
  kProbeProvider,
  kProbeModule,
  kProbeFunction,
  kProbeName,
};

enum class Op : std::uint8_t {
  kConst,   // dst = immediate
  kString,  // dst = address of string constant number `immediate`
  kMove,    // dst = a
  kAdd,
  kSub,
  kMul,
  kDivSigned,
  kDivUnsigned,
  kRemSigned,
  kRemUnsigned,  // dst = a op b
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRight,
  kShiftRightSigned,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kLessUnsigned,
  kLessEqualUnsigned,  // dst = 0 or 1
  kNegate,
  kComplement,
  kExtend,         // dst = low `size` bytes of a, extended by `is_signed`
  kCompareString,  // dst = -1, 0, 1: bytewise comparison of strings a and b
  kJump,           // to instruction `target`
  kJumpIfZero,     // if a == 0
  kJumpIfNotZero,
  kArgument,  // dst = arg<immediate>, 0 to 9, as the probe's kind defines it
  kBuiltin,   // dst = Builtin(immediate)
  kRegister,  // dst = a register of user mode, number `immediate` (plan/registers.h), in the tracer
              // alone; faults kIllegalOperation where it is not known
  kLoad,      // dst = scalar `variable`; of a string or bytes the address in its storage
  kStore,     // scalar `variable` = a; strings are copied up to strsize and stay terminated
  // dst = variable[operands]; 0, NULL, or zero bytes, where there is none. `scratch` is room for
  // the key (key_area() of plan/layout.h, a self array's thread id included) and, right behind it,
  // for a copy of a string or bytes (stored_size()).
  kLoadElement,
  kStoreElement,   // variable[operands] = a; storing an integer 0 removes the element
  kRemoveElement,  // removes variable[operands], of any type
  kLoadMemory,     // dst = `size` bytes at address a (scratch or the traced process), extended by
                   // `is_signed`
  kStoreMemory,    // the `size` low bytes of b go to address a
  kStoreString,    // string b (cut to `immediate` bytes, NUL included) goes to address a
  kCopyMemory,     // b bytes from address a go to the address in operands[0]. kBadSize: the
                   // destination begins in memory that can be written, and ends outside
  kCopyOut,        // the same; the destination is in the traced process
  kCopyOutString,  // the string at address a, cut to b bytes, goes to operands[0] there
  kAlloca,         // dst = address of a fresh bytes of dynamic scratch, all 0; faults kNoScratch
  // dst = address of fresh scratch with b bytes copied from a; faults kBadAddress, kNoScratch. With
  // `scratch`: the bytes go there, and more than `immediate` of them are a fault, kBadSize.
  kCopyIn,
  kCopyInString,  // dst = string copied from a (the traced process or scratch), at most min(b,
                  // strsize) bytes (b = kNoReg: strsize)
  kStringLength,  // dst = strlen(a)
  kStringJoin,    // dst = a followed by b, cut at strsize - 1
  kCall,          // dst = Routine(immediate) of operands; a string result lies in `scratch`
  kCheckIndex,    // faults kBadIndex unless 0 <= a < immediate
  kByteSwap,      // dst = the low `size` bytes of a in reverse order
  kReserve,       // the predicate held: room for the record is taken; if there is none, a drop is
                  // counted and the clause ends
  kField,         // field number `immediate` of the record = a
  kSpeculation,   // dst = the number of a free speculation, from 1 on, now active; 0: none
  // The record of this clause is speculative: it belongs to speculation a. One that is not active
  // ends the clause, whose record is given back. In the next two a number beyond
  // Program::speculations is a fault, kIllegalOperation.
  kSpeculate,
  kCommit,     // the records of speculation a are to be printed
  kDiscard,    // ... to be forgotten
  kRaise,      // sends signal a to the process that the probe fired in
  kStop,       // stops it
  kChill,      // spins for a nanoseconds; more than kMaxChill are a fault, kIllegalOperation
  kAggregate,  // aggregation `variable` [operands]: value a (kNoReg for count), weight b (kNoReg:
               // 1)
  kExit,       // exit(a): once the clause has ended well (a fault undoes it) tracing ends, and the
               // probe's later clauses do not run
  kEnd,        // ends the clause: the record is committed (if kReserve was reached)
};

// What kCall computes. Strings are `t`, numbers `n`, addresses of bytes of ours `a`; in brackets:
// kNoReg where it is missing.
enum class Routine : std::uint8_t {
  kStrchr,     // t = (t, n)
  kStrrchr,    // t = (t, n)
  kStrstr,     // t = (t, t)
  kStrtok,     // t = (t or 0 to go on, t, a: wire::TokenState and strsize bytes)
  kSubstr,     // t = (t, n, [n])
  kIndex,      // n = (t, t, [n])
  kRindex,     // n = (t, t, [n])
  kBasename,   // t = (t)
  kDirname,    // t = (t)
  kCleanpath,  // t = (t)
  kLltostr,    // t = (n, n)
  kStrtoll,    // n = (t, n)
  kToLower,    // t = (t)
  kToUpper,    // t = (t)
  kInetNtoa,   // t = (a: 4 bytes)
  kInetNtoa6,  // t = (a: 16 bytes, n)
  kInetNtop,   // t = (n: AF_INET or AF_INET6, a: 16 bytes)
  kLinkNtop,   // t = (n: ARPHRD_ETHER or ARPHRD_INFINIBAND, a: 20 bytes)
  kProgenyof,  // n = (n)
  kJson,       // t = (t, t)
};
inline constexpr std::size_t kRoutines = 20;
inline constexpr std::int64_t kMaxChill = 500'000'000;
inline constexpr std::uint64_t kMaxCopyOut = std::uint64_t{1} << 20;  // bytes; more: kBadSize

struct RoutineInfo {
  std::string_view name;
  std::string_view
      operands;  // a letter each; T: a string or NULL; the one behind '?' may be missing
  char result;   // 't' or 'n'
};
const RoutineInfo& routine_info(Routine routine);

struct Operand {
  Reg reg = kNoReg;
  ValueType type;
};

struct Instruction {
  Op op = Op::kEnd;
  bool is_signed = false;  // kExtend, kLoadMemory
  std::uint8_t size = 8;   // kExtend, kLoadMemory
  Reg dst = kNoReg;
  Reg a = kNoReg;
  Reg b = kNoReg;
  std::int64_t immediate = 0;
  std::uint32_t target = kNone;    // jumps: index of an instruction further down
  std::uint32_t variable = kNone;  // index of a variable or an aggregation
  std::uint32_t scratch =
      kNone;  // offset in the level's scratch of the result or of the key being built
  std::vector<Operand> operands;  // keys
  std::uint32_t line = 0;         // of the D source
};

// ---------------------------------------------------------------------------------------- records:
// what clauses report

// One value in a clause's record. `offset` is from the end of wire::RecordHeader. A string is
// terminated within its size; what follows the NUL is undefined.
struct Field {
  std::uint32_t offset = 0;
  ValueType type;
};

// A conversion or literal text of a printf or printa format.
struct FormatItem {
  std::string text;     // literal text, escapes resolved; with conversion == 0
  char conversion = 0;  // d i o u x X c s p ...; '@' never: see is_aggregation
  std::string length;   // "", h, hh, l, ll, j, z, t, L, w
  std::string flags;    // a subset of "-+ #0'?"
  int width = -1;       // -1: none, -2: dynamic, taken from field `width_field`
  int precision = -1;   // likewise
  std::uint32_t width_field = kNone;
  std::uint32_t precision_field = kNone;
  // printf: index into Clause::fields; printa: of the key component. width_field and
  // precision_field likewise.
  std::uint32_t value = kNone;
  bool is_aggregation =
      false;  // printa's %@...: the value of an aggregation, the `value`-th of the call
};

enum class ActionKind : std::uint8_t {
  kPrintf,       // format over fields
  kTrace,        // the field as trace() prints it
  kPrinta,       // aggregations, with or without format
  kNormalize,    // aggregation, field: divisor
  kDenormalize,  // aggregation
  kClear,        // aggregation
  kTruncate,     // aggregation, optional field: how many to keep, negative from the low end
  kExit,         // field: the exit status
  kTracemem,     // field: the bytes; optional field: how many of them to show
  kPrint,        // fields: the address, the bytes; `type`: of what lies there
  kSystem,       // format over fields: a command for the shell
  kFreopen,      // format over fields: where output goes from now on; empty: back
  kFtruncate,    // the output file is emptied
  kSetopt,       // fields: an option's name, and optionally its value
  kCommit,       // field: what kCommit gave
  kDiscard,      // field: what kDiscard gave
};

// What the tracer does for a record, in source order.
struct Action {
  ActionKind kind = ActionKind::kTrace;
  bool has_format = false;
  std::vector<FormatItem> format;
  std::vector<std::uint32_t> fields;        // indices into Clause::fields
  std::vector<std::uint32_t> aggregations;  // indices into Program::aggregations
  ctypes::TypeId type = ctypes::kVoid;      // kPrint: in Program::types
};

// ---------------------------------------------------------------------------- clauses, the program

// One probe description, as written, with macros expanded. Empty parts match all; parts are globs.
struct ProbeDescription {
  std::string provider;  // "pid1234" once $target is known
  std::string module;
  std::string function;
  std::string name;
  std::string text;  // as the user wrote it, for messages
  std::uint32_t line = 0;
  std::uint32_t id = 0;  // by number (-i, or a number in the program); 0: by name
  bool quoted = false;   // the function was written in quotes: a demangled name, matched in full
};

struct Clause {
  std::uint32_t source = 0;  // index of the D text that it stands in, in the order of the request
  std::vector<ProbeDescription> probes;
  std::vector<Instruction> code;
  std::uint32_t register_count = 0;
  std::uint32_t this_size = 0;     // always Program::this_size
  std::uint32_t scratch_size = 0;  // static scratch of this clause, the this area included
  std::vector<Field> fields;
  std::uint32_t record_size = 0;  // bytes of payload; 0 with has_record: a bare record
  bool has_record =
      false;  // data is recorded, or the body is empty (the default action): a firing is printed
  std::vector<Action> actions;
  std::uint32_t line = 0;
};

struct Program {
  std::vector<std::string> strings;  // constants, without the NUL
  std::vector<Variable> variables;
  std::vector<Aggregation> aggregations;
  std::vector<Clause> clauses;  // in source order, the order in which they run
  std::vector<Provider> providers;
  std::uint32_t globals_size = 0;  // scalars and associative arrays
  std::uint32_t self_size = 0;
  std::uint32_t this_size = 0;
  std::uint32_t direct_size = 0;  // bytes of direct cells a slot
  std::uint32_t strsize = 256;
  std::uint32_t scratchsize = 256;  // dynamic scratch (alloca) a level, beside the static one
  // Speculations: a 32-bit word each (wire/speculation.h), in the globals.
  std::uint32_t speculations = 0;
  std::uint64_t speculations_offset = 0;
  // The global variable that holds curcpu's structures, one (ProcessorInfo) a processor, which the
  // session fills in; kNone: nobody asks for it.
  std::uint32_t processors_variable = kNone;
  std::uint32_t processors = 1;                    // that there may be: their numbers are less
  std::shared_ptr<const ctypes::TypeTable> types;  // of print()
  bool destructive = false;  // some clause changes a process or the system: option destructive
};

// cpuinfo_t as the prelude of D declares it.
struct ProcessorInfo {
  std::int32_t id = 0;
  std::int32_t set = 0;       // of processors: Linux has none
  std::int32_t chip = 0;      // the package
  std::int32_t group = 0;     // the node of memory
  std::uint64_t details = 0;  // a pointer to more; NULL
};

// Bytes of dynamic scratch: whole words. In front of it lie kScratchGuard bytes that nobody may
// touch, so that what is a little before an allocation's start is a fault.
inline constexpr std::uint32_t kScratchGuard = 64;
constexpr std::uint32_t dynamic_scratch_size(const Program& program) {
  return (program.scratchsize + 7) & ~7U;
}

// A probe that was found: what reports and bodies call it. Its index in the session is what records
// carry.
struct ProbeName {
  std::uint32_t id = 0;  // as -l shows it; BEGIN is 1, END 2, ERROR 3
  std::string provider;
  std::string module;
  std::string function;
  std::string name;
};

// A readable listing of the program, for -S and tests.
std::string to_text(const Program& program);

}  // namespace trapline::plan
