// One ELF file, or one loaded object, as read-only facts at link addresses.
//
// Problem: a tracer reads the files of processes it does not control. They may be truncated,
// corrupt, replaced while we read, or gone, in which case only what is mapped into the process is
// left. Approach: nothing is mapped. Headers are read when the image is opened, the rest with
// pread() when asked for, and kept; a file that shrinks gives an error, never a SIGBUS. The same
// class serves three sources: a file, bytes in memory (the vDSO), and a process's memory seen
// through a reader (no section headers: program headers and PT_DYNAMIC only). Every offset is
// checked against the source's size. Limits: ELF64, little endian, x86-64; others are a clear
// error. Images are immutable but cache what they read, so one image belongs to one thread at a
// time. Sources: System V ABI (gABI) chapters 4 and 5; x86-64 psABI.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"

namespace trapline::symbols {

// Half open: [begin, end).
struct AddressRange {
  LinkAddr begin;
  LinkAddr end;

  std::uint64_t size() const { return end - begin; }
  bool contains(LinkAddr a) const { return begin <= a && a < end; }
  auto operator<=>(const AddressRange&) const = default;
};

// Reads target memory: fills all of `into`, or fails.
using MemoryReader = std::function<Result<>(RemoteAddr from, std::span<std::byte> into)>;

// Bytes that are owned, and not cleared before they are filled.
class Bytes {
 public:
  Bytes() = default;
  // nullopt: no memory.
  static std::optional<Bytes> allocate(std::size_t size);
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
};

enum class ImageKind : std::uint8_t {
  kFixedExecutable,  // ET_EXEC: loaded where it was linked
  kPie,              // ET_DYN that is a program: DF_1_PIE, or an interpreter without a SONAME
  kSharedObject,     // ET_DYN otherwise: libraries, ld.so, the vDSO
};

enum class ImageSource : std::uint8_t { kFile, kBytes, kProcessMemory };

// A PT_LOAD.
struct Segment {
  AddressRange memory;        // p_vaddr .. p_vaddr + p_memsz
  std::uint64_t file_offset;  // of memory.begin
  std::uint64_t file_size;    // the rest, up to memory.size(), is zeroes
  bool readable;
  bool writable;
  bool executable;
};

struct Section {
  std::string_view name;  // lives as long as the image
  std::uint32_t type;     // SHT_*
  std::uint64_t flags;    // SHF_*
  LinkAddr address;
  std::uint64_t offset;
  std::uint64_t size;
  std::uint32_t link;
  std::uint32_t info;
  std::uint64_t entry_size;

  AddressRange range() const { return {address, address + size}; }
};

// A position-independent name for "the very same build": the bytes of NT_GNU_BUILD_ID.
struct BuildId {
  std::vector<std::byte> bytes;
  std::string hex() const;
  bool operator==(const BuildId&) const = default;
};

// What PT_DYNAMIC says. Addresses are link addresses also when the loader has relocated them in
// memory.
struct DynamicInfo {
  bool present = false;
  std::string_view soname;  // empty: none
  std::vector<std::string_view> needed;
  LinkAddr symtab, strtab, versym, verneed, verdef, hash, gnu_hash;  // 0: none
  LinkAddr rela, jmprel, relr;
  std::uint64_t strtab_size = 0, verneed_count = 0, verdef_count = 0;
  std::uint64_t rela_size = 0, jmprel_size = 0, relr_size = 0;
  std::uint64_t flags_1 = 0;
  bool bind_now = false;
};

class ElfImage {
 public:
  // kNotFound/kOs: cannot be opened. kUnsupported: ELF, but 32-bit, big endian, another machine, or
  // not a program. kBadInput: not ELF, truncated or corrupt. Texts name the file.
  static Result<ElfImage> open(const std::string& path);
  static Result<ElfImage> from_fd(Fd fd, std::string name);
  // Bytes in the file's layout; the vDSO's memory has it.
  static Result<ElfImage> from_bytes(std::vector<std::byte> bytes, std::string name);
  // A file of separate debug information: its program headers describe another file's contents and
  // are ignored, so that only sections, the build-id and the machine are known. Accepts what open()
  // does.
  static Result<ElfImage> open_debug_file(const std::string& path);
  static Result<ElfImage> debug_file_from_bytes(std::vector<std::byte> bytes, std::string name);
  // An object already loaded, `header` being where its ELF header is mapped. The image's link
  // addresses are as in the file; `memory_bias()` is what was added.
  static Result<ElfImage> from_memory(MemoryReader reader, RemoteAddr header, std::string name);

  ElfImage(ElfImage&&) noexcept;
  ElfImage& operator=(ElfImage&&) noexcept;
  ~ElfImage();

  const std::string& name() const;  // path, or what the opener called it; for messages
  ImageSource source() const;
  ImageKind kind() const;
  bool is_pie() const { return kind() == ImageKind::kPie; }
  bool is_executable() const { return kind() != ImageKind::kSharedObject; }
  // No interpreter and nothing needed: static and static-PIE programs (ld.so, the vDSO as well).
  bool is_static() const;
  LinkAddr entry() const;                // 0: none
  std::string_view interpreter() const;  // PT_INTERP; empty: none
  LoadBias memory_bias() const;          // only for kProcessMemory

  const std::vector<Segment>& segments() const;  // PT_LOADs, ascending
  std::vector<AddressRange> text_ranges() const;
  std::optional<AddressRange> eh_frame_hdr() const;  // PT_GNU_EH_FRAME
  const Segment* segment_of(LinkAddr address) const;
  // The ranges that hold code: executable sections, or, without section headers, executable
  // segments.
  std::vector<AddressRange> code_ranges() const;

  // Sections; empty when headers were stripped, are unreadable, or the source is a process's
  // memory.
  const std::vector<Section>& sections() const;
  const Section* find_section(std::string_view name) const;

  // The bytes loaded at a range, which must lie within one PT_LOAD's file part. The span lives as
  // long as the image.
  Result<std::span<const std::byte>> bytes_at(AddressRange range) const;
  // A section's bytes as in the file (compressed sections stay compressed). SHT_NOBITS: an error.
  Result<std::span<const std::byte>> section_bytes(const Section& section) const;
  // The same as a copy that the image does not keep.
  Result<Bytes> copy_section(const Section& section) const;
  // A NUL-terminated string at a link address, at most `limit` bytes; nullopt when it is not one.
  std::optional<std::string_view> string_at(LinkAddr address, std::size_t limit = 4096) const;

  const DynamicInfo& dynamic() const;
  const std::optional<BuildId>& build_id() const;

  // Go binaries (own stacks, own calling convention, no fs:0 convention) need other care.
  bool is_go() const;
  // Neither .symtab nor .gnu_debugdata of its own. (A separate debug file may still supply symbols:
  // SymbolTable tells.)
  bool is_stripped() const;

 private:
  struct State;
  explicit ElfImage(std::unique_ptr<State> state);
  enum class ProgramHeaders : std::uint8_t { kRead, kIgnore };
  static Result<ElfImage> parse(std::unique_ptr<State> state, ProgramHeaders program_headers);
  std::unique_ptr<State> state_;
};

}  // namespace trapline::symbols
