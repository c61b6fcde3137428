// Control flow of a module's code: where anything may jump to, and how functions are left.
//
// The problem: five bytes are to be overwritten by a jump. That is only safe where no control flow
// arrives at the second to last of them. The approach: one linear sweep over all executable bytes,
// in step with the function symbols, marks the target of every direct branch in a bitmap; what code
// alone cannot tell (addresses in data, landing pads) is given by the caller. One function at a
// time is then looked at closely: its exits, and its indirect jumps, which are either proven (jump
// table, tail call) or said to be unknown.
//
// Limits: code that nobody names (no symbol, no FDE) and that follows data is found by
// resynchronisation only. Addresses computed at run time other than through tables are not seen;
// compilers make none. Everything is bounded and pure: hostile bytes give useless answers, never a
// fault.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/address.h"
#include "isa/x86_64/decode.h"

namespace trapline::isa {

struct CodeRange {
  LinkAddr begin;
  LinkAddr end;  // one past
  bool contains(LinkAddr a) const { return a >= begin && a < end; }
  bool strictly_contains(LinkAddr a) const { return a > begin && a < end; }
  std::uint64_t size() const { return end > begin ? end - begin : 0; }
  auto operator<=>(const CodeRange&) const = default;
};

struct CodeSection {
  LinkAddr address;
  std::span<const std::byte> bytes;  // must outlive the ModuleCode
};

// Fills `out` with the module's initialised data at a link address, relative relocations applied
// (in a shared object a table of addresses holds zeros in the file, and its values stand in
// .rela.dyn). False: not all of it is there.
using ReadData = std::function<bool(LinkAddr, std::span<std::byte> out)>;

enum class CodePointers : std::uint8_t {
  kComplete,  // code_pointers has every code address that the module's data holds: from RELATIVE
              // relocations of a shared object or PIE, or by scanning the data of a fixed-address
              // executable (scan_code_pointers)
  kUnknown,
};

enum class AddressModel : std::uint8_t {
  kRelative,  // shared object or PIE
  kFixed,     // ET_EXEC: any 32-bit constant in code may be a code address too
};

struct ModuleInput {
  std::vector<CodeSection> sections;  // every executable section; not overlapping
  std::vector<CodeRange>
      functions;  // of function symbols; any order, duplicates and size 0 allowed
  std::vector<CodeRange>
      frames;  // of FDEs: they show static functions and .cold parts of stripped modules
  std::vector<CodeRange> cold;          // among `functions`: .cold parts of others, by their names
  std::vector<LinkAddr> landing_pads;   // from LSDAs
  std::vector<LinkAddr> code_pointers;  // addresses in code that data holds
  CodePointers pointers = CodePointers::kUnknown;
  AddressModel model = AddressModel::kRelative;
  std::vector<CodeRange> excluded;  // no window may touch these: rseq sections, abort signatures
  ReadData read_data;               // may be empty: then no jump table is proven
};

// What is known of an address that a symbol says a function starts at. Symbol tables may lie (a
// debug file or .symtab that was damaged); FDEs, which unwinding needs, are believed before them.
enum class Start : std::uint8_t {
  kFunction,       // an FDE starts there, or none is around it
  kInside,         // in the midst of an FDE's code: an entry of hand-written code, or no function
  kNoInstruction,  // in the midst of an instruction of the FDE's code
};

class ModuleCode {
 public:
  // Sweeps all sections. About 300 MB/s.
  explicit ModuleCode(ModuleInput input);

  // Bytes from `at` to the end of its section; empty: not code.
  std::span<const std::byte> bytes_at(LinkAddr at) const;
  // A direct branch, function start, landing pad or code pointer anywhere in [begin, end).
  bool any_target(LinkAddr begin, LinkAddr end) const {
    return first_target(begin, end).has_value();
  }
  std::optional<LinkAddr> first_target(LinkAddr begin, LinkAddr end) const;
  // Exactly one direct branch of the module goes to `at`, and nothing else is known to.
  bool single_branch_to(LinkAddr at) const;
  // How many direct branches of the module go to the `ret` at `at`; nullopt: something else may
  // lead there too, or it is no ret.
  std::optional<std::uint32_t> branches_to_return(LinkAddr at) const;
  // The first function start after `at`, or the end of at's section.
  LinkAddr next_start(LinkAddr at) const;
  // What no function symbol and no FDE covers just before `start`, which is a function's or FDE's
  // start or the end of a section; nullopt: nothing is left out there, or nothing precedes it.
  std::optional<CodeRange> gap_before(LinkAddr start) const;
  Start start_at(LinkAddr at) const;
  // Whether code that begins at the range's begin goes on, by the FDE that starts there, to its
  // end; true where no FDE tells.
  bool within_frame(CodeRange function) const;
  bool excluded(LinkAddr begin, LinkAddr end) const;
  bool same_section(LinkAddr a, LinkAddr b) const {
    return marks_of(a.value()) != nullptr && marks_of(a.value()) == marks_of(b.value());
  }
  // The section around `at`; empty: not code.
  CodeRange section_around(LinkAddr at) const;
  bool in_code(LinkAddr at) const { return !bytes_at(at).empty(); }
  // A code pointer (not a landing pad) strictly inside the range.
  bool pointer_inside(CodeRange range) const;
  bool is_called(LinkAddr at) const;   // by a direct call
  bool is_pointer(LinkAddr at) const;  // among code_pointers
  // The FDE's range around `at`, if no function symbol starts it or overlaps it: a static function
  // of a stripped module, or the .cold part of one.
  std::optional<CodeRange> unnamed_frame(LinkAddr at) const;
  // The symbol's range around `at`: of those that hold it, the one that starts last.
  std::optional<CodeRange> function_around(LinkAddr at) const;
  // Whether a function is known to start at `at`, not the .cold part of one, into which jump tables
  // may lead that its own code does not show: a symbol says so, or it is called or pointed to.
  bool is_function(LinkAddr at) const;
  // As function_around, or where no symbol tells, the FDE's range.
  std::optional<CodeRange> code_around(LinkAddr at) const;
  CodePointers pointers() const { return input_.pointers; }
  bool read_data(LinkAddr at, std::span<std::byte> out) const;
  std::size_t swept_instructions() const { return swept_; }

