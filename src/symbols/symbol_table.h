// The function symbols of a module, merged from every place that has some.
//
// Problem: names are spread over .dynsym, .symtab, a separate debug file and .gnu_debugdata, with
// versions, aliases, clones and duplicates; a probe description must find each function once under
// each of its names. Approach: read all, normalise names (no @VERSION), drop duplicates of
// (address, name), sort by address. Names are views into the string tables, which the table keeps;
// demangling is done on demand. Limits: functions only (STT_FUNC, STT_GNU_IFUNC, and untyped
// symbols that lie in code of hand-written assembler where no typed symbol has that address).
// Undefined symbols and PLT stubs are not functions.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "symbols/code_facts.h"
#include "symbols/elf_image.h"
#include "symbols/glob.h"

namespace trapline::symbols {

enum class SymbolKind : std::uint8_t {
  kFunction,
  kIfunc,    // the address is that of the resolver, not of the function: see ifunc.h
  kUntyped,  // STT_NOTYPE in code: hand-written assembler
};
enum class SymbolBinding : std::uint8_t { kLocal, kGlobal, kWeak };
enum class SymbolOrigin : std::uint8_t { kDynsym, kSymtab, kDebugFile, kDebugData };

// What the compiler made of a function beside the function itself.
enum class CloneKind : std::uint8_t {
  kNone,
  kCold,         // f.cold, f.cold.N: a part of f reached by jumps only; it has no entry of its own
  kPart,         // f.part.N: a part of f, called
  kSpecialised,  // f.constprop.N, f.isra.N, f.llvm.N, f.lto_priv.N: a function of its own
};

struct Symbol {
  LinkAddr address;
  std::uint64_t size = 0;    // bytes; guessed where size_guessed
  std::string_view name;     // as linked, without version; lives as long as the table
  std::string_view version;  // "GLIBC_2.14"; empty: none
  std::uint32_t file = 0;    // which STT_FILE group a local symbol came from; 0: none
  SymbolKind kind = SymbolKind::kFunction;
  SymbolBinding binding = SymbolBinding::kGlobal;
  SymbolOrigin origin = SymbolOrigin::kSymtab;
  CloneKind clone = CloneKind::kNone;
  bool size_guessed = false;    // the file gives 0: up to the next symbol or the end of the code
  bool default_version = true;  // name@@VERSION, or no version
  bool hidden = false;          // STV_HIDDEN or STV_INTERNAL

  AddressRange range() const { return {address, address + size}; }
};

// Where symbols were found, for `-lv` and for messages such as "libfoo.so is stripped".
struct SymbolSources {
  std::size_t dynsym = 0, symtab = 0, debug_file = 0,
              debug_data = 0;  // functions each gave, before merging
  std::string debug_path;      // the separate debug file used; empty: none
  std::vector<std::string>
      notes;  // why something was not used: CRC mismatch, no liblzma, corrupt table...
  bool stripped() const { return symtab == 0 && debug_file == 0 && debug_data == 0; }
};

enum class DebugFiles : std::uint8_t { kSearch, kIgnore };

struct SymbolOptions {
  DebugFiles debug_files = DebugFiles::kSearch;
  std::string
      path;  // the file's path as its process sees it, for .gnu_debuglink; empty: the image's name
  std::string root_prefix;  // "/proc/PID/root" in a container; tried before the tracer's own root
};

class SymbolTable {
 public:
  // Fails only when the image cannot be read at all; a broken table is a note in sources().
  static Result<SymbolTable> read(const ElfImage& image, const SymbolOptions& options = {});

  SymbolTable(SymbolTable&&) noexcept;
  SymbolTable& operator=(SymbolTable&&) noexcept;
  ~SymbolTable();

  // By address; at one address the preferred name comes first (global before weak before local,
  // default version, fewer leading underscores, then alphabetical).
  std::span<const Symbol> symbols() const;
  const SymbolSources& sources() const;

  // All symbols that start there, preferred name first; empty: none.
  std::span<const Symbol> at(LinkAddr address) const;
  // The preferred symbol whose range contains the address; nullptr: none.
  const Symbol* containing(LinkAddr address) const;
  // Every symbol of that exact linked name: several for versions, and for static functions of the
  // same name.
  std::vector<const Symbol*> named(std::string_view name) const;
  // Every symbol whose linked name matches, in address order; kUntyped ones only when the glob is a
  // literal.
  std::vector<const Symbol*> matching(const Glob& glob) const;
  // The same by demangled name ("ns::Foo::bar(int)"); demangles all mangled names once and keeps
  // them.
  std::vector<const Symbol*> matching_demangled(const Glob& glob) const;

  // The f.cold parts of a function (by any of its names). Where several static functions share the
  // name f and the file does not tell them apart, every f.cold is listed: for control flow more is
  // safe.
  std::vector<AddressRange> cold_parts(const Symbol& function) const;

 private:
  struct State;
  explicit SymbolTable(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The extent of the function that starts at an address: by a symbol that has a size, else by its
// FDE, else by a guessed size. nullopt: nothing starts there. Implementations of IFUNCs in stripped
// libraries have an FDE only.
std::optional<AddressRange> function_range(const SymbolTable& symbols,
                                           const ExceptionFrames& frames, LinkAddr address);

struct CloneName {
  std::string_view base;  // "f" of "f.cold", "f.part.0.cold", "f.isra.0"
  CloneKind kind;         // kCold wins where several suffixes are stacked
};
CloneName parse_clone_name(std::string_view name);

// "ns::Foo::bar(int)" of "_ZN2ns3Foo3barEi"; the name itself where it is not a C++ (or legacy Rust)
// mangled one.
std::string demangle(std::string_view name);

}  // namespace trapline::symbols