 private:
  struct Marks {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::vector<std::uint64_t> once;   // one bit a byte: some branch goes there
    std::vector<std::uint64_t> again;  // ... and another one, or something that is no branch
    std::vector<std::uint64_t> called;
  };
  enum class Mark : std::uint8_t { kBranch, kCall, kFixed };
  const Marks* marks_of(std::uint64_t at) const;
  Marks* marks_of(std::uint64_t at);
  void mark(std::uint64_t at, Mark what);
  bool is_return(LinkAddr at) const;
  void sweep(const CodeSection& section);
  std::size_t resume_at(const CodeSection& section, std::uint64_t start, std::size_t pos,
                        std::uint64_t stumbled);
  void sweep_aside(const CodeSection& section, std::size_t pos, std::size_t other);
  const CodeRange* frame_around(LinkAddr at) const;  // that starts before `at`
  void scan_one(std::span<const std::byte> bytes, std::uint64_t at, const struct Scanned& scanned);

  ModuleInput input_;
  std::vector<Marks> marks_;              // in the order of input_.sections, sorted by address
  std::vector<std::uint64_t> starts_;     // of functions and frames, sorted, unique
  std::vector<std::uint64_t> misplaced_;  // Start::kNoInstruction; sorted
  std::unordered_map<std::uint64_t, std::uint32_t> return_branches_;  // by the ret's address
  std::size_t swept_ = 0;
};

// Addresses of code held in initialised data: every aligned 8-byte word of `data` that lies in a
// section. For executables at fixed addresses, where no relocations tell.
std::vector<LinkAddr> scan_code_pointers(std::span<const CodeSection> sections,
                                         std::span<const std::byte> data);

enum class ExitKind : std::uint8_t {
  kRet,
  kTailJump,             // direct jmp out of the function
  kTailJumpConditional,  // jcc out of it: left only when it is taken
  kTailJumpIndirect,     // proven tail call
};

struct FunctionExit {
  LinkAddr at;
  ExitKind kind = ExitKind::kRet;
};

enum class IndirectJump : std::uint8_t {
  kTable,     // targets known
  kTail,      // a tail call; it is among the exits
  kInternal,  // the stack shows that it stays in the function (computed goto); targets are code
              // pointers
  kUnproven,  // may stay or leave: return probes of this function are refused
};

struct IndirectSite {
  LinkAddr at;
  IndirectJump verdict = IndirectJump::kUnproven;
};

// One function, seen closely. `parts[0]` is the function's symbol; further ones (.cold) belong to
// it: those that the caller names, and those into which it jumps with its stack frame in place
// (stripped modules; aliases such as C1 and C2 constructors, where the .cold part bears another
// name).
struct FunctionCode {
  std::vector<CodeRange> parts;
  std::vector<Instruction> instructions;  // of all parts, by address
  std::vector<FunctionExit> exits;        // by address
  std::vector<IndirectSite> indirect;
  std::vector<LinkAddr> table_targets;  // sorted, unique
  bool decodable = true;  // every byte belongs to an instruction, up to padding or data at the end
  LinkAddr undecodable_at;
  // Some indirect jump may go to an address inside that nothing tells: windows in mid-function of
  // more than one instruction are refused.
  bool unknown_targets = false;
  // A branch of the function itself goes to its first instruction: an entry probe fires at each
  // turn.
  bool entry_is_branch_target = false;
  // Symbol and unwind information agree that this is one function, which may be relied on to be
  // called as the ABI says.
  bool sure = true;

  bool contains(LinkAddr a) const;
  bool has_unproven_jump() const;
  // The part that holds `a`, or nullopt.
  std::optional<CodeRange> part_of(LinkAddr a) const;
  // Index of the instruction that starts at `a`.
  std::optional<std::size_t> find(LinkAddr a) const;
};

// Preconditions: none; a range outside the module's code gives an empty, undecodable function. A
// range of size 0 goes up to the next function.
FunctionCode analyze_function(const ModuleCode& module, CodeRange function,
                              std::span<const CodeRange> other_parts = {});

}  // namespace trapline::isa
